"""The built-in data set: small painted scenes with five captions each."""
