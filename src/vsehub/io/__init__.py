"""Files: written whole, read with care, and the folders and records that commands leave."""
