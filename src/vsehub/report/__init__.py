"""Tables, plots and pages over run folders and records."""
