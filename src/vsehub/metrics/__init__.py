"""Ranks, recalls and hubness: exact, with ties defined, from a score matrix or from blocks of one."""
