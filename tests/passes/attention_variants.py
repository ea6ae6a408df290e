"""Attention as people write it: a matrix of forms, masks, shapes and types, forward and with its gradient.

VARIANTS[n] = Variant(form, mask, queries, keys, width, dtype)     make(variant) -> a function, its arguments
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
HEADS, BATCH = 4, 2
FORMS = ("heads first", "heads last", "matmul", "jax.nn", "grouped", "one head of keys")
GROUPED = "jax.nn, grouped"
MASKS = ("none", "causal", "padding", "window", "alibi", "relative", "all masked", "dropout", "capped")
SIZES = ((48, 48, 16), (77, 77, 40), (64, 130, 32), (1, 96, 32), (33, 33, 80), (16, 257, 8))


@dataclass(frozen=True)
class Variant:
    form: str
    mask: str
    queries: int
    keys: int
    width: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.form}, {self.mask}, {self.queries}x{self.keys}x{self.width}, {self.dtype}"


def _variants() -> tuple[Variant, ...]:
    """Every form with every mask, shapes and types by turns; and all again in another order of shapes."""
    found = []
    again = itertools.product(FORMS, MASKS[:4])
    grouped = itertools.product([GROUPED], MASKS)
    for n, (form, mask) in enumerate((*itertools.product(FORMS, MASKS), *again, *grouped)):
        size = SIZES[(n + n // len(SIZES)) % len(SIZES)]
        found.append(Variant(form, mask, *size, ("float32", "bfloat16")[n % 2]))
    return tuple(found)


VARIANTS = _variants()


def make(variant: Variant, seed: int = 0) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """(q, k, v, bias) -> what each query sees; keys may have fewer heads."""
    heads = {"grouped": 2, GROUPED: 2, "one head of keys": 1}.get(variant.form, HEADS)
    first = variant.form in ("heads first", "matmul")
    shapes = [(variant.queries, HEADS), *[(variant.keys, heads)] * 2]
    shapes = [(BATCH, n, h, variant.width) if not first else (BATCH, h, n, variant.width) for n, h in shapes]
    numbers = np.random.default_rng(seed)
    bias = numbers.standard_normal((HEADS, variant.queries, variant.keys))
    args = [numbers.standard_normal(shape) for shape in shapes]
    return _attention(variant, heads), [np.asarray(a, variant.dtype) for a in (*args, bias)]


def gradient(f: Callable[..., Any], count: int = 3) -> Callable[..., Any]:
    """Of the first arguments, of a loss that weighs all results."""

    def loss(*args: Array) -> Array:
        out = f(*args).astype(jnp.promote_types(args[0].dtype, jnp.float32))
        return jnp.sum(out * jnp.cos(jnp.arange(out.shape[-1])))

    return jax.grad(loss, tuple(range(count)))


def _attention(variant: Variant, heads: int) -> Callable[..., Any]:
    scale = 1 / math.sqrt(variant.width)

    def attend(q: Array, k: Array, v: Array, bias: Array) -> Array:
        if variant.form.startswith("jax.nn") and variant.mask in _KINDS:
            return jax.nn.dot_product_attention(q, k, v, **_KINDS[variant.mask](variant, bias))
        if heads != HEADS:
            k, v = (jnp.repeat(x, HEADS // heads, 2) for x in (k, v))
        if variant.form == "matmul":
            s = (q @ jnp.swapaxes(k, -1, -2)) * scale
            return _weights(s, variant, bias).astype(v.dtype) @ v
        if variant.form == "heads first":
            s = jnp.einsum("bhqd,bhkd->bhqk", q, k) * scale
            return jnp.einsum("bhqk,bhkd->bhqd", _weights(s, variant, bias).astype(v.dtype), v)
        wide = jnp.promote_types(q.dtype, jnp.float32)
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=wide) * scale
        return jnp.einsum("bhqk,bkhd->bqhd", _weights(s, variant, bias).astype(v.dtype), v)

    return attend


def _lengths(variant: Variant) -> Array:
    """Keys that each sequence has."""
    return jnp.arange(1, BATCH + 1) * variant.keys // (BATCH + 1) + 1


_KINDS: dict[str, Callable[[Variant, Array], dict[str, Any]]] = {
    "none": lambda v, b: {},
    "causal": lambda v, b: {"is_causal": True},
    "relative": lambda v, b: {"bias": b[None]},
    "padding": lambda v, b: {"key_value_seq_lengths": _lengths(v).astype(jnp.int32)},
    "window": lambda v, b: {"local_window_size": (9 + v.queries // 2, v.keys)},
    "dropout": lambda v, b: {"mask": (b > -1.2)[None]},
}
"""What `jax.nn.dot_product_attention` is given."""


def _weights(s: Array, variant: Variant, bias: Array) -> Array:
    """The softmax of masked scores, in f32 at least."""
    s = s.astype(jnp.promote_types(s.dtype, jnp.float32))
    rows, columns = jnp.arange(variant.queries)[:, None], jnp.arange(variant.keys)[None]
    match variant.mask:
        case "causal":
            s = jnp.where(rows >= columns, s, -jnp.inf)
        case "padding":
            s = jnp.where(columns < _lengths(variant)[:, None, None, None], s, -1e9)
        case "window":
            s = jnp.where(jnp.abs(rows - columns) < 9 + variant.queries // 2, s, -1e9)
        case "alibi":
            s = s - 2.0 ** -jnp.arange(1, HEADS + 1)[:, None, None] * jnp.abs(rows - columns)
        case "relative":
            s = s + bias
        case "all masked":
            s = jnp.where(rows % 5 == 3, jnp.finfo(s.dtype).min, s)
        case "capped":
            s = 5 * jnp.tanh(s / 5)
    p = jax.nn.softmax(s, -1)
    return jnp.where(bias > -1.2, p / 0.9, 0) if variant.mask == "dropout" else p


def close(
    run: Callable[..., Any], variant: Variant, backward: bool, plain: Callable[..., Any] = jax.jit
) -> None:
    """At once, or in two more draws: the largest error of few elements is a matter of luck.

    plain: what makes XLA's program of a function.
    """
    if _too_far(run, variant, backward, plain, seed=0):
        again = [_too_far(run, variant, backward, plain, seed) for seed in (1, 2)]
        assert not any(again), again


def _too_far(
    run: Callable[..., Any], variant: Variant, backward: bool, plain: Callable[..., Any], seed: int
) -> str:
    """Unless at most twice as far from float64 as XLA is, or by a unit of the largest."""
    f, args = make(variant, seed)
    f = gradient(f) if backward else f
    with jax.enable_x64(True):
        exact = [np.float64(x) for x in jax.tree.leaves(jax.jit(f)(*(np.float64(a) for a in args)))]
    found, theirs = jax.tree.leaves(run(*args)), jax.tree.leaves(plain(f)(*args))
    for a, b, c in zip(found, theirs, exact, strict=True):
        assert a.dtype == b.dtype
        largest = float(np.abs(c).max(initial=1.0))
        ours, allowed = (float(np.abs(np.float64(x) - c).max(initial=0.0)) for x in (a, b))
        unit = 2.0**-8 if a.dtype == jnp.bfloat16 else 2.0**-20
        if not ours <= 2 * allowed + unit * largest:
            return f"{ours} where XLA has {allowed}, of {largest}"
    return ""
