"""Rows of large intermediates in chunks: what has to be made by rows, and the loop that does."""
