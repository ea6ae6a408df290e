"""`python -m benchmarks chains`: chains of two products, on this machine's CPU, side by side with jax.jit.

With `--target h200`, what they launch and move there, by XLA:GPU's compiler: no time, for there is no device.

MCFuser's chains G1-G12 (table II) and self-attention modules S1-S9 (table III), and members of the class
drawn at random: attention with masks and biases, MLPs, their gradients, at odd sizes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import click
import jax
import jax.numpy as jnp
from jax import Array
from rich.console import Console
from rich.table import Table

import jstitch
from benchmarks import machine, timing
from benchmarks.check import require_equal
from benchmarks.counted_chains import count_table, counted
from benchmarks.sides import Side, jax_jit, subject_jit
from benchmarks.table import geometric_mean
from benchmarks.workload import Problem, normal
from jstitch.demo.hlo import program_cost

Row = dict[str, Any]
TOLERANCES: Mapping[str, float] = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.01}
CHAINS: Mapping[str, tuple[int, int, int, int, int]] = {
    **{"G1": (1, 512, 256, 64, 64), "G2": (1, 512, 256, 64, 128), "G3": (1, 512, 256, 64, 256)},
    **{"G4": (1, 512, 512, 256, 256), "G5": (1, 512, 512, 512, 256), "G6": (1, 512, 512, 1024, 256)},
    **{"G7": (1, 512, 512, 128, 128), "G8": (1, 1024, 512, 128, 128), "G9": (1, 2048, 512, 128, 128)},
    **{"G10": (1, 1024, 1024, 128, 128), "G11": (4, 1024, 1024, 128, 128)},
    **{"G12": (8, 1024, 1024, 128, 128)},
}
"""batch, M, N, K, H of C = A B, E = C D."""
MODULES: Mapping[str, tuple[int, int, int, int, int]] = {
    **{"S1": (8, 512, 512, 64, 64), "S2": (12, 512, 512, 64, 64), "S3": (16, 512, 512, 64, 64)},
    **{"S4": (12, 256, 256, 64, 64), "S5": (16, 256, 256, 64, 64), "S6": (16, 256, 256, 80, 80)},
    **{"S7": (1, 512, 256, 64, 64), "S8": (1, 768, 384, 64, 64), "S9": (1, 1024, 512, 64, 64)},
}
"""heads, M, N, K, H of softmax(Q K^T) V."""


def chain(a: Array, b: Array, d: Array) -> Array:
    return (a @ b) @ d


def attention(q: Array, k: Array, v: Array) -> Array:
    scores = jnp.einsum("bmk,bnk->bmn", q, k) / q.shape[-1] ** 0.5
    return jnp.einsum("bmn,bnh->bmh", jax.nn.softmax(scores), v)


def causal(q: Array, k: Array, v: Array) -> Array:
    scores = jnp.einsum("bmk,bnk->bmn", q, k) / q.shape[-1] ** 0.5
    seen = jnp.arange(q.shape[1])[:, None] >= jnp.arange(k.shape[1])
    return jnp.einsum("bmn,bnh->bmh", jax.nn.softmax(jnp.where(seen, scores, -1e9)), v)


def biased(q: Array, k: Array, v: Array) -> Array:
    far = jnp.abs(jnp.arange(q.shape[1])[:, None] - jnp.arange(k.shape[1]))
    scores = jnp.einsum("bmk,bnk->bmn", q, k).astype(jnp.float32) - 0.1 * far
    return jnp.einsum("bmn,bnh->bmh", jax.nn.softmax(scores).astype(v.dtype), v)


def gradient(f: Callable[..., Array]) -> Callable[..., Any]:
    return jax.grad(lambda q, k, v: jnp.sum(jnp.square(f(q, k, v))), (0, 1, 2))


def mlp(x: Array, up: Array, bias: Array, down: Array) -> Array:
    return jax.nn.gelu(x @ up + bias) @ down


Case = tuple[str, Callable[..., Any], list[tuple[int, ...]]]
"""A name, a function, and the shapes of its arguments."""


def problem(case: Case, dtype: str) -> Problem:
    _, f, shapes = case
    args = tuple(normal(shape, n, shape[-1] ** -0.25).astype(dtype) for n, shape in enumerate(shapes))
    return Problem(f, args, tolerance=TOLERANCES[dtype])


def published() -> Iterator[Case]:
    for name, (b, m, n, k, h) in CHAINS.items():
        yield name, chain, [(b, m, k), (b, k, n), (b, n, h)]
    for name, (b, m, n, k, h) in MODULES.items():
        yield name, attention, [(b, m, k), (b, n, k), (b, n, h)]


def drawn(count: int, seed: int) -> Iterator[Case]:
    """Of sizes that people have, odd ones among them."""
    random = Random(seed)
    forms = (attention, causal, biased, gradient(attention), gradient(causal))
    for number in range(count):
        if random.random() < 0.3:
            m, k, n = (
                random.choice((64, 500, 2048, 8192)),
                random.choice((32, 64, 256)),
                random.choice((1, 2, 4)),
            )
            yield f"{number} mlp {m}x{k}x{k * n}", mlp, [(m, k), (k, k * n), (k * n,), (k * n, k)]
            continue
        f = random.choice(forms)
        heads, k = random.choice((1, 4, 12, 32)), random.choice((16, 32, 64, 80, 96))
        m = random.choice((16, 49, 64, 128, 196, 197, 256, 384, 512, 1000, 1024))
        n = m if random.random() < 0.8 else random.choice((77, 128, 512))
        name = getattr(f, "__wrapped__", f).__name__
        what = name if f in forms[:3] else f"gradient of {'causal' if f is forms[4] else 'attention'}"
        yield f"{number} {what} {heads}x{m}x{n}x{k}", f, [(heads, m, k), (heads, n, k), (heads, n, k)]


@click.command("chains")
@click.option("--filter", "pattern", default="", help="Only cases whose name matches this expression.")
@click.option("--drawn", "count", default=24, show_default=True, help="Members of the class to draw.")
@click.option("--seed", default=0, show_default=True)
@click.option("--dtype", default="float32", show_default=True, type=click.Choice(tuple(TOLERANCES)))
@click.option("--target", default="cpu", show_default=True, help="The CPU, or a GPU to count for.")
@click.option("--seconds", default=1.5, show_default=True, help="Time for each case.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write all rows here.")
def chains_command(
    pattern: str, count: int, seed: int, dtype: str, target: str, seconds: float, path: Path | None
) -> None:
    """Chains of two products: times on this CPU, by turns with jax.jit's, or launches and bytes on a GPU."""
    cases = [case for case in (*published(), *drawn(count, seed)) if re.search(pattern, case[0])]
    if not cases:
        raise click.UsageError(f"no case matches '{pattern}'")
    rows: list[Row] = []
    for case in cases:
        if target == "cpu":
            rows.append(_measured(case[0], problem(case, dtype), seconds))
            Console(stderr=True).print(f"{case[0]}: {rows[-1]['ratio']:.2f}x")
        else:
            rows.append(counted(*case, dtype, target))
    Console().print(_table(rows) if target == "cpu" else count_table(rows, target))
    if path:
        about = {"machine": machine.describe(), "target": target, "dtype": dtype, "seconds": seconds}
        result = {**about, "rows": rows}
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _measured(name: str, problem: Problem, seconds: float) -> Row:
    reference: Any = jax_jit(problem)
    subject: Any = subject_jit(problem, Side.JSTITCH, jstitch.CompileOptions())
    require_equal(subject(*problem.args), reference(*problem.args), problem.tolerance, name)
    found = timing.interleaved(timing.JaxStep(reference, problem), timing.JaxStep(subject, problem), seconds)
    kernels = len(program_cost(subject.lower(*problem.args).compile().as_text()).stitched)
    medians = {"jax": found.first.median * 1e6, "jstitch": found.second.median * 1e6}
    return {"name": name, "microseconds": medians, "ratio": found.ratio, "kernels": kernels}


def _table(rows: list[Row]) -> Table:
    table = Table(title="Chains of products, interleaved: times jax.jit's speed")
    for head in ("case", "jax.jit us", "jstitch us", "x", "kernels"):
        table.add_column(head, justify="left" if head == "case" else "right")
    for row in rows:
        times = row["microseconds"]
        cells = f"{times['jax']:.0f}", f"{times['jstitch']:.0f}", f"{row['ratio']:.2f}"
        table.add_row(row["name"], *cells, str(row["kernels"]))
    for kind, title in (("G", "G1-G12"), ("S", "S1-S9"), ("", "drawn")):
        ratios = [r["ratio"] for r in rows if r["name"][0] == kind or (not kind and r["name"][0].isdigit())]
        if ratios:
            table.add_row(
                f"{title}: geometric mean, least",
                "",
                "",
                f"{geometric_mean(ratios):.2f}",
                f"{min(ratios):.2f}",
            )
    return table
