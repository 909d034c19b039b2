"""Atomic writing and strict reading of files; the output folders and records of commands."""
