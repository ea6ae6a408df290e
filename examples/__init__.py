"""Ten small programs, each under `jax.jit` and `jstitch.jit`: the same losses, how fast, how many kernels."""
