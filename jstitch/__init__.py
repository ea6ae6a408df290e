"""A drop-in `jit` for JAX that stitches memory-intensive code into few large kernels inside XLA.

@jstitch.jit
def layer_norm(x, scale, bias): ...
"""

from jstitch.analysis import Analysis, analyze
from jstitch.api import Jit, explain, export_checks, jit, plan
from jstitch.codegen.cpu.build import register_or_warn as _register_cpu
from jstitch.device_spec import DeviceSpec
from jstitch.errors import CannotFuseError, JstitchError, JstitchWarning
from jstitch.frontend.control import fuse_together, no_fuse
from jstitch.frontend.races import race_now
from jstitch.frontend.stitch import stitch
from jstitch.options import CompileOptions
from jstitch.options import wanted_log as _wanted_log
from jstitch.runtime.report import Record, last_report, record_count, stitch_count
from jstitch.runtime.telemetry import start_logging as _start_logging

_start_logging(_wanted_log())

# Here, so that exported and cached programs run in a process that only imports jstitch.
_register_cpu()

__version__ = "0.1.0"


def load_ipython_extension(shell: object) -> None:
    """For `%load_ext jstitch`: the cell magic `%%stitch`."""
    from jstitch.inspection.magic import register

    register(shell)


__all__ = [
    "Analysis",
    "CannotFuseError",
    "CompileOptions",
    "DeviceSpec",
    "Jit",
    "JstitchError",
    "JstitchWarning",
    "Record",
    "__version__",
    "analyze",
    "explain",
    "export_checks",
    "fuse_together",
    "jit",
    "last_report",
    "no_fuse",
    "plan",
    "race_now",
    "record_count",
    "stitch",
    "stitch_count",
]
