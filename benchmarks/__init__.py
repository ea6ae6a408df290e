"""Benchmarks: `python -m benchmarks run`, `compile`, `overhead`. Runs from a checkout."""
