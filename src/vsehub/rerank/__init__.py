"""Rankings of anybody's embeddings, corrected for hubs and measured beside the plain ones."""
