"""Kernel -> Numba source -> machine code; one folder per target, the same file names in each."""
