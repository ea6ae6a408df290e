"""Tilings of chains of products (MCFuser): expressions, statements, pruning, a model, a search."""
