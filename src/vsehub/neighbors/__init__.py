"""Nearest neighbours by inner product: exact in torch, or by FAISS, and the memory bank on top."""
