"""What XLA's profiler calls when a profile begins and ends, as it does with the profiler of any plugin.

While one is being taken, calls are run by the threads that make them: the profile has an event of XLA's
around each call, and that is to last as long as the kernel.
"""

from __future__ import annotations

from jstitch.runtime import ffi_layout as at
from jstitch.runtime import native_ops as op
from jstitch.runtime.native_function import export


@export
def profiler_create(args: int) -> int:
    """PLUGIN_Profiler_Create: XLA asks for an address, and gives it back to the others."""
    op.put(args, at.PROFILER_CREATED, op.process_block())
    return 0


@export
def profiler_start(args: int) -> int:
    """PLUGIN_Profiler_Start."""
    op.put(op.process_block(), at.PROCESS_TRACED, 1)
    return 0


@export
def profiler_stop(args: int) -> int:
    """PLUGIN_Profiler_Stop."""
    op.put(op.process_block(), at.PROCESS_TRACED, 0)
    return 0


@export
def profiler_collect(args: int) -> int:
    """PLUGIN_Profiler_CollectData: nothing beyond what XLA has itself."""
    op.put(args, at.PROFILER_BUFFER, 0)
    op.put(args, at.PROFILER_BUFFER_BYTES, 0)
    return 0


@export
def profiler_destroy(args: int) -> int:
    """PLUGIN_Profiler_Destroy."""
    return 0
