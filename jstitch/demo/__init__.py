"""`python -m jstitch demo`: train a small language model under `jax.jit` and `jstitch.jit` side by side."""
