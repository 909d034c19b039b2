"""Image and text encoders: (N, ...) inputs to (N, D) vectors, not yet normalised; one method, one file."""
