"""The native half of the CPU handler, in Numba's Python: XLA calls `execute`, the thread pool calls `task`.

`execute` finds its kernel (instance state), gathers the buffer pointers, and runs the phases: on this thread
when the work is small, else also on XLA's own pool. Nobody ever waits for a task that has not begun: the
caller takes programs from the same counter, and a late task finds the counter used up. Imported only when
this handler is compiled; afterwards its machine code comes from the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types

from jstitch.runtime import ffi_layout as at
from jstitch.runtime import native_ops as op
from jstitch.runtime.numba_compiler import NativeFunction

FUNCTIONS: list[NativeFunction] = []
"""Every function of this module, to be compiled into one object."""


def _export(function: Callable[..., Any]) -> Callable[..., Any]:
    """Export the function under `jstitch_<name>`."""
    symbol = f"jstitch_{function.__name__.lstrip('_')}"
    returns = function.__annotations__["return"] != "None"
    FUNCTIONS.append(NativeFunction(symbol, function, function.__code__.co_argcount, returns))
    return function


def _helper(function: Callable[..., Any]) -> Callable[..., int]:
    """Export the function; others call it by symbol, so each is compiled once (njit callees cost twice)."""
    _export(function)
    made = FUNCTIONS[-1]
    result = types.int64 if made.returns else types.void
    external: Callable[..., int] = types.ExternalFunction(made.symbol, result(*[types.int64] * made.arity))
    return external


@_helper
def _smaller(x: int, y: int) -> int:
    # the builtin min would be compiled as a callee of its own
    if x < y:
        return x
    return y


@_helper
def _larger(x: int, y: int) -> int:
    if x > y:
        return x
    return y


@_helper
def _round_up(size: int, multiple: int) -> int:
    return (size + multiple - 1) & -multiple


@_helper
def _ask_huge_pages(process: int, start: int, size: int) -> None:
    """madvise the whole 2 MiB pages inside [start, start + size)."""
    first = _round_up(start, at.HUGE_PAGE)
    length = ((start + size) & -at.HUGE_PAGE) - first
    if length > 0 and op.word(process, at.PROCESS_MADVISE) != 0:
        op.call3(op.word(process, at.PROCESS_MADVISE), first, length, at.MADV_HUGEPAGE)


@_helper
def _new_block(process: int, size: int) -> int:
    """A block of at least `size` bytes behind its header; 0 when there is no memory."""
    align = at.HUGE_PAGE if size >= at.HUGE_BYTES else at.MEMORY_HEADER_BYTES
    total = size + at.MEMORY_HEADER_BYTES + align
    raw = op.call1(op.word(process, at.PROCESS_MALLOC), total)
    if raw == 0:
        return 0
    if size >= at.HUGE_BYTES:
        _ask_huge_pages(process, raw, total)
    block = _round_up(raw, align)
    op.put(block, at.MEMORY_RAW, raw)
    op.put(block, at.MEMORY_CAPACITY, size)
    return block


@_helper
def _take_block(process: int, slots: int, size: int) -> int:
    """A block from the slots, or a new one. Ownership moves by an atomic swap: no list, no ABA."""
    for slot in range(at.NUM_SLOTS):
        if op.word(process, slots + slot) != 0:
            block = op.atomic_swap(process, slots + slot, 0)
            if block != 0:
                if op.word(block, at.MEMORY_CAPACITY) >= size:
                    return block
                op.call1(op.word(process, at.PROCESS_FREE), op.word(block, at.MEMORY_RAW))
                break
    return _new_block(process, size)


@_helper
def _give_block(process: int, slots: int, block: int) -> None:
    """Put a block into the first empty slot; free it when it is too large to keep or all are full."""
    if op.word(block, at.MEMORY_CAPACITY) <= at.KEEP_BYTES:
        for slot in range(at.NUM_SLOTS):
            if op.word(process, slots + slot) == 0:
                block = op.atomic_swap(process, slots + slot, block)
                if block == 0:
                    return
    op.call1(op.word(process, at.PROCESS_FREE), op.word(block, at.MEMORY_RAW))


@_helper
def _run_programs(join: int) -> None:
    """Take programs off the counter until there are none; an arena only once there is a program to run."""
    programs = op.word(join, at.JOIN_PROGRAMS)
    program = op.atomic_add(join, at.JOIN_NEXT, 1)
    if program >= programs:
        return
    mine = op.atomic_add(join, at.JOIN_ARENAS_TAKEN, 1)
    arena = op.word(join, at.JOIN_ARENAS) + mine * op.word(join, at.JOIN_ARENA_BYTES)
    while program < programs:
        op.call3(op.word(join, at.JOIN_FUNCTION), op.word(join, at.JOIN_BUFS), arena, program)
        op.atomic_add(join, at.JOIN_DONE, 1)
        program = op.atomic_add(join, at.JOIN_NEXT, 1)


@_helper
def _drop(process: int, join: int, count: int) -> None:
    if op.atomic_add(join, at.JOIN_REFS, -count) == count:
        _give_block(process, at.PROCESS_JOIN_SLOTS, join - at.MEMORY_HEADER_BYTES)


@_export
def task(join: int) -> None:
    """One helper of one parallel phase, on a thread of XLA's pool, perhaps long after the phase ended."""
    _run_programs(join)
    _drop(op.process_block(), join, 1)


