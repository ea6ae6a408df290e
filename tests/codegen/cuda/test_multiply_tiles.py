"""Chains of products by tensor cores: in the simulator, as PTX, and as ptxas assembles them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.cuda.ptx import PtxError
from jstitch.codegen.cuda.resources import assemble, find_tool
from jstitch.codegen.cuda.simulate_error import SimulationError
from jstitch.codegen.kernel_ir import Kernel
from jstitch.device_spec import find_spec
from jstitch.frontend.target import cuda_profile
from jstitch.passes.fuse.find_chains import CHAIN
from tests.codegen.cuda.defects import broken, replacing, without_barrier
from tests.codegen.cuda.stitched import OPTIONS, PROFILES, WHY_NO_PTX, interpreted, ptx_of, simulated, stitch
from tests.contexts import H200
from tests.passes.chain_programs import FLOATS, HALVES, close, program
from tests.passes.test_own_columns import graph_of

needs_ptx = pytest.mark.skipif(WHY_NO_PTX is not None, reason=str(WHY_NO_PTX))
needs_ptxas = pytest.mark.skipif(find_tool("ptxas") is None, reason="ptxas is not installed")
FEW, QUICK, MORE = range(1, 4), range(8), range(8, 240)
Args = Sequence[np.ndarray]


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqd,bkd->bqk", q, k) * 0.25
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), v)


def chain(a: Any, b: Any, c: Any) -> Any:
    return (a @ b) @ c


def layers(x: Any, up: Any, bias: Any, down: Any, last: Any) -> Any:
    return jax.nn.gelu(jax.nn.relu(x @ up + bias) @ down) @ last


def gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Of every argument, as losses have it."""
    return jax.grad(lambda *args: jnp.sum(jnp.square(f(*args).astype(jnp.float32))), (0, 1, 2))


def several_heads(q: Any, k: Any, v: Any) -> Any:
    """As flax's layers order dimensions, two heads for each of keys, none sees what comes later."""
    k, v = (jnp.repeat(x, 2, 2) for x in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.25
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(v.dtype), v)


def drawn(dtype: Any, *shapes: tuple[int, ...]) -> Args:
    numbers = np.random.default_rng(0)
    return [numbers.standard_normal(shape).astype(dtype) for shape in shapes]


SHAPES: tuple[tuple[Callable[..., Any], list[tuple[int, ...]]], ...] = (
    (attention, [(2, 64, 64), (2, 80, 64), (2, 80, 64)]),
    (attention, [(1, 9, 8), (1, 300, 8), (1, 300, 8)]),
    (attention, [(3, 48, 20), (3, 7, 20), (3, 7, 3)]),
    (chain, [(70, 24), (24, 40), (40, 130)]),
    (chain, [(128, 256), (256, 16), (16, 512)]),
    (layers, [(64, 32), (32, 96), (96,), (96, 48), (48, 8)]),
)


BOTH_WAYS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], int]] = {
    "attention": (gradient(attention), [(2, 64, 16), (2, 48, 16), (2, 48, 24)], 4),
    "heads": (several_heads, [(2, 48, 4, 16), (2, 48, 2, 16), (2, 48, 2, 16)], 2),
    "gradient of heads": (gradient(several_heads), [(1, 48, 4, 16), (1, 48, 2, 16), (1, 48, 2, 16)], 4),
}
"""Functions, shapes, and how many products are in kernels."""


def products(kernels: Sequence[Kernel]) -> int:
    return sum(kernel.products for kernel in kernels)


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in MORE)])
def test_drawn_chains(seed: int) -> None:
    f, args = program(seed, HALVES)
    made = stitch(graph_of(f, args, H200), PROFILES["h200"])
    assert products([*made.kernels]) == 2
    assert made.recorder.refused == []
    close(made.run(args, simulated), f, args)
    if WHY_NO_PTX is None and seed % 2 == 0:
        close(made.run(args, interpreted), f, args)


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, *MORE))])
def test_drawn_chains_of_f32(seed: int) -> None:
    """As tf32, by which XLA's library multiplies them."""
    f, args = program(seed + 1000, FLOATS[:1])
    made = stitch(graph_of(f, args, H200), PROFILES["h200"])
    assert products([*made.kernels]) == 2
    assert made.recorder.refused == []
    close(made.run(args, simulated), f, args, tf32=True)
    if WHY_NO_PTX is None and seed % 2 == 0:
        close(made.run(args, interpreted), f, args, tf32=True)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_forms(number: int, dtype: Any) -> None:
    f, shapes = SHAPES[number]
    args = drawn(dtype, *shapes)
    made = stitch(graph_of(f, args, H200), PROFILES["h200"])
    assert len(made.kernels) == 1
    assert products([*made.kernels]) == (3 if f is layers else 2)
    close(made.run(args, simulated), f, args, tf32=dtype is jnp.float32)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("name", BOTH_WAYS)
