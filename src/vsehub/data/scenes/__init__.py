"""The embedded data set: small painted scenes with five captions each."""
