"""What was decided of a call, kept on disk: the next process that compiles the same call plans nothing.

    (graph, options, target, versions)  ->  key  ->  the graph with kernels, as it was stitched then

All that a decision depends on is in the key; where it cannot be (clocks, saved plans), or XLA was not asked
in time, nothing is kept. Who looks at stages (dumps, `explain`, verification, debug logs) sees them run.

An entry refers to what the imported graph has (values, ops, constants, the user's lines, MLIR's handles) by
number: it takes no room for them, and lines are those of today. Entries are Python's pickles, in the folder
of the kernels' machine code and read under the same guards (trusted.py): who can write there can run code in
any case. No names are looked up but jstitch's, NumPy's and ml_dtypes'.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import pickle
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jstitch.codegen.backend import Backend
from jstitch.frontend.dump import Dump
from jstitch.frontend.source import Source
from jstitch.frontend.target import NO_TF32
from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops import KERNEL
from jstitch.ir.ops.build import is_splat
from jstitch.passes.base.context import Context
from jstitch.passes.base.op_keys import graph_text, places_text, user_lines
from jstitch.runtime.cache import KernelCache, Label, kernel_store
from jstitch.runtime.report import note, noted
from jstitch.runtime.telemetry import logger
from jstitch.runtime.versions import planned_with

LABEL = "decisions"
LARGEST = 1 << 24  # bytes of an entry: what only large new constants could make
UNASKED = "unasked"  # noted where XLA was not asked in time
_LOG = logger("cache")
_OWN = ("jstitch", "numpy", "ml_dtypes")
_PLAIN = {("builtins", name) for name in ("frozenset", "range", "set", "slice")}


@dataclass(frozen=True)
class KeptCall:
    """Where the decisions of one call are, or will be."""

    graph: Graph
    name: str
    key: str
    store: KernelCache
    backend: Backend
    cache_dir: str | None

    def load(self) -> Graph | None:
        """The stitched graph, its kernels in memory and its notes in the open record; None without an entry.

        One that cannot be used is as good as none.
        """
        data = self.store.get(self.key)
        if data is None:
            return None
        try:
            stitched, notes = _Reader(zlib.decompress(data), self.graph).load()
            waits = [
                self.backend.resume(call, self.cache_dir)
                for op in stitched.walk()
                if op.name == KERNEL
                for call in op.attrs["calls"]
            ]
            for wait in waits:
                wait()
        except Exception as error:
            _LOG.info("%s: what was kept cannot be used: %s: %s", self.name, type(error).__name__, error)
            return None
        _LOG.debug("%s: decided before, %d bytes", self.name, len(data))
        note(**notes)
        return stitched  # type: ignore[no-any-return]

    def keep(self, stitched: Graph, before: Mapping[str, Any]) -> None:
        """before: what the open record had when planning began."""
        notes = {name: value for name, value in noted().items() if before.get(name) is not value}
        if UNASKED in notes:
            return
        file = io.BytesIO()
        try:
            _Writer(file, self.graph).dump((stitched, notes))
        except (pickle.PicklingError, AttributeError, RecursionError, TypeError) as error:
            _LOG.info("%s: decisions are not kept: %s", self.name, error)
            return
        if len(file.getvalue()) <= LARGEST:
            self.store.put(self.key, zlib.compress(file.getvalue(), 1), Label(LABEL, planned_with()))


def kept_call(
    graph: Graph,
    context: Context,
    name: str,
    dump: Dump,
    backend: Backend,
    deciding: Callable[[], str],
    taken: Collection[str],
) -> KeptCall | None:
    """None where decisions depend on more than a key says, or where somebody looks at how they are made.

    deciding: gives `deciding_key`. taken: names of the program's other kernels.
    """
    options = context.options
    depends = options.tune == "measure" or options.plan is not None or options.template is not None
    watched = dump.is_looked_at or logger("fusion").isEnabledFor(logging.DEBUG)
    if depends or watched or not options.keep_plans:
        return None
    key = _hash(
        deciding(), options, name, sorted(taken), places_text(graph), sorted(context.lost.keys), context.bold
    )
    return KeptCall(graph, name, key, kernel_store(options.cache_dir), backend, options.cache_dir)


def deciding_key(
    graph: Graph,
    context: Context,
    backend: Backend,
    donated: Mapping[int, int | None],
    arguments: Collection[int] | None,
) -> str:
    """A hash of all that a call's kernels depend on, but for their names and the user's lines.

    Arguments as for `rewrite.rewrite_graph`.
    """
    return _hash(
        *(planned_with(), backend.environment(), *map(os.environ.get, ("XLA_FLAGS", NO_TF32))),
        *(context.options.deciding, replace(context.profile, reread_bytes=None)),
        *(sorted(donated.items()), arguments and sorted(arguments)),
        graph_text(graph),
        *(op.source.operation for op in graph.walk() if isinstance(op.source, Source)),
    )


def _hash(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


# -- entries -----------------------------------------------------------------------------------------------


class _Writer(pickle.Pickler):
    """With numbers for what the imported graph has; of a kernel what its calls need, not its loops."""

    def __init__(self, file: io.BytesIO, graph: Graph) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._numbers = {id(thing): n for n, thing in enumerate(_things(graph))}
        self._lines = {line: -1 - n for n, line in enumerate(user_lines(graph))}

    def persistent_id(self, thing: Any) -> int | None:
        return self._lines.get(thing) if type(thing) is str else self._numbers.get(id(thing))

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, np.ndarray) and thing.ndim and is_splat(thing):
            return np.broadcast_to, (np.asarray(thing[(0,) * thing.ndim]), thing.shape)
        if not isinstance(thing, Op) or thing.name != KERNEL or not thing.attrs["kernel"].phases:
            return NotImplemented
        kernel = replace(thing.attrs["kernel"], scratch=(), arena=(), phases=(), template=None)
        bare = replace(thing, attrs={**thing.attrs, "kernel": kernel, "text": ""})
        return bare.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


class _Reader(pickle.Unpickler):
    """With the imported graph's things for numbers."""

    def __init__(self, data: bytes, graph: Graph) -> None:
        super().__init__(io.BytesIO(data))
        self._things = list(_things(graph))
        self._lines = user_lines(graph)

    def persistent_load(self, number: int) -> Any:
        return self._things[number] if number >= 0 else self._lines[-1 - number]

    def find_class(self, module: str, name: str) -> Any:
        own = module.partition(".")[0] in _OWN and "." not in name
        if not own and (module, name) not in _PLAIN:
            raise pickle.UnpicklingError(f"expected a class of jstitch, found {module}.{name}")
        return super().find_class(module, name)


def _things(graph: Graph) -> Iterator[Any]:
    """All that a stitched graph may share with the imported one, always in the same order."""
    yield graph
    yield from graph.inputs
    for op in graph.ops:
        yield op
        yield from op.results
        if op.source is not None:
            yield op.source
        yield from (value for value in op.attrs.values() if isinstance(value, np.ndarray))
        for region in op.regions:
            yield from _things(region)
