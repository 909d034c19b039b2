"""Fixtures of all tests of databases."""

from servers import given_milvus, given_qdrant, postgres, qdrant_server

__all__ = ["given_milvus", "given_qdrant", "postgres", "qdrant_server"]
