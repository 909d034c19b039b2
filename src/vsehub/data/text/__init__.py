"""Captions as numbers: vocabularies, tokens, word vectors."""
