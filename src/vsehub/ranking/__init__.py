"""Rankings of any embeddings, corrected for hubs and compared with the plain rankings."""
