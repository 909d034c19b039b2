"""The pages, each beside its template."""