def test_gradients_and_heads(name: str, dtype: Any) -> None:
    f, shapes, count = BOTH_WAYS[name]
    args = [a / 2 for a in drawn(dtype, *shapes)]
    made = stitch(graph_of(f, args, H200), PROFILES["h200"])
    assert made.recorder.refused == []
    assert products([*made.kernels]) == count
    close(made.run(args, simulated), f, args, tf32=dtype is jnp.float32)


LARGE = ((8, 512, 512, 64, 64), (16, 256, 256, 80, 80), (1, 1024, 512, 64, 64))
OTHERS = ("a100", "b200", "rtx5090")


@needs_ptx
@needs_ptxas
@pytest.mark.parametrize(
    ("target", "shape"),
    [
        *(("h200", shape) for shape in LARGE),
        *((target, LARGE[0]) for target in OTHERS),
        *(pytest.param(t, shape, marks=pytest.mark.slow) for t in OTHERS for shape in LARGE[1:]),
    ],
)
@pytest.mark.parametrize(("dtype", "product"), [(jnp.bfloat16, "m16n8k16"), (jnp.float32, "m16n8k8")])
def test_nothing_is_spilled(target: str, shape: tuple[int, ...], dtype: Any, product: str) -> None:
    spec, (b, m, n, k, h) = find_spec(target), shape
    args = [jax.ShapeDtypeStruct(s, dtype) for s in ((b, m, k), (b, n, k), (b, n, h))]
    made = stitch(graph_of(attention, args, H200), cuda_profile(spec))
    ((kernel, emitted),) = made.kernels.items()
    (launch,) = emitted.source.launches
    text = ptx_of(emitted.source, launch, (spec.capability, spec.ptx_version))
    assert kernel.products == 2
    assert all(word in text for word in (f"mma.sync.aligned.{product}.", "ldmatrix", "cp.async"))
    assert assemble(text, spec.arch).spills == 0


# -- what is not by tensor cores --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v100", "t4"])
def test_older_gpus_have_no_products(name: str) -> None:
    args = drawn(jnp.float16, *SHAPES[0][1])
    made = stitch(graph_of(attention, args, H200), cuda_profile(find_spec(name)))
    assert products([*made.kernels]) == 0
    close(made.run(args, simulated), attention, args)


def precise(q: Any, k: Any, v: Any) -> Any:
    with jax.default_matmul_precision("highest"):
        return attention(q, k, v)


def algorithm(q: Any, k: Any, v: Any) -> Any:
    with jax.default_matmul_precision("F32_F32_F32"):
        return attention(q, k, v)


@pytest.mark.parametrize("f", [precise, algorithm])
def test_what_asks_for_more_than_tf32_stays_with_xla(f: Callable[..., Any]) -> None:
    args = drawn(np.float32, *SHAPES[0][1])
    assert products([*stitch(graph_of(f, args, H200), PROFILES["h200"]).kernels]) == 0
    found = str(jstitch.explain(f, options=jstitch.CompileOptions(target="h200"))(*args))
    assert "asks for more" in " ".join(found.split())


