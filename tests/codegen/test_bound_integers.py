"""Integers of kernel text that do not fit are found: one seeded in each kind of index expression."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from jstitch.codegen.bound_integers import ADDRESS, bound_integers
from jstitch.codegen.cpu import check_integers as cpu
from jstitch.codegen.cpu.emit import emit as cpu_emit
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.cuda.index_bits import index_bits, unproven
from jstitch.codegen.interval import Interval
from jstitch.codegen.kernel_source import KernelSource
from jstitch.codegen.launch_places import MOST_CTAS
from jstitch.ir.ops import KERNEL
from tests.codegen.cuda.defects import column_sums, softmax
from tests.codegen.cuda.stitched import PROFILES, stitch, stitch_for_cpu

FAR = 1 << 31
KNOWN = {"block()": Interval(0, 197), "thread()": Interval(0, 255), "a0": ADDRESS, "o0": ADDRESS}

# lines of text; a number with which they fit 32 bits; one with which they do not; the complaint
KINDS = {
    "a share of rows": ("lo = quotient((block() + 1) * N, 198)", 1000, 24_000_000, "4752000000"),
    "a row's offset": ("for r in range(0, N):\n    store_f32(o0, r * 64 + 1, x)", 1000, 1 << 26, "beyond 32"),
    "a team's row": ("q = block() * N + thread()", 256, 1 << 24, "beyond 32"),
    "a column's offset": ("store_f32(o0, thread() + N, x)", 5, FAR - 100, "beyond 32"),
    "a vector's part": ("for h in unroll(2):\n    v = read_f32x4(a0, h * N + 4)", 4, FAR - 1, "beyond 32"),
    "a difference": ("i = 0 - thread() - N", 5, FAR, "beyond 32"),
    "a negative number": ("i = -(thread() * N)", 5, 1 << 24, "beyond 32"),
    "a number": ("i = N", 5, FAR, None),
    "an element of memory": ("v = read_f32(a0, N)", 5, FAR, "beyond 32"),
    "an end of a loop": ("for r in range(0, N):\n    pass", 5, FAR, "beyond 32"),
    "a beginning of a loop": ("for r in range(N, 9):\n    pass", 5, FAR, "beyond 32"),
    "the step after a loop": ("for r in range(0, 2147483000, N):\n    pass", 600, 700, "after its last turn"),
    "a step": ("for r in range(0, 9, N):\n    pass", 1, 0, "step"),
    "a bound of a clamp": ("i = clamp_index(thread(), 0, N)", 5, FAR, "beyond 32"),
    "a position from data": ("i = clamp_index(int64(read_sN(a0, 0)) * 4, 0, 7)", 32, 64, "beyond 64"),
    "a moved position": ("i = clamp_index(int64(read_s32(a0, 0)) + N, 0, 7)", 5, (1 << 63) - 9, "beyond 64"),
    "bytes of the arena": ("shared_store_f32(N, thread(), x)", 512, FAR, "beyond 32"),
    "elements of the arena": ("shared_store_f32(0, thread() * N, x)", 4, 1 << 22, "in bytes"),
    "a dividend": ("i = quotient(block() - N, 4)", 0, 1, "divides"),
    "a divisor": ("i = remainder_pos(thread(), block() + N)", 1, 0, "divides"),
    "a large divisor": ("i = remainder_pos(thread(), N)", 1, FAR, "beyond 32"),
    "a test": ("if thread() < N:\n    pass", 5, FAR, "beyond 32"),
    "a choice": ("i = select(thread() < 4, N, block()) + 1", 5, FAR, "beyond 32"),
    "a tile's position": ("i = thread() * N + quotient(thread(), 32) * 2", 67, 1 << 24, "beyond 32"),
    "an index at 64 bits": ("i = int64(thread()) * N", 1 << 40, 1 << 60, "beyond 64"),
    "what grows": ("i = 0\nfor r in range(0, 9):\n    i = i + N", 0, 1, "from turn to turn"),
    "one arm": ("if thread() < 4:\n    i = N\nelse:\n    i = 1\nj = i * 2", 5, 1 << 30, "beyond 32"),
}


def complaints(lines: str, bits: int = 32) -> tuple[str, ...]:
    body = "\n".join(f"    {line}" for line in ["x = float32(0.0)", *lines.splitlines()])
    (function,) = ast.parse(f"def f(a0, o0):\n{body}").body
    assert isinstance(function, ast.FunctionDef)
    return bound_integers(function, KNOWN, bits)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seeded_overflow(kind: str) -> None:
    lines, small, large, complaint = KINDS[kind]
    used = lines if complaint else f"{lines}\nstore_f32(o0, i, x)"
    assert complaints(used.replace("N", str(small))) == ()
    found = complaints(used.replace("N", str(large)))
    assert any((complaint or "beyond") in text for text in found), found


UNKNOWN = ("thread() + x", "quotient(x, 4)", "clamp_index(x, 0, 4)", "thread() // 4", "nothing + 1")


@pytest.mark.parametrize("expression", UNKNOWN)
def test_what_it_cannot_bound_is_refused(expression: str) -> None:
    assert any("is unknown" in text for text in complaints(f"i = {expression}"))


PROVEN = {
    "a lane among others": "if block() < 5:\n    p = 0\nelse:\n    p = block() - 5\n    i = quotient(p, 4)",
    "lanes of one code": "lane = quotient(block(), 66)\np = remainder_pos(block(), 66)\ni = p * 32000000",
    "the last row of a share": "lo = block()\nhi = block() * 2\nfor q in range(lo, hi):\n"
    "    r = clamp_index(q + 9, lo, hi - 1)\n    i = quotient(r, 4)",
    "what cannot happen": "if thread() < 256:\n    pass\nelse:\n    i = thread() * 2147483647",
    "a loop that never turns": "for r in range(5, 5):\n    i = r * 2147483647",
    "the least datum": "v = iadd(read_s64(a0, 0), int64(-9223372036854775808))",
    "a long chain": "\n".join(
        [f"{'el' * (k > 0)}if block() < {k}:\n    i = quotient({k} - block(), 4)" for k in range(2000)]
    ),
    "a flag": "i = int64(thread() < 5) * 5",
}


@pytest.mark.parametrize("name", PROVEN)
def test_what_tests_and_loops_say_is_used(name: str) -> None:
    assert complaints(PROVEN[name]) == ()


# -- emitted kernels --------------------------------------------------------------------------------------

GRAPHS = {
    "rows in registers": softmax(3, 1001),
    "rows in the arena": softmax(2, 50_000),
    "rows of a thread": softmax(4000, 3),
    "partial results": column_sums(300, 96),
}
HUGE = {32: 1 << 40, 64: 1 << 63}
_NUMBERS_OF_THEIR_OWN = re.compile(r"registers_|shuffle_xor|u?int\d|float\d|barrier_team|.*x\d+$")


@cache
def cuda_texts(name: str) -> list[tuple[str, int, int]]:
    """(text of a function, grid, block) of every launch."""
    found = []
    for source in stitch(GRAPHS[name], PROFILES["many programs"]).sources:
        functions = {n.name: n for n in ast.parse(source.text).body if isinstance(n, ast.FunctionDef)}
        found += [(ast.unparse(functions[n.function]), n.grid, n.block) for n in source.launches]
    return found


@cache
def cpu_sources(name: str) -> list[KernelSource]:
    ops = (op for op in stitch_for_cpu(GRAPHS[name]).ops if op.name == KERNEL)
    return [cpu_emit(op.attrs["kernel"]).source for op in ops]


def seeded(text: str, huge: int, last_is_index: Callable[[str], bool]) -> Iterator[str]:
    """The text with one of the numbers of its index expressions made huge, each in turn."""
    tree = ast.parse(text)
    other: set[ast.AST] = set()
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)):
        if _NUMBERS_OF_THEIR_OWN.match(call.func.id) or not last_is_index(call.func.id):
            other |= {n for n in call.args[-1:] for n in ast.walk(n)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node not in other:
            small, node.value = node.value, huge
            yield ast.unparse(tree)
            node.value = small


@pytest.mark.parametrize("name", GRAPHS)
def test_every_number_of_a_cuda_kernel_matters(name: str) -> None:
    for text, grid, block in cuda_texts(name):
        assert unproven(text, grid, block, 32) == ()
        changed = list(seeded(text, HUGE[32], lambda _: True))
        assert len(changed) > 5
        missed = [t for t in changed if not unproven(t, grid, block, 32)]
        assert not missed, missed[0]


@pytest.mark.parametrize("name", GRAPHS)
def test_every_number_of_a_cpu_kernel_matters(name: str) -> None:
    for source in cpu_sources(name):
        assert cpu.check_integers(source) == ()
        functions = "\n".join(ast.unparse(n) for n in ast.parse(source.text).body)
        changed = list(seeded(functions, HUGE[64], lambda name: not re.match("load_|store_", name)))
        assert len(changed) > 5
        sources = (KernelSource("k", t, 0, 0, 0, 0, source.phases) for t in changed)
        missed = [s.text for s in sources if not cpu.check_integers(s)]
        assert not missed, missed[0]


def test_a_launch_has_as_many_ctas_as_the_hardware() -> None:
    text = "def phase0(o0):\n    store_f32(o0, block(), float32(0.0))"
    assert index_bits(text, MOST_CTAS, 256) == 32
    assert index_bits(text.replace("block()", "block() * 2"), MOST_CTAS, 256) == 64
    with pytest.raises(NoRoom, match="may not fit"):
        index_bits(text.replace("block()", f"block() * {1 << 40}"), MOST_CTAS, 256)
