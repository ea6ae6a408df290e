"""A drop-in `jit` for JAX that stitches memory-intensive code into few large kernels inside XLA.

@jstitch.jit
def layer_norm(x, scale, bias): ...
"""

from jstitch.api import jit
from jstitch.errors import JstitchError, JstitchWarning
from jstitch.frontend.stitch import stitch
from jstitch.options import CompileOptions
from jstitch.runtime.report import Record, last_report, record_count, stitch_count

__version__ = "0.1.0"

__all__ = [
    "CompileOptions",
    "JstitchError",
    "JstitchWarning",
    "Record",
    "__version__",
    "jit",
    "last_report",
    "record_count",
    "stitch",
    "stitch_count",
]