@_helper
def _schedule(process: int, frame: int, join: int, helpers: int) -> int:
    """Ask XLA's pool for `helpers` tasks; how many it accepted."""
    api = op.word(frame, at.FRAME_API)
    args = op.stack_words()
    op.put(args, 0, 40)
    op.put(args, 1, 0)
    op.put(args, at.ARGS_CONTEXT, op.word(frame, at.FRAME_CONTEXT))
    op.put(args, at.SCHEDULE_TASK, op.word(process, at.PROCESS_TASK))
    op.put(args, at.SCHEDULE_DATA, join)
    for i in range(helpers):
        error = op.call1(op.word(api, at.API_SCHEDULE), args)
        if error != 0:
            op.put(args, 0, 24)
            op.put(args, at.ARGS_CONTEXT, error)
            op.call1(op.word(api, at.API_ERROR_DESTROY), args)
            return i
    return helpers


@_helper
def _await(process: int, join: int, programs: int) -> None:
    """Wait for the programs that other threads are still running: spin a little, then yield."""
    spins = 0
    while op.atomic_word(join, at.JOIN_DONE) < programs:
        op.pause()
        spins += 1
        if spins > 1000 and op.word(process, at.PROCESS_YIELD) != 0:
            op.call0(op.word(process, at.PROCESS_YIELD))


@_helper
def _run_parallel(
    process: int, frame: int, phase: int, bufs: int, arenas: int, arena: int, threads: int
) -> int:
    """Run one phase with up to threads - 1 helpers; 0 when there is no memory for the join block."""
    programs = op.word(phase, at.PHASE_PROGRAMS)
    helpers = _smaller(threads, programs) - 1
    join = _take_block(process, at.PROCESS_JOIN_SLOTS, at.JOIN_BYTES)
    if join == 0:
        return 0
    body = join + at.MEMORY_HEADER_BYTES
    op.put(body, at.JOIN_NEXT, 0)
    op.put(body, at.JOIN_ARENAS_TAKEN, 0)
    op.put(body, at.JOIN_FUNCTION, op.word(phase, at.PHASE_FUNCTION))
    op.put(body, at.JOIN_PROGRAMS, programs)
    op.put(body, at.JOIN_BUFS, bufs)
    op.put(body, at.JOIN_ARENAS, arenas)
    op.put(body, at.JOIN_ARENA_BYTES, arena)
    op.put(body, at.JOIN_DONE, 0)
    op.atomic_swap(body, at.JOIN_REFS, helpers + 1)
    accepted = _schedule(process, frame, body, helpers)
    _run_programs(body)
    _await(process, body, programs)
    _drop(process, body, helpers - accepted + 1)
    return 1


@_helper
def _run_phases(
    process: int, frame: int, kernel: int, bufs: int, arenas: int, arena: int, threads: int
) -> None:
    """All phases in order. `arenas` holds `threads` areas of `arena` bytes."""
    phase = kernel + 8 * at.KERNEL_PHASES
    for _ in range(op.word(kernel, at.KERNEL_NUM_PHASES)):
        programs = op.word(phase, at.PHASE_PROGRAMS)
        large = op.word(phase, at.PHASE_WORK) >= op.word(process, at.PROCESS_SERIAL_WORK)
        done = 0
        if threads > 1 and programs > 1 and large:
            done = _run_parallel(process, frame, phase, bufs, arenas, arena, threads)
        if done == 0:
            for program in range(programs):
                op.call3(op.word(phase, at.PHASE_FUNCTION), bufs, arenas, program)
        phase += 8 * at.PHASE_WORDS


