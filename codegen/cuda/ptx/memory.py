"""Fake memory: regions with base addresses, and checked loads and stores of all lanes at once.

Each global buffer has a window of 64 GiB of its own, so that a wrong index hits no other buffer.
Shared memory repeats for every CTA of a batch, local memory for every lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jstitch.codegen.cuda.ptx.error import Fault
from jstitch.codegen.cuda.ptx.flatten import LOCAL_BASE, SHARED_BASE, WINDOW
from jstitch.codegen.cuda.ptx.group import Group, Lanes
from jstitch.codegen.cuda.ptx.scalar import Array
from jstitch.codegen.cuda.ptx.shadow import Shadow

Bytes = NDArray[np.uint8]


@dataclass
class Region:
    """size: bytes that a lane may touch. data: one piece of `stride` bytes for each unit.

    unit_of: the unit of each lane of the batch, None when all have the same. counted: an argument.
    """

    name: str
    base: int
    size: int
    data: Bytes
    shadow: Shadow | None
    unit_of: Lanes | None = None
    stride: int = 0
    writable: bool = True
    counted: bool = False
    read_only_line: int = 0  # where ld.global.nc read it, or 0
    written_line: int = 0

    def typed(self, dtype: np.dtype[Any]) -> Array:
        """The bytes as an array of the type, the rest at the end left out."""
        return self.data[: len(self.data) // dtype.itemsize * dtype.itemsize].view(dtype)


@dataclass
class Tally:
    """Global traffic of the arguments so far."""

    read_bytes: int = 0
    written_bytes: int = 0
    accesses: int = 0
    vector_accesses: int = 0


@dataclass(frozen=True)
class Access:
    """What an instruction does: `count` elements of dtype at each lane's address. constant: ld.global.nc."""

    dtype: np.dtype[Any]
    count: int
    space: str
    verb: str
    constant: bool = False

    @property
    def size(self) -> int:
        """Bytes for one lane."""
        return self.dtype.itemsize * self.count


PIECE = Access(np.dtype(np.uint32), 4, "global", "prefetches")
"""Of what the L2 cache is asked for: 16 bytes, of which an address is a multiple."""


@dataclass(frozen=True)
class Copy:
    """What lanes copy to shared memory. groups: of each lane's, the one that the copy is in."""

    lanes: Lanes
    groups: Lanes
    to: Array
    words: list[Array]
    access: Access


@dataclass
class Copies:
    """Those under way in a batch. closed: groups that each lane has committed."""

    closed: Lanes
    under_way: list[Copy] = field(default_factory=list)


@dataclass
class Memory:
    """All regions of a launch: global ones by window. copies: what is under way to shared memory."""

    windows: dict[int, Region]
    shared: Region
    local: Region
    parameters: Region
    tally: Tally = field(default_factory=Tally)
    copies: Copies | None = None

    def load(self, group: Group, address: Array, access: Access) -> list[Array]:
        """The elements of every lane. Raises Fault."""
        parts = self._locate(group, group.spread(address), access)
        if len(parts) == 1:
            return _read(group, parts[0][0], parts[0][2], access)
        values = [np.empty(group.size, access.dtype) for _ in range(access.count)]
        for region, positions, offsets in parts:
            for value, part in zip(values, _part(group, positions, region, offsets, access), strict=True):
                value[positions] = part
        return values

    def store(self, group: Group, address: Array, values: Sequence[Array], access: Access) -> None:
        """Write every lane's elements. Raises Fault."""
        spread = [group.spread(value) for value in values]
        for region, positions, offsets in self._locate(group, group.spread(address), access):
            part = spread if positions is None else [value[positions] for value in spread]
            try:
                _write(group if positions is None else group.part(positions), region, offsets, part, access)
            except Fault as fault:
                raise _whole(fault, positions) from None

    def prefetch(self, group: Group, address: Array, nbytes: int) -> None:
        """Nothing, for bytes of one buffer. Raises Fault for others."""
        first = group.spread(address)
        for piece in (first, first + np.uint64(nbytes - PIECE.size)):
            self._locate(group, piece, PIECE)

    def _locate(self, group: Group, address: Array, access: Access) -> list[tuple[Region, Any, Lanes]]:
        """Regions with the positions of their lanes (None: all) and the offsets in their data."""
        keys = _keys(address, access.space)
        parts: list[tuple[Region, Any, Lanes]] = []
        if (keys == keys[0]).all():
            region = self._region(int(keys[0]), int(address[0]), access, 0)
            parts.append((region, None, self._offsets(group, region, address, access, None)))
        else:
            for key in np.unique(keys):
                positions = np.flatnonzero(keys == key)
                region = self._region(int(key), int(address[positions[0]]), access, int(positions[0]))
                offsets = self._offsets(group, region, address[positions], access, positions)
                parts.append((region, positions, offsets))
        for region, _, offsets in parts:
            self._count(region, len(offsets), access)
        return parts

    def _region(self, key: int, address: int, access: Access, position: int) -> Region:
        if key == -1:
            return self.shared
        if key == -2:
            return self.local
        if key == -3:
            return self.parameters
        if (region := self.windows.get(key)) is None:
            nearest = self.windows.get((address + (1 << WINDOW - 1)) >> WINDOW)
            raise _outside(nearest, address, access, position)
        return region

    def _offsets(self, group: Group, region: Region, address: Array, access: Access, positions: Any) -> Lanes:
        size, offsets = access.size, address - np.uint64(region.base)
        if size > region.size or int(offsets.max()) > region.size - size:
            first = int(np.argmax(offsets > max(region.size - size, -1)) if size <= region.size else 0)
            wrong = int(address[first])
            position = first if positions is None else int(positions[first])
            raise _outside(self._nearest(region, wrong), wrong, access, position)
        if int(np.bitwise_or.reduce(offsets)) & (size - 1):
            first = int(np.argmax(offsets & np.uint64(size - 1) != 0))
            position = first if positions is None else int(positions[first])
            place = f"{region.name} + {int(offsets[first])}"
            reason = f"misaligned: {access.verb} {size} bytes at {place}, no multiple of {size}"
            raise Fault(reason, position, int(address[first]), region.name)
        inside = offsets.astype(np.int64)
        if region.unit_of is None:
            return inside
        lanes = group.lanes if positions is None else group.lanes[positions]
        return inside + region.unit_of[lanes] * region.stride

    def _nearest(self, region: Region, address: int) -> Region:
        return self.windows.get((address + (1 << WINDOW - 1)) >> WINDOW, region)

    def _count(self, region: Region, lanes: int, access: Access) -> None:
        if region.counted and access is not PIECE:
            if access.verb == "reads":
                self.tally.read_bytes += lanes * access.size
            else:
                self.tally.written_bytes += lanes * access.size
            self.tally.accesses += lanes
            self.tally.vector_accesses += lanes * (access.size >= 16)


