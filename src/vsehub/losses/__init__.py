"""Training losses; one method, one file."""
