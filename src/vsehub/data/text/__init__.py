"""Captions as numbers: vocabularies, tokens and word vectors."""
