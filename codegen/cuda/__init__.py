"""The CUDA backend: Kernel -> kernel text -> PTX, and machines that run both without a GPU."""
