"""A PTX interpreter: executes the text that the CUDA backend emits, on the CPU, and checks every access.

    counts = run_ptx(text, "layer_norm_phase0", grid=256, block=256, shared_bytes=0, arguments=[x, g, b, y])

It takes what NVVM emits for this project's kernels: one dimension, pointer parameters, no atomics.
"""

from jstitch.codegen.cuda.ptx.error import PtxError
from jstitch.codegen.cuda.ptx.run import Counts, Last, run_ptx

__all__ = ["Counts", "Last", "PtxError", "run_ptx"]