_SPACES = {"shared": -1, "local": -2, "param": -3}


def _keys(address: Array, space: str) -> NDArray[np.int64]:
    """The window of each address; -1 for shared, -2 for local memory, -3 for parameters."""
    if space in _SPACES:
        return np.full(1, _SPACES[space])
    window = (address >> np.uint64(WINDOW)).astype(np.int64)
    if space == "generic" and window.min() == 0:
        near = np.where(address >= LOCAL_BASE, -2, np.where(address >= SHARED_BASE, -1, 0))
        return np.where(window == 0, near, window)
    return window


def _outside(region: Region | None, address: int, access: Access, position: int) -> Fault:
    start = f"{access.verb} {access.size} bytes at "
    if region is None:
        return Fault(f"{start}{address:#x}, which is in no buffer", position, address)
    offset = address - region.base
    side = "before its start" if offset < 0 else f"past its end ({region.size} bytes)"
    place = f"{region.name} {'-' if offset < 0 else '+'} {abs(offset)}"
    return Fault(f"out of bounds: {start}{place}, {side}", position, address, region.name)


def _whole(fault: Fault, positions: Any) -> Fault:
    """A fault of some of the group's lanes, as one of the group."""
    position = fault.position if positions is None else int(positions[fault.position])
    return Fault(fault.reason, position, fault.address, fault.buffer)


def _part(group: Group, positions: Any, region: Region, offsets: Lanes, access: Access) -> list[Array]:
    try:
        return _read(group.part(positions), region, offsets, access)
    except Fault as fault:
        raise _whole(fault, positions) from None


def _named(fault: Fault, region: Region, offsets: Lanes) -> Fault:
    """The fault with its place in the region."""
    offset = int(offsets[fault.position]) % region.stride if region.stride else int(offsets[fault.position])
    reason = f"{fault.reason} ({region.name} + {offset})"
    return Fault(reason, fault.position, region.base + offset, region.name)


def _read(group: Group, region: Region, offsets: Lanes, access: Access) -> list[Array]:
    if access.constant and region.written_line:
        raise _named(Fault(f".nc reads what line {region.written_line} writes", 0), region, offsets)
    if access.constant:
        region.read_only_line = group.order.line
    if region.shadow is not None and (access.constant or not region.writable):
        region.shadow.mark_read(group, offsets, access.size)
    elif region.shadow is not None:
        try:
            region.shadow.check_read(group, offsets, access.size)
        except Fault as fault:
            raise _named(fault, region, offsets) from None
    data, first = region.typed(access.dtype), offsets // access.dtype.itemsize
    return [data[first + n] if n else data[first] for n in range(access.count)]


def _write(group: Group, region: Region, offsets: Lanes, values: Sequence[Array], access: Access) -> None:
    if not region.writable or region.read_only_line:
        why = f"line {region.read_only_line} reads by .nc" if region.writable else "is constant"
        raise _named(Fault(f"writes memory that {why}", 0), region, offsets)
    region.written_line = group.order.line
    shared_by_lanes = np.zeros(0, np.int64)
    if region.shadow is not None:
        try:
            shared_by_lanes = region.shadow.check_write(group, offsets, access.size)
        except Fault as fault:
            raise _named(fault, region, offsets) from None
    data, first = region.typed(access.dtype), offsets // access.dtype.itemsize
    for n, value in enumerate(values):
        data[first + n] = value
        differs = shared_by_lanes[_differ(data[first[shared_by_lanes] + n], value[shared_by_lanes])]
        if len(differs):
            race = Fault("race: lanes of one warp write different values at once", int(differs[0]))
            raise _named(race, region, offsets)


def _differ(a: Array, b: Array) -> NDArray[np.bool_]:
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return np.asarray(np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).view(bits))
