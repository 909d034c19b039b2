"""Stacked cross-attention between the words of a text and the regions of an image (Lee 2018, SCAN)."""
