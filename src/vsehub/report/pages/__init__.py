"""Pages, each in the same folder as its template."""
