"""The embedded data set: small painted scenes and what five people say of each."""
