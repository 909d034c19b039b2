"""Image and text encoders: (N, ...) inputs to (N, D) vectors, not yet normalised, or N `Sets`; one method, one file."""
