"""`jit` whose first calls run XLA's own version while the stitched one is compiled (FS-2021 section 6).

    call 1        traces, compiles and runs jax.jit(f);  then the worker plans and compiles the stitched f
    calls 2..n    jax.jit(f), until the worker is done
    from then on  jax.jit(stitch(f)): its executable is in JAX's cache, so that the swap costs nothing

New shapes start again with call 1. What goes wrong on the worker is recorded and never reaches the caller:
XLA's version stays.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from jstitch import _jax
from jstitch.frontend.background import WORKER, Worker
from jstitch.frontend.call import call_of
from jstitch.options import CompileOptions
from jstitch.runtime.report import note, recording

_STATIC = ("static_argnums", "static_argnames")


class _NewSignatureError(Exception):
    """Raised in place of a trace: nothing has been compiled for these arguments."""


class SwappingJit:
    """A `jax.jit` object of the stitched function, and one of the plain function until that is compiled.

    settings: of `jax.jit`. Everything but calls (`.trace`, `.lower`, `.eval_shape`, ...) is that of
    `stitched`, a `jax.jit` object, at once.
    """

    def __init__(
        self, function: Callable[..., Any], options: CompileOptions, worker: Worker = WORKER, **settings: Any
    ) -> None:
        named = functools.wraps(function, updated=())
        named(self)  # with `__wrapped__`, which is the user's
        # Both call it, and so share its trace.
        self._function: Any = jax.jit(function, **{key: settings[key] for key in _STATIC if key in settings})
        self._call = call_of(self._function, options)
        self._worker = worker
        self._allowed = threading.local()
        self.stitched: Any = jax.jit(named(_own(self._guarded)), **{**settings, "inline": _jax.INLINE_EARLY})
        self._plain: Any = jax.jit(named(_own(self._function)), **settings)
        self._lock = threading.Lock()
        self._pending = 0
        self._failed = False
        self._idle = threading.Event()
        self._idle.set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _jax.is_tracing() or _jax.disabled_jit():
            with self._tracing():
                return self.stitched(*args, **kwargs)
        if self._pending or self._failed:
            return self._plain(*args, **kwargs)
        try:
            return self.stitched(*args, **kwargs)
        except _NewSignatureError:
            pass  # not here: what the calls below raise is not its consequence
        return self._first(args, kwargs)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is being compiled in the background; False after `timeout` seconds."""
        return self._idle.wait(timeout)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        with self._tracing():
            return self.stitched.trace(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        with self._tracing():
            return self.stitched.lower(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        with self._tracing():
            return self.stitched.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forget compiled programs and traces; the next call is a first call again."""
        self.wait()
        self._failed = False
        for jitted in (self.stitched, self._plain):
            jitted.clear_cache()
        self._function.clear_cache()

    def _guarded(self, *args: Any, **kwargs: Any) -> Any:
        """What JAX calls to trace the stitched function: for arguments that it has not seen."""
        if not getattr(self._allowed, "depth", 0):
            raise _NewSignatureError
        return self._call(*args, **kwargs)

    @contextmanager
    def _tracing(self) -> Iterator[None]:
        """This thread may trace the stitched function inside the block."""
        self._allowed.depth = getattr(self._allowed, "depth", 0) + 1
        try:
            yield
        finally:
            self._allowed.depth -= 1

    def _first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace here, where the user's contexts are; run XLA's version; then let the worker compile."""
        shapes, named = jax.tree.map(_shape, (args, kwargs))
        with self._tracing():
            traced = self.stitched.trace(*shapes, **named)
        result = self._plain(*args, **kwargs)
        with self._lock:
            self._pending += 1
            self._idle.clear()
        if not self._worker.submit(functools.partial(self._compile, traced)):
            self._done()
        return result

    def _compile(self, traced: Any) -> None:
        start = time.perf_counter()
        try:
            with self._tracing():
                traced.lower().compile()
            _jax.dispatch_anew(self.stitched)  # its first call raised
        except Exception as error:
            self._failed = True
            with recording(getattr(self, "__name__", "jit")):
                note(reason=f"the background compilation failed: {type(error).__name__}: {error}")
        else:
            with recording(getattr(self, "__name__", "jit")):
                note(background_seconds=time.perf_counter() - start)
        finally:
            self._done()

    def _done(self) -> None:
        with self._lock:
            self._pending -= 1
            if not self._pending:
                self._idle.set()


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own: JAX's caches know functions by identity."""
    return lambda *args, **kwargs: function(*args, **kwargs)


def _shape(leaf: Any) -> Any:
    """What JAX needs to know of an array to compile for it; not the array, which may be donated."""
    if not isinstance(leaf, jax.Array):
        return leaf
    aval: Any = jax.typeof(leaf)
    sharding = leaf.sharding if leaf.committed else None
    weak = bool(getattr(aval, "weak_type", False))
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak)  # type: ignore[no-untyped-call]
