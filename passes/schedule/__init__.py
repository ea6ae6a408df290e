"""Kernel -> Kernel: what a target's kernels go through before they are written out."""
