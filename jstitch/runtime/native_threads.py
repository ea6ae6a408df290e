"""Threads of the native handler's calls: those of XLA's own pool, and the caller where it stays.

Every thread of a call does the same: it takes programs of phase after phase from the phase's counter. Nobody
ever waits for a task that has not begun: whoever is there takes all programs, and a late task finds the
counters used up.

XLA calls from one of Python's threads, from its pool, or from a thread of its client's. The last is there
to wait: what it runs leaves the threads of the pool without a core, as they spin while they look for work,
and what comes after a call stays there, too. So large calls leave all threads but Python's at once, as the
products of XLA do: the pool runs them and goes on from there, and a future tells XLA when they are done.
"""

from __future__ import annotations

from jstitch.runtime import ffi_layout as at
from jstitch.runtime import native_ops as op
from jstitch.runtime.native_awake import note_awake
from jstitch.runtime.native_function import export, helper, larger, smaller
from jstitch.runtime.native_memory import give_block, take_block


@helper
def _await(process: int, join: int, index: int, value: int) -> None:
    """Wait for what other threads are still running: spin a little, then yield."""
    spins = 0
    while op.atomic_word(join, index) < value:
        op.pause()
        spins += 1
        if spins > 1000 and op.word(process, at.PROCESS_YIELD) != 0:
            op.call0(op.word(process, at.PROCESS_YIELD))


@helper
def _most_programs(kernel: int, first: int) -> int:
    """Of any phase from this one on."""
    most = 0
    for i in range(first, op.word(kernel, at.KERNEL_NUM_PHASES)):
        phase = kernel + 8 * (at.KERNEL_PHASES + i * at.PHASE_WORDS)
        most = larger(most, op.word(phase, at.PHASE_PROGRAMS))
    return most


@helper
def forget_error(frame: int, error: int) -> None:
    """An XLA_FFI_Error that is ours."""
    args = op.stack_words()
    op.put(args, 0, 24)
    op.put(args, 1, 0)
    op.put(args, at.ARGS_CONTEXT, error)
    op.call1(op.word(op.word(frame, at.FRAME_API), at.API_ERROR_DESTROY), args)


@helper
def _set_available(api: int, future: int) -> None:
    """XLA goes on, on this thread, with what waited for the call."""
    args = op.stack_words()
    op.put(args, 0, 24)
    op.put(args, 1, 0)
    op.put(args, at.FUTURE, future)
    op.call1(op.word(api, at.API_FUTURE_SET_AVAILABLE), args)


@helper
def _finish(process: int, join: int) -> None:
    """All programs ran: the call's memory goes back, and who waits may go on."""
    note_awake(process)
    future, api = op.word(join, at.JOIN_FUTURE), op.word(join, at.JOIN_API)
    give_block(process, at.PROCESS_MEMORY_SLOTS, op.word(join, at.JOIN_BUFS) - at.MEMORY_HEADER_BYTES)
    op.atomic_add(join, at.JOIN_FINISHED, 1)
    if future != 0:
        _set_available(api, future)


@helper
def _work(process: int, join: int) -> None:
    """What one of a call's threads does: programs of phase after phase, as long as there are enough of them.

    The first one to come stays to the end.
    """
    kernel = op.word(join, at.JOIN_KERNEL)
    mine = op.atomic_add(join, at.JOIN_ARRIVED, 1)
    arena = op.word(join, at.JOIN_ARENAS) + mine * op.word(join, at.JOIN_ARENA_BYTES)
    for i in range(op.word(kernel, at.KERNEL_NUM_PHASES)):
        if mine >= _most_programs(kernel, i):
            return
        phase = kernel + 8 * (at.KERNEL_PHASES + i * at.PHASE_WORDS)
        count = join + 8 * (at.JOIN_PHASES + i * at.JOIN_PHASE_WORDS)
        programs = op.word(phase, at.PHASE_PROGRAMS)
        program = op.atomic_add(count, at.JOIN_NEXT, 1)
        while program < programs:
            op.call3(op.word(phase, at.PHASE_FUNCTION), op.word(join, at.JOIN_BUFS), arena, program)
            op.atomic_add(count, at.JOIN_DONE, 1)
            program = op.atomic_add(count, at.JOIN_NEXT, 1)
        _await(process, count, at.JOIN_DONE, programs)
    if mine == 0:
        _finish(process, join)


@helper
def _drop(process: int, join: int, count: int) -> None:
    if op.atomic_add(join, at.JOIN_REFS, -count) == count:
        give_block(process, at.PROCESS_JOIN_SLOTS, join - at.MEMORY_HEADER_BYTES)


