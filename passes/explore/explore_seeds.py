"""Patterns grown from seeds by producers and consumers (FS-2019 section 4.2.2, Algorithm 2).

    seed {reduce}:   + its producer {exp, reduce}   + its consumer {exp, reduce, divide}   ...

Every pattern is convex: an op joins only if no path leads out of the pattern and back in through another op.
With room enough the search finds every connected convex pattern that holds a seed; it is bounded by a number
of patterns for each seed and for the frame, largest traffic first, so its time is linear in the frame.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from jstitch.ir.types import TensorType
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.explore.op_graph import Members, OpGraph
from jstitch.passes.lower.propagate_schedule import op_class

SEARCH = 400  # nodes looked at for a path before an op is refused


@dataclass(frozen=True)
class SeedOptions:
    """What bounds the search.

    operands: a seed has at most so many. nbytes: and a tensor of at least so many bytes. patterns: found for
    each seed. share: patterns of the whole frame for each of its nodes. branch: producers and consumers
    tried at each pattern. max_ops: in one pattern.
    """

    operands: int = 10
    nbytes: int = 1 << 12
    patterns: int = 4
    share: float = 0.5
    branch: int = 4
    max_ops: int = 200


EVERYTHING = SeedOptions(1 << 30, 0, 1 << 30, 1e9, 1 << 30, 1 << 30)
DEFAULT = SeedOptions()


def explore_seeds(graph: OpGraph, options: SeedOptions = DEFAULT) -> list[Members]:
    """Convex patterns of two nodes or more, without repetition, in the order in which they were found."""
    return _Search(graph, options).run()


@dataclass(eq=False)
class _Search:
    graph: OpGraph
    options: SeedOptions
    found: dict[frozenset[int], None] = field(default_factory=dict)

    def run(self) -> list[Members]:
        self.nbytes = [self._nbytes(members) for members in self.graph.members]
        most = int(self.options.share * len(self.nbytes)) + self.options.patterns
        for seed in self._seeds():
            if len(self.found) >= most:
                break
            self._explore(seed, min(most, len(self.found) + self.options.patterns))
        return [self.graph.places(nodes) for nodes in self.found]

    def _nbytes(self, members: Members) -> int:
        """Of the largest result of the node: what stays on chip when a consumer joins it."""
        ops = self.graph.ops(members)
        tensors = (v.type for op in ops for v in op.results if isinstance(v.type, TensorType))
        return max((t.nbytes for t in tensors), default=0)

    def _seeds(self) -> list[int]:
        """Nodes with large elementwise ops or reductions, the largest first."""
        nodes = [n for n, fusible in enumerate(self.graph.fusible) if fusible and self._is_seed(n)]
        return sorted(nodes, key=lambda n: -self._traffic(n))

    def _is_seed(self, n: int) -> bool:
        ops = self.graph.ops(self.graph.members[n])
        kind = any(op_class(op).is_elementwise or is_reduction(op) for op in ops)
        return (
            kind
            and len(self.graph.before[n]) <= self.options.operands
            and (self._traffic(n) >= self.options.nbytes)
        )

    def _traffic(self, n: int) -> int:
        ops = self.graph.ops(self.graph.members[n])
        return max(v.tensor.nbytes for op in ops for v in (*op.results, *op.operands))

    def _explore(self, seed: int, most: int) -> None:
        """Algorithm 2, its recursion on a stack: a pattern, then all that grow from it, depth first."""
        start = frozenset((seed,))
        stack = [(start, self._expansions(start))]
        while stack and len(self.found) < most:
            pattern, expansions = stack[-1]
            fusion = next((f for n in expansions if (f := pattern | {n}) not in self.found), None)
            if fusion is None:
                stack.pop()
                continue
            self.found[fusion] = None
            stack.append((fusion, self._expansions(fusion)))

    def _expansions(self, pattern: frozenset[int]) -> Iterator[int]:
        """Producers and consumers that may join, those that save most traffic first."""
        size = sum(len(self.graph.members[n]) for n in pattern)
        shared: dict[int, int] = {}
        for n in sorted(pattern):
            for m in self.graph.before[n]:
                shared[m] = shared.get(m, 0) + self.nbytes[m]
            for m in self.graph.after[n]:
                shared[m] = shared.get(m, 0) + self.nbytes[n]
        order = sorted((m for m in shared if m not in pattern), key=lambda m: (-shared[m], m))
        fits = (m for m in order if size + len(self.graph.members[m]) <= self.options.max_ops)
        legal = (m for m in fits if self.graph.fusible[m] and self._stays_convex(pattern, m))
        return (m for _, m in zip(range(self.options.branch), legal, strict=False))

    def _stays_convex(self, pattern: frozenset[int], n: int) -> bool:
        """Whether no path between n and the pattern leads through a third node."""
        return not (self._leads(pattern, (n,)) or self._leads((n,), pattern))

    def _leads(self, sources: Collection[int], targets: Collection[int]) -> bool:
        """Whether a path leads out of the sources and, through other nodes, into the targets."""
        depth, inside = self.graph.depth, {*sources, *targets}
        deepest = max(depth[t] for t in targets)
        todo = [m for s in sources for m in self.graph.after[s] if m not in inside and depth[m] < deepest]
        seen = set(todo)
        while todo:
            for m in self.graph.after[todo.pop()]:
                if m in targets or len(seen) > SEARCH:
                    return True
                if m not in seen and depth[m] < deepest:
                    seen.add(m)
                    todo.append(m)
        return False
