"""No launch has more parameters than XLA passes: phases that need more become several launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jstitch
from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cuda.launch_buffers import launch_buffers, touched_buffers
from jstitch.codegen.cuda.source import MOST_PARAMETERS, Launch
from jstitch.codegen.kernel_ir import Buffer, Kernel, Lane, Load, Nest, Phase, Space, Stage, Store
from jstitch.codegen.launch_ir import Parameter
from jstitch.ir.expr import Ref
from jstitch.ir.index import Index
from jstitch.ir.interpret import interpret
from jstitch.ir.types import DType, TensorType
from jstitch.passes.schedule.divide_phases import _runs, divide_phases
from tests.codegen.cuda.stitched import Recorded, record, simulated

TENSORS = 190


def lowered(f: Callable[..., Any], args: Sequence[Any], donate: tuple[int, ...]) -> Recorded:
    """By default options for an H200."""
    options = jstitch.CompileOptions(target="h200", strict=True, verify=True)
    with pytest.MonkeyPatch.context() as patch:
        found = record(patch)
        jitted = jax.jit(jstitch.stitch(f, options=options), donate_argnums=donate, keep_unused=True)
        jitted.trace(*args).lower(lowering_platforms=("cuda",))
    return found


def step(transform: optax.GradientTransformation) -> tuple[Callable[..., Any], tuple[Any, Any, Any]]:
    """One update of many small tensors, and its arguments."""
    rng = np.random.default_rng(0)
    made = [{f"w{i}": rng.normal(size=(1 + i % 7, 8)).astype("f4") for i in range(TENSORS)} for _ in range(2)]

    def update(params: Any, state: Any, gradients: Any) -> tuple[Any, Any]:
        updates, state = transform.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    return update, (made[0], transform.init(made[0]), made[1])


def parameters(found: Recorded) -> list[list[int]]:
    """Of every launch of every kernel, largest kernels last."""
    made = ([len(x.parameters) for x in e.source.launches] for e in found.recorder.emitted.values())
    return sorted(made, key=max)


def require_equal(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def run(found: Recorded, args: Any) -> None:
    """The whole program in the simulator gives what the Graph interpreter gives."""
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(args)]
    ((graph, _),) = found.programs
    require_equal(found.run(0, arrays, simulated), interpret(graph, arrays))


def test_an_optimizer_of_many_tensors_is_two_launches_of_about_the_same_size() -> None:
    f, args = step(optax.adamw(1e-3))
    found = lowered(f, args, (0, 1))
    assert not found.recorder.refused
    first, second = parameters(found)[-1]
    assert max(first, second) <= MOST_PARAMETERS < first + second
    assert abs(first - second) < 20
    run(found, args)


def test_only_the_phases_that_need_it_are_divided() -> None:
    """Partial results are parameters, too: fewer inputs and outputs than may be, but not in every launch."""

    def normalised(*xs: Any) -> list[Any]:
        return [x * jax.lax.rsqrt(jnp.sum(x * x)) for x in xs]

    args = [np.random.default_rng(n).normal(size=(4, 16 + n % 3)).astype("f4") for n in range(350)]
    found = lowered(normalised, args, ())
    (kernel,) = found.recorder.emitted
    assert len(kernel.args) + len(kernel.results) < MOST_PARAMETERS
    assert len(kernel.phases) == 4
    assert parameters(found) == [[700, 700, 525, 525]]
    run(found, args)


# -- lanes -------------------------------------------------------------------------------------------------


def buffers(first: int, count: int) -> list[Buffer]:
    type_ = TensorType((8,), DType.F32)
    return [Buffer(f"a{n}", type_, Space.ARG, n) for n in range(first, first + count)]


def lane(read: Sequence[Buffer], written: Sequence[Buffer] = ()) -> Lane:
    body = [Load(f"v{n}", b, Index(0), 0) for n, b in enumerate(read)]
    after = [Store(b, Index(0), Ref("v0"), 0) for b in written]
    return Lane(1, 1, 1, (Stage((Nest((), (), tuple(body), tuple(after)),), ""),), False, 1)


def divided(phases: Sequence[Phase], in_place: Mapping[Buffer, Buffer] | None = None) -> list[Phase]:
    """The launches of a kernel of these phases. in_place: results -> arguments."""
    taken = in_place or {}
    touched = (b for phase in phases for x in phase.lanes for b in touched_buffers(x))
    found = list(dict.fromkeys([*touched, *taken.values()]))
    args, results = (tuple(b for b in found if b.space is space) for space in (Space.ARG, Space.RESULT))
    aliases = {results.index(r): args.index(a) for r, a in taken.items()}
    return list(divide_phases(Kernel("k", args, results, (), (), tuple(phases), 0, 0, aliases)).phases)


def test_a_lane_of_more_buffers_is_refused_with_the_numbers() -> None:
    fits, large = buffers(0, MOST_PARAMETERS), buffers(0, MOST_PARAMETERS + 1)
    alone = Phase((lane(fits),))
    assert divided([alone]) == [alone]
    expected = f"{MOST_PARAMETERS + 1:,} buffers, a launch is given at most {MOST_PARAMETERS:,}"
    with pytest.raises(CannotBuildError, match=expected):
        divided([Phase((lane(large), lane(large[:1])))])


def test_a_result_in_place_of_an_argument_is_two_parameters() -> None:
    many, result = buffers(0, MOST_PARAMETERS - 1), Buffer("o0", TensorType((8,), DType.F32), Space.RESULT)
    phase = Phase((lane(many[:-1], [result]), lane(many[-1:])))
    assert len(divided([phase])) == 1
    assert len(divided([phase], {result: many[0]})) == 1
    assert len(divided([phase], {result: Buffer("a", result.type, Space.ARG)})) == 2


def test_what_two_launches_write_is_handed_from_one_to_the_other() -> None:
    result = Buffer("o0", TensorType((8,), DType.F32), Space.RESULT)
    lanes = [lane(buffers(600 * n, 600), [result]) for n in range(3)]
    parts = divided([Phase(tuple(lanes))])
    assert [len(part.lanes) for part in parts] == [1, 1, 1]
    first, second = launch_buffers(parts[0], {}, []), launch_buffers(parts[1], {}, [result])
    assert (first.results, first.aliases, first.parameters) == ((result,), {}, 601)
    assert (second.results, second.aliases, second.parameters) == ((result,), {0: 600}, 602)


def test_a_launch_of_more_parameters_cannot_be_made() -> None:
    many = tuple(Parameter(f"a{n}", "f32", 8, "read") for n in range(MOST_PARAMETERS + 1))
    Launch("phase0", 1, 32, 0, 32, many[1:], 1)
    with pytest.raises(ValueError, match=f"found {MOST_PARAMETERS + 1} of phase0"):
        Launch("phase0", 1, 32, 0, 32, many, 1)


@pytest.mark.parametrize(
    ("sizes", "count", "expected"),
    [
        ([1, 1, 1, 1], 2, [2, 2]),
        ([5, 1, 1, 1], 2, [5, 3]),
        ([1, 1, 1, 9], 3, [2, 1, 9]),
        ([9, 1, 1], 3, [9, 1, 1]),
        ([3, 3, 3, 3, 3], 2, [9, 6]),
    ],
)
def test_runs_are_balanced(sizes: list[int], count: int, expected: list[int]) -> None:
    runs = _runs([lane(buffers(0, n)) for n in sizes], count)
    assert [sum(len(x.stages[0].nests[0].body) for x in run) for run in runs] == expected