@helper
def _is_of_pool(process: int, thread: int) -> int:
    """Whether a thread has run a task."""
    known = smaller(op.atomic_word(process, at.PROCESS_NUM_POOL), at.MOST_POOL)
    for i in range(known):
        if op.word(process, at.PROCESS_POOL + i) == thread:
            return 1
    return 0


@helper
def _note_thread(process: int) -> None:
    """This thread is one of XLA's pool."""
    if op.word(process, at.PROCESS_THREAD) != 0:
        thread = op.ask0(op.word(process, at.PROCESS_THREAD))
        if _is_of_pool(process, thread) == 0:
            place = op.atomic_add(process, at.PROCESS_NUM_POOL, 1)
            if place < at.MOST_POOL:
                op.put(process, at.PROCESS_POOL + place, thread)


@export
def task(join: int) -> None:
    """One thread of a call, of XLA's pool, perhaps long after the call ended."""
    process = op.process_block()
    _note_thread(process)
    _work(process, join)
    _drop(process, join, 1)


@helper
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
            forget_error(frame, error)
            return i
    return helpers


@helper
def _leaves(process: int, kernel: int) -> int:
    """Whether a large call leaves this thread: where it may, the thread is not Python's or the pool's, and no
    profile is being taken.
    """
    if op.word(kernel, at.KERNEL_LEAVES) == 0:
        return 0
    if op.word(process, at.PROCESS_IN_PLACE) != 0 or op.word(process, at.PROCESS_TRACED) != 0:
        return 0
    python, this = op.word(process, at.PROCESS_PYTHON_THREAD), op.word(process, at.PROCESS_THREAD)
    if python == 0 or this == 0 or op.ask0(python) != 0:
        return 0
    return 1 - _is_of_pool(process, op.ask0(this))


@helper
def _new_future(frame: int) -> int:
    """What will tell XLA that the call is done; 0 where there is none, and the call has to stay."""
    args = op.stack_words()
    op.put(args, 0, 24)
    op.put(args, 1, 0)
    op.put(args, at.FUTURE, 0)
    error = op.call1(op.word(op.word(frame, at.FRAME_API), at.API_FUTURE_CREATE), args)
    if error != 0:
        forget_error(frame, error)
        return 0
    op.put(frame, at.FRAME_FUTURE, op.word(args, at.FUTURE))
    return op.word(args, at.FUTURE)


@helper
def _new_join(process: int, frame: int, kernel: int, bufs: int, arenas: int, arena: int) -> int:
    """What the threads of a call share; 0 where there is no memory for it."""
    words = at.JOIN_PHASES + op.word(kernel, at.KERNEL_NUM_PHASES) * at.JOIN_PHASE_WORDS
    block = take_block(process, at.PROCESS_JOIN_SLOTS, larger(8 * words, at.JOIN_BYTES))
    if block == 0:
        return 0
    join = block + at.MEMORY_HEADER_BYTES
    for i in range(words):
        op.put(join, i, 0)
    op.put(join, at.JOIN_KERNEL, kernel)
    op.put(join, at.JOIN_BUFS, bufs)
    op.put(join, at.JOIN_ARENAS, arenas)
    op.put(join, at.JOIN_ARENA_BYTES, arena)
    op.put(join, at.JOIN_API, op.word(frame, at.FRAME_API))
    return join


@helper
def run_parallel(
    process: int, frame: int, kernel: int, bufs: int, arenas: int, arena: int, threads: int
) -> int:
    """Run a large call, and give back its block of memory, behind whose header `bufs` is.

    0, and nothing done, where only this thread is to run it. `arenas`: `threads` areas of `arena` bytes.
    """
    leaves = _leaves(process, kernel)
    future = 0
    if leaves == 0 and threads == 1:
        return 0
    join = _new_join(process, frame, kernel, bufs, arenas, arena)
    if join == 0:
        return 0
    if leaves != 0:
        future = _new_future(frame)
        op.atomic_add(process, at.PROCESS_LEFT, 1)
    op.put(join, at.JOIN_FUTURE, future)
    tasks = threads
    if future == 0:
        tasks = threads - 1
    op.atomic_swap(join, at.JOIN_REFS, tasks + 1)
    accepted = _schedule(process, frame, join, tasks)
    if future == 0 or accepted == 0:
        _work(process, join)
        _await(process, join, at.JOIN_FINISHED, 1)
    _drop(process, join, tasks - accepted + 1)
    return 1
