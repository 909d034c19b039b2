"""Files that are written completely or not at all and read strictly; the folders and records of commands."""
