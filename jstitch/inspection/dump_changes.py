"""What changed between two stages of a dump: lines that differ, and which ops came, went and changed.

Passes renumber values, so lines are compared without the values' names; then names are matched by their
definitions, and a line whose operands are other values after all has changed.

- %3 = stablehlo.add %1, %2 : tensor<8xf32>         one op changed: its second operand
+ %2 = stablehlo.add %0, %0 : tensor<8xf32>
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_NAME = re.compile(r"%[A-Za-z]*\d+")
_OP = re.compile(r'^\s*(?:%[^=]* = )?"?([a-z_]+\.[a-z_][\w.]*)"?(?=[ (])')
CONTEXT = 3  # lines around a difference
LONG = 4000  # lines of two texts above which common lines are no anchors: matching them all takes minutes
Opcode = tuple[str, int, int, int, int]


@dataclass(frozen=True)
class OpChanges:
    """Counts by op name. changed: of one name, but with other types, attributes or operands."""

    came: Counter[str]
    went: Counter[str]
    changed: Counter[str]

    @property
    def total(self) -> int:
        return self.came.total() + self.went.total() + self.changed.total()

    def __str__(self) -> str:
        """`+2 -5 ~1`, or `=`."""
        counts = (("+", self.came), ("-", self.went), ("~", self.changed))
        return " ".join(f"{sign}{c.total()}" for sign, c in counts if c) or "="


@dataclass(frozen=True)
class Changes:
    """Of two texts."""

    before: Sequence[str]
    after: Sequence[str]
    opcodes: Sequence[Opcode]

    @property
    def ops(self) -> OpChanges:
        """Ops on lines that differ. In one place, one that went and one that came are one that changed."""
        came, went, changed = Counter[str](), Counter[str](), Counter[str]()
        for tag, i, j, k, m in self.opcodes:
            if tag != "equal":
                old, new = _names(self.before[i:j]), _names(self.after[k:m])
                changed += old & new
                went += old - new
                came += new - old
        return OpChanges(came, went, changed)

    @property
    def is_empty(self) -> bool:
        return all(tag == "equal" for tag, *_ in self.opcodes)

    def unified(self, before: str, after: str) -> Iterator[str]:
        """Lines of a unified diff of texts with these names; none where nothing differs."""
        if self.is_empty:
            return
        yield from (f"--- {before}", f"+++ {after}")
        for group in _grouped(self.opcodes):
            (_, i, _, k, _), (_, _, j, _, m) = group[0], group[-1]
            yield f"@@ -{_range(i, j)} +{_range(k, m)} @@"
            for tag, start, end, first, last in group:
                if tag == "equal":
                    yield from (f" {line}" for line in self.after[first:last])
                    continue
                yield from (f"-{line}" for line in self.before[start:end])
                yield from (f"+{line}" for line in self.after[first:last])


def compare(before: str, after: str, exact: bool = False) -> Changes:
    """exact: values' names count."""
    old, new = before.splitlines(), after.splitlines()
    if old == new:
        return Changes(old, new, [("equal", 0, len(old), 0, len(new))])
    if exact:
        matcher = SequenceMatcher(None, old, new, autojunk=False)
        return Changes(old, new, matcher.get_opcodes())
    erased = [[_NAME.sub("%", line) for line in lines] for lines in (old, new)]
    matcher = SequenceMatcher(None, erased[0], erased[1], autojunk=len(old) + len(new) > LONG)
    return Changes(old, new, _split(matcher.get_opcodes(), _other_operands(matcher, old, new)))


def _other_operands(matcher: SequenceMatcher[str], old: Sequence[str], new: Sequence[str]) -> set[int]:
    """Lines of `old` that equal their partner but for which values they use."""
    pairs = [
        (i + n, old[i + n], new[k + n]) for i, k, size in matcher.get_matching_blocks() for n in range(size)
    ]
    known: dict[str, str] = {}
    for _, a, b in pairs:
        known.update(zip(_defined(a), _defined(b), strict=False))
    return {
        n
        for n, a, b in pairs
        if any(known.get(x, y) != y for x, y in zip(_NAME.findall(a), _NAME.findall(b), strict=False))
    }


def _defined(line: str) -> list[str]:
    """Values that a line names for the first time: results, or a region's arguments."""
    head, equals, _ = line.partition(" = ")
    if equals and "(" not in head:
        return _NAME.findall(head)
    return [name for name in re.findall(r"(%[A-Za-z]*\d+): ", line)]


def _split(opcodes: Sequence[Opcode], others: set[int]) -> list[Opcode]:
    """Single lines of equal blocks as replacements."""
    found: list[Opcode] = []
    for tag, i, j, k, m in opcodes:
        if tag != "equal":
            found.append((tag, i, j, k, m))
            continue
        start = i
        for n in (n for n in range(i, j) if n in others):
            if n > start:
                found.append(("equal", start, n, k + start - i, k + n - i))
            found.append(("replace", n, n + 1, k + n - i, k + n - i + 1))
            start = n + 1
        if start < j:
            found.append(("equal", start, j, k + start - i, m))
    return found


def _grouped(opcodes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """Hunks, by difflib's own rule."""
    matcher = SequenceMatcher(None, "", "")
    matcher.opcodes = list(opcodes)  # type: ignore[attr-defined]
    yield from matcher.get_grouped_opcodes(CONTEXT)


def _range(start: int, end: int) -> str:
    """As unified diffs count lines."""
    return str(start + 1) if end - start == 1 else f"{start + (end > start)},{end - start}"


def _names(lines: Sequence[str]) -> Counter[str]:
    return Counter(match[1] for line in lines if (match := _OP.match(line)) is not None)
