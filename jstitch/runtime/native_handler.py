"""The native half of the CPU handler, in Numba's Python: XLA calls `execute`, its thread pool calls `task`.

`execute` finds its kernel (instance state), gathers the buffer pointers, and runs the phases: on this thread
when they are short, else on XLA's own pool (native_threads.py).
"""

from __future__ import annotations

from jstitch.runtime import ffi_layout as at
from jstitch.runtime import native_ops as op
from jstitch.runtime.native_awake import note_call, serial_ns
from jstitch.runtime.native_function import FUNCTIONS, export, helper, larger, round_up, smaller
from jstitch.runtime.native_memory import ask_huge_pages, give_block, take_block
from jstitch.runtime.native_profiler import profiler_create
from jstitch.runtime.native_threads import forget_error, run_parallel

__all__ = ["FUNCTIONS", "profiler_create"]


@helper
def _alone_ns(kernel: int) -> int:
    """Nanoseconds of all phases on one core."""
    total = 0
    phase = kernel + 8 * at.KERNEL_PHASES
    for _ in range(op.word(kernel, at.KERNEL_NUM_PHASES)):
        total += op.word(phase, at.PHASE_ALONE_NS)
        phase += 8 * at.PHASE_WORDS
    return total


@helper
def _num_threads(process: int, frame: int, kernel: int, serial: int) -> int:
    """Threads worth using for this call, at most the pool and the limit; 0 where no phase is large.

    serial: nanoseconds below which a phase is not.
    """
    large = 0
    phase = kernel + 8 * at.KERNEL_PHASES
    for _ in range(op.word(kernel, at.KERNEL_NUM_PHASES)):
        if op.word(phase, at.PHASE_ALONE_NS) >= serial:
            large = larger(large, op.word(phase, at.PHASE_PROGRAMS))
        phase += 8 * at.PHASE_WORDS
    limit = op.word(process, at.PROCESS_THREADS)
    if limit <= 1:
        return 0
    if large <= 1:
        return large
    args = op.stack_words()
    op.put(args, 0, 32)
    op.put(args, 1, 0)
    op.put(args, at.ARGS_CONTEXT, op.word(frame, at.FRAME_CONTEXT))
    op.put(args, at.THREADS_OUT, args + 48)
    op.put(args, 6, 1)
    error = op.call1(op.word(op.word(frame, at.FRAME_API), at.API_NUM_THREADS), args)
    if error != 0:
        forget_error(frame, error)
        return 1
    return larger(1, smaller(smaller(limit, large), op.word(args, 6)))


@helper
def _gather(process: int, frame: int, n: int, bufs: int, scratch: int) -> None:
    """Write [n arguments..., results..., scratch] to `bufs`; large results ask for huge pages first."""
    for i in range(n):
        op.put(bufs, i, op.word(op.word(op.word(frame, at.FRAME_ARGS), i), at.BUFFER_DATA))
    results = op.word(frame, at.FRAME_NUM_RESULTS)
    for i in range(results):
        buffer = op.word(op.word(frame, at.FRAME_RESULTS), i)
        dtype = op.half(buffer + at.BUFFER_DTYPE_BYTE) & (at.NUM_DTYPES - 1)
        size = op.word(op.word(process, at.PROCESS_ITEMSIZES), dtype)
        for axis in range(op.word(buffer, at.BUFFER_RANK)):
            size *= op.word(op.word(buffer, at.BUFFER_DIMS), axis)
        data = op.word(buffer, at.BUFFER_DATA)
        if size >= at.HUGE_BYTES:
            ask_huge_pages(process, data, size)
        op.put(bufs, n + i, data)
    op.put(bufs, n + results, scratch)


@helper
def _error(frame: int, message: int, code: int) -> int:
    """A new XLA_FFI_Error with a message of the process block."""
    args = op.stack_words()
    op.put(args, 0, 32)
    op.put(args, 1, 0)
    op.put(args, at.ERROR_MESSAGE, message)
    op.put(args, at.ERROR_CODE, code)
    return op.call1(op.word(op.word(frame, at.FRAME_API), at.API_ERROR_CREATE), args)


