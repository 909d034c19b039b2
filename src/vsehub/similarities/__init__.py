"""Similarities between encoded images and texts; one method, one file."""
