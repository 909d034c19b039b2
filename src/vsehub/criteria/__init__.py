"""Inference criteria: rankings corrected for hubs; one method, one file."""