@helper
def _answer_metadata(process: int, extension: int) -> int:
    """XLA asks once, at registration, for the API version and the state's type; 0 for other questions."""
    if op.half(extension + at.EXTENSION_TYPE_BYTE) != at.METADATA_TYPE:
        return 0
    metadata = op.word(extension, at.EXTENSION_METADATA)
    op.put_half(metadata + at.METADATA_MAJOR_BYTE, at.API_MAJOR)
    op.put_half(metadata + at.METADATA_MINOR_BYTE, at.API_MINOR)
    op.put_half(metadata + at.METADATA_TRAITS_BYTE, 0)
    op.put(metadata, at.METADATA_STATE_TYPE, op.word(process, at.PROCESS_TYPE_ID))
    return 1


@helper
def _run_serial(kernel: int, bufs: int, arenas: int) -> None:
    """All phases in order, on this thread."""
    phase = kernel + 8 * at.KERNEL_PHASES
    for _ in range(op.word(kernel, at.KERNEL_NUM_PHASES)):
        for program in range(op.word(phase, at.PHASE_PROGRAMS)):
            op.call3(op.word(phase, at.PHASE_FUNCTION), bufs, arenas, program)
        phase += 8 * at.PHASE_WORDS


@helper
def _run(process: int, frame: int, kernel: int) -> int:
    """Run a kernel on the frame's buffers, in a block of memory that belongs to this call alone.

    One argument after the kernel's own is not for it: it tells XLA what the call costs.
    """
    nargs, nresults = op.word(kernel, at.KERNEL_NUM_ARGS), op.word(kernel, at.KERNEL_NUM_RESULTS)
    more = op.word(frame, at.FRAME_NUM_ARGS) - nargs
    if more < 0 or more > 1 or nresults != op.word(frame, at.FRAME_NUM_RESULTS):
        return _error(frame, op.word(process, at.PROCESS_MESSAGE_COUNTS), at.CODE_INVALID_ARGUMENT)
    alone = _alone_ns(kernel)
    threads = _num_threads(process, frame, kernel, serial_ns(process, alone))
    pointers = round_up((nargs + nresults + 1) * 8, 64)
    scratch = round_up(op.word(kernel, at.KERNEL_SCRATCH), 128)
    arena = round_up(op.word(kernel, at.KERNEL_ARENA), 128)
    block = take_block(process, at.PROCESS_MEMORY_SLOTS, pointers + scratch + arena * larger(1, threads))
    if block == 0:
        return _error(frame, op.word(process, at.PROCESS_MESSAGE_MEMORY), at.CODE_RESOURCE_EXHAUSTED)
    bufs = block + at.MEMORY_HEADER_BYTES
    _gather(process, frame, nargs, bufs, bufs + pointers)
    arenas, done = bufs + pointers + scratch, 0
    if threads > 0:
        done = run_parallel(process, frame, kernel, bufs, arenas, arena, threads)
    if done == 0:
        _run_serial(kernel, bufs, arenas)
        note_call(process, alone)
        give_block(process, at.PROCESS_MEMORY_SLOTS, block)
    return 0


@export
def execute(frame: int) -> int:
    """XLA_FFI_Handler of the execute stage: 0, or an XLA_FFI_Error."""
    process = op.process_block()
    extension = op.word(frame, at.FRAME_EXTENSION)
    while extension != 0:
        if _answer_metadata(process, extension) != 0:
            return 0
        extension = op.word(extension, at.EXTENSION_NEXT)
    args = op.stack_words()
    op.put(args, 0, 48)
    op.put(args, 1, 0)
    op.put(args, at.ARGS_CONTEXT, op.word(frame, at.FRAME_CONTEXT))
    op.put(args, at.STATE_STAGE, 0)
    op.put(args, at.STATE_TYPE, process + 8 * at.PROCESS_TYPE_ID)
    op.put(args, at.STATE_VALUE, 0)
    error = op.call1(op.word(op.word(frame, at.FRAME_API), at.API_STATE_GET), args)
    if error != 0:
        return error
    return _run(process, frame, op.word(args, at.STATE_VALUE))


@export
def set_process(address: int) -> None:
    """Called once from Python, before the handler is registered."""
    op.set_process_block(address)


@export
def forget(kernel: int) -> None:
    """Deleter of the instance state: kernels live as long as the process."""
