"""Files that are written wholly or not at all and read strictly; the folders and records of commands."""
