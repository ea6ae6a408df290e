"""Complex numbers are computed with in kernels, as their real and imaginary parts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import InPairs
from jstitch.ir.graph import Graph, Op
from jstitch.ir.interpret import interpret
from jstitch.ir.ops.part_writer import is_complex
from jstitch.ir.verify import check
from jstitch.passes.base.plan import make_pattern
from jstitch.passes.base.profile import CPU as CPU_PROFILE
from jstitch.passes.graph.split_complex import split_complex
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.runtime.report import last_report, record_count
from tests.ir.running import run_with_xla
from tests.passes.product_graphs import graph_of

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
SPECIAL = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan, 1e30, 1e-30], np.float32)
BESIDE_COMPLEX = ("stablehlo.real", "stablehlo.imag", "stablehlo.complex")
Function = Callable[..., Any]

BINARY: dict[str, Function] = {
    "add": jnp.add,
    "subtract": jnp.subtract,
    "multiply": jnp.multiply,
    "divide": jnp.divide,
    "equal": lambda x, y: x == y,
    "differ": lambda x, y: x != y,
    "by_real": lambda x, y: x / y.real,
    "chosen": lambda x, y: jnp.where(x.real > 0, x, y),
}
UNARY: dict[str, Function] = {
    "negate": jnp.negative,
    "conj": jnp.conj,
    "abs": jnp.abs,
    "sign": jnp.sign,
    "exp": jnp.exp,
    "log": jnp.log,
    "square": jnp.square,
    "halved": lambda x: x / 2,
    "turned": lambda x: 1j * x.T,
    "parts": lambda x: (x.real + 1, x.imag),
    "made": lambda x: lax.complex(x.imag, x.real) + 1,
    "bools": lambda x: x.astype(bool),
    "isnan": jnp.isnan,
}


def rounded(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)


def special() -> np.ndarray:
    """All pairs of special numbers."""
    z = np.empty((len(SPECIAL), len(SPECIAL)), np.complex64)
    z.real, z.imag = SPECIAL[:, None], SPECIAL[None]
    return z.reshape(-1)


def left_complex(graph: Graph) -> list[Op]:
    """Ops that compute with complex numbers still."""
    ops = (op for op in graph.walk() if op.name not in BESIDE_COMPLEX)
    return [op for op in ops if any(map(is_complex, (*op.operands, *op.results)))]


def stitched(f: Function, *args: Any) -> tuple[Any, int]:
    """What it gives, and how many kernels it has."""
    before = record_count()
    found = jstitch.jit(f, options=OPTIONS)(*args)
    return found, sum(r.kernels for r in last_report(before))


def check_close(found: Any, wanted: Any, rtol: float = 2e-5) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        a, b = np.asarray(a), np.asarray(b)
        size = np.max(np.abs(b), initial=0.0, where=np.isfinite(b)) if b.dtype != bool else 1
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6 * float(size))


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_ops_are_kernels_and_give_the_same(name: str) -> None:
    f, count = (UNARY[name], 1) if name in UNARY else (BINARY[name], 2)
    args = [rounded(37, 21, seed=n) for n in range(count)]
    graph = graph_of(f, args)
    after = check(split_complex(graph))
    assert not left_complex(after)
    check_close(interpret(after, args), interpret(graph, args))
    found, kernels = stitched(f, *args)
    assert kernels == 1
    check_close(found, jax.jit(f)(*args))


@pytest.mark.parametrize(
    "name", ["conj", "abs", "sign", "exp", "log", "square", "divide", "by_real", "equal", "isnan"]
)
def test_special_numbers(name: str) -> None:
    """Infinities, zeros and NaN are where XLA has them."""
    z = special()
    if name in UNARY:
        f, args = UNARY[name], [z]
    else:
        f, args = BINARY[name], [np.repeat(z, z.size), np.tile(z, z.size)]
    wanted, found = np.asarray(jax.jit(f)(*args)), np.asarray(stitched(f, *args)[0])
    for part in ("real", "imag"):
        a, b = getattr(found, part), getattr(wanted, part)
        if a.dtype == bool:
            np.testing.assert_array_equal(a, b)
            continue
        same = (np.isnan(a) & np.isnan(b)) | (a == b) | (np.abs(a - b) <= 1e-5 * np.abs(b))
        same |= (np.abs(a) < 1e-37) & (np.abs(b) < 1e-37)  # XLA's kernels may take these for zero
        wrong = [(*(x[~same][:5] for x in args), a[~same][:5], b[~same][:5])]
        assert same.all(), wrong


def scanned(a: Any, x: Any) -> Any:
    def turn(h: Any, v: Any) -> Any:
        h = a * h + v
        return h, (h.real, h * 2)

    return lax.scan(turn, jnp.zeros(x.shape[1:], x.dtype), x)


def between_transforms(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda n, u: jnp.fft.ifft(jnp.fft.fft(u) * jnp.exp(1j * u.real)), x)


PROGRAMS: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "sum": (lambda x: jnp.sum(x, 1), (rounded(40, 30),)),
    "sum_all": (jnp.sum, (rounded(40, 30),)),
    "mean": (lambda x: x - x.mean(0), (rounded(40, 30),)),
    "product": (lambda x: jnp.prod(x, 1), (rounded(40, 9),)),
    "cumsum": (lambda x: jnp.cumsum(x, 1), (rounded(40, 30),)),
    "norm": (lambda x: x / jnp.sqrt(jnp.sum(jnp.abs(x) ** 2, 1, keepdims=True)), (rounded(33, 65),)),
    "softmax": (lambda x: jnp.exp(x) / jnp.sum(jnp.exp(x), 0), (rounded(33, 65),)),
    "scan": (scanned, (0.5 * rounded(20, seed=1), rounded(30, 8, 20))),
    "branches": (
        lambda x: lax.cond(x[0, 0].real > 0, lambda x: x * 2, lambda x: jnp.conj(x), x),
        (rounded(12, 10),),
    ),
    "transforms": (between_transforms, (rounded(8, 64),)),
    "spectrum": (lambda x: jnp.log1p(jnp.abs(jnp.fft.rfft(x * 2))), (rounded(8, 64).real,)),
    "pad": (lambda x: jnp.pad(x * 1j, ((1, 2), (0, 3))), (rounded(8, 9),)),
    "joined": (lambda x, y: jnp.concatenate([x * y, y[:, ::-1]], 1), (rounded(8, 9), rounded(8, 9, seed=1))),
    "gather": (lambda x, i: (x * 2)[i], (rounded(50, 9), np.arange(7, dtype=np.int32) * 3)),
    "set": (lambda x: (x * 2).at[1].set(x[0] * 1j).at[2, 3:5].add(1j), (rounded(8, 9),)),
    "scalar": (lambda x: x * 2 + 1j, (rounded(),)),
    "empty": (lambda x: x * 2 + 1j, (rounded(0, 4),)),
    "rows": (lambda x: jnp.exp(x) * x, (rounded(1, 5),)),
    "tail": (lambda x: jnp.sqrt(x * 2) + 1, (rounded(40, 30),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    f, args = PROGRAMS[name]
    graph = graph_of(f, args)
    after = check(split_complex(graph))
    assert [v.type for v in after.outputs] == [v.type for v in graph.outputs]
    check_close(run_with_xla(after, list(args)), run_with_xla(graph, list(args)))
    found, _ = stitched(f, *args)
    check_close(found, jax.jit(f)(*args))


@pytest.mark.parametrize("name", ["sum", "norm", "softmax", "scan", "joined", "gather"])
def test_gradients_and_vmap(name: str) -> None:
    f, args = PROGRAMS[name]

    def loss(x: Any, *rest: Any) -> Any:
        return sum(jnp.sum(jnp.abs(v - 0.3) ** 2) for v in jax.tree.leaves(f(x, *rest)))

    check_close(stitched(jax.grad(loss), *args)[0], jax.jit(jax.grad(loss))(*args), rtol=1e-4)
    many = [np.stack([x, x[::-1].copy()]) for x in args[:1]]
    mapped = jax.vmap(f, (0, *(None for _ in args[1:])))
    check_close(stitched(mapped, *many, *args[1:])[0], jax.jit(mapped)(*many, *args[1:]))


def test_double_precision() -> None:
    with jax.enable_x64(True):
        x = rounded(30, 40).astype(np.complex128)
        f = lambda x: jnp.exp(x) / (1 + jnp.sum(x, 1, keepdims=True))  # noqa: E731
        found, kernels = stitched(f, x)
        assert kernels == 1
        np.testing.assert_allclose(np.asarray(found), np.asarray(jax.jit(f)(x)), rtol=1e-13)


def test_half_precision_between() -> None:
    """Parts may come from narrow floats, and go to them."""
    x = jnp.asarray(rounded(30, 40).real, jnp.bfloat16)

    def f(x: Any) -> Any:
        z = lax.complex(x.astype(jnp.float32), 2 * x.astype(jnp.float32)) * 1j
        return z.real.astype(jnp.bfloat16), jnp.abs(z).astype(jnp.bfloat16)

    found, kernels = stitched(f, x)
    assert kernels == 1
    for a, b in zip(found, jax.jit(f)(x), strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))


def test_what_only_moves_stays() -> None:
    f = lambda x: jnp.fft.fft(jnp.fft.fft(x).T[::-1])  # noqa: E731
    graph = graph_of(f, [rounded(8, 9)])
    assert split_complex(graph) is graph
    graph = graph_of(lambda x: x * 2, [rounded(8, 9).real])
    assert split_complex(graph) is graph


def test_a_loop_carries_what_xla_made_as_it_is() -> None:
    """Not taken apart behind a transform only to be put together before the next one."""
    graph = check(split_complex(graph_of(between_transforms, [rounded(8, 64)])))
    (loop,) = (op for op in graph.ops if op.name == "stablehlo.while")
    assert any(map(is_complex, loop.results))
    graph = check(split_complex(graph_of(scanned, PROGRAMS["scan"][1])))
    (loop,) = (op for op in graph.ops if op.name == "stablehlo.while")
    assert not any(map(is_complex, loop.results))


def test_kernels_read_and_write_pairs() -> None:
    x = rounded(6, 35)
    graph = split_complex(graph_of(lambda x: jnp.conj(x) * 2 + jnp.sum(x, 1, keepdims=True), [x]))
    pattern = make_pattern(graph, graph.ops, "")
    kernel = lower_kernel("k", pattern.ops, pattern.inputs, pattern.outputs, CPU_PROFILE)
    assert isinstance(kernel.args[0], InPairs)
    assert isinstance(kernel.results[0], InPairs)
    check_kernel(kernel)
    check_close(interpret_kernel(kernel, [x]), interpret(graph, [x]))


def test_what_is_given_away_is_written_over() -> None:
    f = lambda x: jnp.exp(x) * 1j  # noqa: E731
    x = rounded(64, 50)
    wanted = np.asarray(jax.jit(f)(x))
    given = jnp.asarray(x)
    found = jstitch.jit(f, options=OPTIONS, donate_argnums=0)(given)
    assert given.is_deleted()
    check_close([found], [wanted])


def test_without_it_all_is_xlas() -> None:
    x = rounded(64, 50)
    options = OPTIONS.replace(without=("split_complex",))
    before = record_count()
    found = jstitch.jit(lambda x: jnp.exp(x) * 1j, options=options)(x)
    assert not sum(r.kernels for r in last_report(before))
    check_close([found], [jax.jit(lambda x: jnp.exp(x) * 1j)(x)])


def _step(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    """A random op on some of the values, complex or real."""
    x, y = (values[rng.integers(len(values))] for _ in range(2))
    ops: list[Function] = [
        *(jnp.add, jnp.subtract, jnp.multiply, lambda x, y: x / (2 + jnp.abs(y))),
        *(lambda x, y: jnp.conj(x) * y, lambda x, y: jnp.where(jnp.abs(x) > 1, x, y)),
        *(lambda x, y: jnp.exp(x / (1 + jnp.abs(x))), lambda x, y: lax.complex(x.real, y.real)),
        *(lambda x, y: x.imag, lambda x, y: x - x.mean(1, keepdims=True)),
        *(lambda x, y: jnp.cumsum(x, 0) / 8, lambda x, y: jnp.flip(x, 1) + y),
        *(lambda x, y: jnp.concatenate([x[:, 3:], y[:, :3]], 1), lambda x, y: jnp.roll(x, 2, 0) * y),
        lambda x, y: jnp.tanh(x / (2 + jnp.abs(x))),
    ]
    return ops[rng.integers(len(ops))](x, y)


@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(n, marks=pytest.mark.slow) for n in range(10, 300))]
)
def test_drawn_programs(seed: int) -> None:
    shape = [(5, 7), (33, 16), (64, 65), (200, 12)][seed % 4]

    def f(x: Any, y: Any) -> Any:
        rng = np.random.default_rng(seed)
        values = [x, y]
        for _ in range(rng.integers(4, 12)):
            values.append(_step(rng, values))
        return functools.reduce(lambda a, b: a + b, values[3:], values[2]), values[-1]

    args = rounded(*shape, seed=seed), rounded(*shape, seed=seed + 1).real.copy()
    check_close(stitched(f, *args)[0], jax.jit(f)(*args), rtol=2e-4)
