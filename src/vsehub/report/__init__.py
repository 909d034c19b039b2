"""Tables, plots and pages from run folders and records."""
