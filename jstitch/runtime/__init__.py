"""Run generated kernels inside XLA: kernel cache, native handlers, threads, memory."""

from jstitch.errors import JstitchWarning
from jstitch.runtime.malloc import tune_malloc
from jstitch.runtime.process_block import set_num_threads

__all__ = ["JstitchWarning", "set_num_threads", "tune_malloc"]
