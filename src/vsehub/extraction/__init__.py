"""Features or joint vectors of a data set's pictures, computed in chunks and written as files."""
