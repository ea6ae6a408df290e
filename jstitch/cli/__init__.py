"""Commands of `jstitch` (and `python -m jstitch`), one file each."""
