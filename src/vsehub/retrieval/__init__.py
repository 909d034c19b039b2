"""Rankings of anybody's embeddings: corrected for hubs, measured beside the plain ones, and where they come from."""