@pytest.mark.parametrize("how", ["tf32 is switched off", "NVIDIA's own variable"])
def test_users_can_do_without_tf32(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    args, options = drawn(np.float32, *SHAPES[0][1]), jstitch.CompileOptions(target="h200", tune="off")
    assert chains_of(args, options) == 1
    if how == "tf32 is switched off":
        options = options.replace(without=("tf32",))
    else:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert chains_of(args, options) == 0


def chains_of(args: Args, options: jstitch.CompileOptions) -> int:
    plan = jstitch.jit(attention, options=options).plan(*args)
    return sum(p.origin == CHAIN for p in plan.patterns)


def test_a_users_own_sum_of_f32_is_no_product_of_tf32() -> None:
    """XLA multiplies it in f32, too."""

    def f(a: Any, b: Any, c: Any) -> Any:
        inner = jnp.sum(a[:, None, :] * b[None], -1)
        return jnp.sum(jax.nn.softmax(inner)[:, :, None] * c[None], 1)

    args = drawn(np.float32, (64, 24), (48, 24), (48, 16))
    made = stitch(graph_of(f, args, H200), PROFILES["h200"])
    assert products([*made.kernels]) == 0
    close(made.run(args, simulated), f, args)


# -- roundings --------------------------------------------------------------------------------------------


def test_sums_are_rounded_where_they_are_made() -> None:
    """Without the pass: the same results, by way of tiles of f32."""
    args = drawn(jnp.bfloat16, *SHAPES[3][1])
    graph = graph_of(chain, args, H200)
    without = OPTIONS.replace(without=(*OPTIONS.without, "round_products"))
    made, plain = (stitch(graph, PROFILES["h200"], options=o) for o in (OPTIONS, without))
    ours, theirs = ([e.source.launches[0].shared_bytes for e in s.kernels.values()] for s in (made, plain))
    assert ours < theirs
    for a, b in zip(made.run(args, simulated), plain.run(args, simulated), strict=True):
        np.testing.assert_array_equal(a, b)


# -- defects ----------------------------------------------------------------------------------------------

TILES = SHAPES[0]
SEEDED: dict[str, Callable[[str], str]] = {
    "a panel that nobody waits for": replacing(r"await_copies\(2\)", "await_copies(3)"),
    "no wait at all": replacing(r"await_copies\(\d\)", "await_copies(9)"),
    "no barrier behind the wait": without_barrier(0),
    "no barrier behind the product": replacing(r"barrier\(\)  # the product is there", "pass"),
    "the other operand turned": replacing("shared_turned_", "shared_matrices_"),
    "the wrong half of a right operand": replacing(r"(multiply_add_bf16\(.*), 2\)", r"\1, 0)"),
}
ROUNDINGS: dict[str, Callable[[str], str]] = {
    "a left operand": replacing(r"(a\d+_\[n\] = )convert_tf32\(factor\)", r"\1factor"),
    "a right operand": replacing(r"(b\d+_\[\w+\] = )convert_tf32\(factor\)", r"\1factor"),
}
TURNS = [(2, 64, 64), (2, 512, 64), (2, 512, 64)]


@pytest.mark.parametrize("name", ROUNDINGS)
@pytest.mark.parametrize("machine", ["simulator", pytest.param("ptx", marks=needs_ptx)])
def test_operands_of_f32_that_nobody_rounds_are_found(name: str, machine: str) -> None:
    """What tensor cores make of them is not documented."""
    args = drawn(np.float32, *TILES[1])
    made = broken(graph_of(attention, args, H200), ROUNDINGS[name])
    with pytest.raises((SimulationError, PtxError)):
        made.run(args, simulated if machine == "simulator" else interpreted)


@pytest.mark.parametrize("name", SEEDED)
@pytest.mark.parametrize("machine", ["simulator", pytest.param("ptx", marks=needs_ptx)])
def test_seeded_defects_are_found(name: str, machine: str) -> None:
    """By a machine's checks, or by the results."""
    args = drawn(jnp.bfloat16, *TURNS)
    made = broken(graph_of(attention, args, H200), SEEDED[name])
    run = simulated if machine == "simulator" else interpreted
    with pytest.raises((SimulationError, PtxError, AssertionError)):
        close(made.run(args, run), attention, args)


def test_a_right_operand_is_read_once_from_memory() -> None:
    """Rows of all CTAs share it in a cache; what is reported is what memory moves."""
    args = drawn(jnp.bfloat16, *TILES[1])
    made = stitch(graph_of(attention, args, H200), PROFILES["h200"])
    ((_, emitted),) = made.kernels.items()
    (launch,) = emitted.source.launches
    assert launch.bytes_read == sum(a.nbytes for a in args)
    assert launch.bytes_written == args[0].nbytes
    assert launch.grid > TILES[1][0][0]