@_helper
def _num_threads(process: int, frame: int, kernel: int) -> int:
    """Threads worth using for this call: 1 unless some phase is large; at most the pool and the limit."""
    large = 0
    phase = kernel + 8 * at.KERNEL_PHASES
    for _ in range(op.word(kernel, at.KERNEL_NUM_PHASES)):
        if op.word(phase, at.PHASE_WORK) >= op.word(process, at.PROCESS_SERIAL_WORK):
            large = _larger(large, op.word(phase, at.PHASE_PROGRAMS))
        phase += 8 * at.PHASE_WORDS
    limit = op.word(process, at.PROCESS_THREADS)
    if limit <= 1 or large <= 1:
        return 1
    args = op.stack_words()
    op.put(args, 0, 32)
    op.put(args, 1, 0)
    op.put(args, at.ARGS_CONTEXT, op.word(frame, at.FRAME_CONTEXT))
    op.put(args, at.THREADS_OUT, args + 48)
    op.put(args, 6, 1)
    error = op.call1(op.word(op.word(frame, at.FRAME_API), at.API_NUM_THREADS), args)
    if error != 0:
        op.put(args, 0, 24)
        op.put(args, at.ARGS_CONTEXT, error)
        op.call1(op.word(op.word(frame, at.FRAME_API), at.API_ERROR_DESTROY), args)
        return 1
    return _larger(1, _smaller(_smaller(limit, large), op.word(args, 6)))


@_helper
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
            _ask_huge_pages(process, data, size)
        op.put(bufs, n + i, data)
    op.put(bufs, n + results, scratch)


@_helper
def _error(frame: int, message: int, code: int) -> int:
    """A new XLA_FFI_Error with a message of the process block."""
    args = op.stack_words()
    op.put(args, 0, 32)
    op.put(args, 1, 0)
    op.put(args, at.ERROR_MESSAGE, message)
    op.put(args, at.ERROR_CODE, code)
    return op.call1(op.word(op.word(frame, at.FRAME_API), at.API_ERROR_CREATE), args)


@_helper
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


@_helper
def _run(process: int, frame: int, kernel: int) -> int:
    """Run a kernel on the frame's buffers, in a block of memory that belongs to this call alone.

    One argument after the kernel's own is not for it: it tells XLA what the call costs.
    """
    nargs, nresults = op.word(kernel, at.KERNEL_NUM_ARGS), op.word(kernel, at.KERNEL_NUM_RESULTS)
    more = op.word(frame, at.FRAME_NUM_ARGS) - nargs
    if more < 0 or more > 1 or nresults != op.word(frame, at.FRAME_NUM_RESULTS):
        return _error(frame, op.word(process, at.PROCESS_MESSAGE_COUNTS), at.CODE_INVALID_ARGUMENT)
    threads = _num_threads(process, frame, kernel)
    pointers = _round_up((nargs + nresults + 1) * 8, 64)
    scratch = _round_up(op.word(kernel, at.KERNEL_SCRATCH), 128)
    arena = _round_up(op.word(kernel, at.KERNEL_ARENA), 128)
    block = _take_block(process, at.PROCESS_MEMORY_SLOTS, pointers + scratch + arena * threads)
    if block == 0:
        return _error(frame, op.word(process, at.PROCESS_MESSAGE_MEMORY), at.CODE_RESOURCE_EXHAUSTED)
    bufs = block + at.MEMORY_HEADER_BYTES
    _gather(process, frame, nargs, bufs, bufs + pointers)
    _run_phases(process, frame, kernel, bufs, bufs + pointers + scratch, arena, threads)
    _give_block(process, at.PROCESS_MEMORY_SLOTS, block)
    return 0


@_export
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


@_export
def set_process(address: int) -> None:
    """Called once from Python, before the handler is registered."""
    op.set_process_block(address)


@_export
def forget(kernel: int) -> None:
    """Deleter of the instance state: kernels live as long as the process."""
