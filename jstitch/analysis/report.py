"""What `jstitch.analyze` returns: two sides, XLA's program and the stitched one, and how they compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from jstitch.device_spec import DeviceSpec
from jstitch.inspection.shown import Printed, Shown
from jstitch.xla.launches import Launch, merged, seconds
from jstitch.xla.traffic import Traffic

_MEMORY = ("memory", "copy")


@dataclass(frozen=True)
class Side:
    """One compiled program. Loop bodies count as often as they run.

    kernels: every launch, in program order. unknown_loops: loops that turn an unknown number of times,
    counted as one. library_gemms: whether matrix products were left to cuBLAS. least: what would be moved if
    the memory-intensive launches of each computation were one (analysis/least.py). temporaries: bytes of
    memory besides arguments and results, by XLA's own count.
    `bytes_*` and `modelled_seconds` are of the memory-intensive launches: without a device XLA cannot choose
    the matrix products' kernels, so their time is not known. Both sides have the same products, but for those
    in kernels of ours: these count as memory-intensive. `all_bytes` is of all launches, products included.
    """

    kernels: tuple[Launch, ...]
    unknown_loops: tuple[str, ...] = ()
    library_gemms: bool = False
    least: Traffic = field(default_factory=Traffic)
    temporaries: int = 0

    @property
    def launches(self) -> int:
        """Kernels, copies, memsets, library calls and collectives."""
        return _count(self.kernels)

    @property
    def memory_launches(self) -> int:
        """Launches that only move and compute elements: kernels, copies, memsets."""
        return _count(self.memory)

    @property
    def gemm_launches(self) -> int:
        """Matrix products, convolutions and other library calls."""
        return self.launches - self.memory_launches - self.collective_launches

    @property
    def collective_launches(self) -> int:
        """What several devices do together: sums over them, exchanges."""
        return _count(self.collectives)

    @property
    def collective_bytes(self) -> int:
        """That one device hands to collectives."""
        return sum(kernel.traffic.read * kernel.times for kernel in self.collectives)

    @cached_property
    def collectives(self) -> tuple[Launch, ...]:
        return tuple(kernel for kernel in self.kernels if kernel.kind == "collective")

    @cached_property
    def memory(self) -> tuple[Launch, ...]:
        return tuple(kernel for kernel in self.kernels if kernel.kind in _MEMORY)

    @cached_property
    def traffic(self) -> Traffic:
        """Of the memory-intensive launches."""
        return sum((kernel.traffic * kernel.times for kernel in self.memory), Traffic())

    @property
    def bytes_read(self) -> int:
        return self.traffic.read

    @property
    def bytes_written(self) -> int:
        return self.traffic.written

    @property
    def bytes_moved(self) -> int:
        return self.traffic.total

    @property
    def all_bytes(self) -> int:
        """Of all launches, each operand of a matrix product once."""
        return sum((kernel.traffic.total * kernel.times for kernel in self.kernels), 0)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of the kernel that asks for most."""
        return max((kernel.shared_bytes for kernel in self.kernels), default=0)

    @property
    def modelled_seconds(self) -> float:
        """Of the memory-intensive launches: bytes over bandwidth plus the cost of launching, summed."""
        return seconds(self.memory)

    def table(self, title: str = "") -> Printed:
        """One row per kernel, the slowest first."""
        rows = sorted(merged(self.kernels), key=lambda k: -k.seconds * k.times)
        heads = ("kernel", "kind", "times", "MB read", "MB written", "shared", "us each")
        return _table(title, heads, (_row(kernel) for kernel in rows))


@dataclass(frozen=True, repr=False)
class Analysis(Shown):
    """XLA's program (`plain`) and the stitched one for the device `spec`. Prints as a table.

    name: the function's. reasons: why calls, or parts of them, stayed XLA's. devices: that the program is
    for; the sides are what one of them does. shardings: how each argument and result is divided.
    """

    name: str
    spec: DeviceSpec
    plain: Side
    stitched: Side
    reasons: tuple[str, ...] = ()
    devices: int = 1
    shardings: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """Modelled time of the plain program's memory-intensive launches over the stitched one's."""
        theirs, ours = self.plain.modelled_seconds, self.stitched.modelled_seconds
        return theirs / ours if ours else 1.0

    @property
    def title(self) -> str:
        where = f"each of {self.devices} {self.spec.title}" if self.devices > 1 else self.spec.title
        return f"{self.name} on {where}: {self.ratio:.2f}x (modelled)"

    def __rich__(self) -> Printed:
        heads = ("", "XLA", "stitched", "stitched / XLA")
        lines = (line for line in _LINES if self.devices > 1 or "collective" not in line[1])
        return _table(self.title, heads, (self._row(*line) for line in lines))

    def _row(self, label: str, field: str, scale: float, digits: int) -> tuple[str, ...]:
        plain, stitched = (float(getattr(side, field)) for side in (self.plain, self.stitched))
        share = f"{stitched / plain:.2f}" if plain else "-"
        return (label, f"{plain / scale:,.{digits}f}", f"{stitched / scale:,.{digits}f}", share)

    def notes(self) -> Iterator[str]:
        """How it is divided, what stayed XLA's, and loops that are not known."""
        if self.shardings:
            yield f"divided: {', '.join(self.shardings)}"
        yield from (f"not stitched: {reason}" for reason in self.reasons)
        yield from (f"loop {name}: trip count unknown, counted once" for name in self.plain.unknown_loops)


_LINES = (
    ("launches", "launches", 1.0, 0),
    ("  memory-intensive", "memory_launches", 1.0, 0),
    ("  matrix products and libraries", "gemm_launches", 1.0, 0),
    ("  collectives", "collective_launches", 1.0, 0),
    ("MB that collectives take", "collective_bytes", 1e6, 2),
    ("MB read", "bytes_read", 1e6, 2),
    ("MB written", "bytes_written", 1e6, 2),
    ("MB moved, products included", "all_bytes", 1e6, 2),
    ("MB of temporary memory", "temporaries", 1e6, 2),
    ("largest shared memory, bytes", "shared_bytes", 1.0, 0),
    ("modelled time, us", "modelled_seconds", 1e-6, 1),
)


def _count(kernels: Iterable[Launch]) -> int:
    return sum(kernel.times for kernel in kernels)


def _row(kernel: Launch) -> tuple[str, ...]:
    return (
        kernel.entry or kernel.name,
        kernel.kind,
        str(kernel.times),
        f"{kernel.traffic.read / 1e6:,.2f}",
        f"{kernel.traffic.written / 1e6:,.2f}",
        str(kernel.shared_bytes),
        f"{kernel.seconds * 1e6:,.1f}",
    )


def _table(title: str, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Printed:
    from jstitch.inspection import table

    return table.build(title, heads, rows)
