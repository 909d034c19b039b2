"""Criteria that match queries and items, so that what one query gets another may not."""
