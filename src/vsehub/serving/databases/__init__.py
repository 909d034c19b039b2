"""Vector databases that serve a corrected ranking: one file per engine, and what they share."""
