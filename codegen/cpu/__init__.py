"""The CPU backend: vectorised Numba loops behind one XLA FFI handler."""
