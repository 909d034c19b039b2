"""A page and an interface to look at a collection: plain and corrected search side by side, and its hubs."""
