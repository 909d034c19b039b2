"""Files of vectors, read in blocks of bounded memory."""
