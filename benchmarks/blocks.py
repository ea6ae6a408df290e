"""Transformer blocks drawn at random: what stitching must never make worse, counted with matrix products.

    draw(seed=0, count=30) == (Block("encoder", hidden=512, heads=8, ...), ...)

Encoder blocks, decoder blocks with and without their training step, and decode steps of one token with a
cache of keys and values, at the small sizes at which XLA's own kernels are few and one more is a share.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

Params = Mapping[str, Any]
KINDS = ("encoder", "encoder gradient", "decoder", "decoder step", "decode")
ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "gelu": jax.nn.gelu,
    "exact gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}
WIDTH = 64  # of a head
VOCABULARY = 1000


@dataclass(frozen=True)
class Block:
    """One member: what it computes, of which sizes.

    groups: heads that share keys and values. bias: of all dense layers. cached: rows of the cache. layers:
    blocks one after the other.
    """

    kind: str
    hidden: int
    sequences: int
    tokens: int
    dtype: str = "float32"
    activation: str = "gelu"
    bias: bool = True
    first: bool = False
    groups: int = 1
    cached: int = 0
    layers: int = 1

    @property
    def name(self) -> str:
        parts = [self.kind, f"{self.layers}x{self.hidden}", f"{self.sequences}x{self.tokens}", self.dtype]
        parts += [self.activation, "bias" if self.bias else "plain", "pre" if self.first else "post"]
        return " ".join(parts + [f"g{self.groups}"] + ([f"c{self.cached}"] if self.cached else []))

    @property
    def heads(self) -> int:
        return self.hidden // WIDTH

    def problem(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function, and the shapes of its arguments."""
        params = jax.eval_shape(lambda: [_weights(self) for _ in range(self.layers)])
        x = jax.ShapeDtypeStruct((self.sequences, self.tokens, self.hidden), self.dtype)
        match self.kind:
            case "encoder":
                return self.encode, (params, x)
            case "encoder gradient":
                return jax.grad(lambda p, x: jnp.sum(self.encode(p, x).astype(jnp.float32) ** 2)), (params, x)
            case "decoder":
                return self.decode, (params, x)
            case "decoder step":
                return self.step, (*self._model(params), self._tokens())
            case _:
                return self.one, (*self._model(params), self._caches(), *self._next())

    def encode(self, params: Params, x: Array) -> Array:
        for layer in params:
            x = _encoder(self, layer, x)
        return x

    def decode(self, params: Params, x: Array) -> Array:
        for layer in params:
            x = _decoder(self, layer, x)
        return x

    def step(self, params: Params, table: Array, tokens: Array) -> Any:
        """The loss of the next token, and all parameters after a step down its gradient."""

        def loss(both: Any) -> Array:
            params, table = both
            logits = (self.decode(params, table[tokens]) @ table.T).astype(jnp.float32)[:, :-1]
            chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1)
            return -jnp.mean(chosen)

        value, gradient = jax.value_and_grad(loss)((params, table))
        return value, jax.tree.map(lambda p, g: p - 0.01 * g, (params, table), gradient)

    def one(self, params: Params, table: Array, caches: Any, token: Array, place: Array) -> Any:
        """The logits of the next token, and the caches with this one's keys and values."""
        x, filled = table[token], []
        for layer, cache in zip(params, caches, strict=True):
            x, cache = _decode(self, layer, x, cache, place)
            filled.append(cache)
        return (x @ table.T).astype(jnp.float32), filled

    def _model(self, params: Any) -> tuple[Any, Any]:
        return params, jax.ShapeDtypeStruct((VOCABULARY, self.hidden), self.dtype)

    def _tokens(self) -> Any:
        return jax.ShapeDtypeStruct((self.sequences, self.tokens), jnp.int32)

    def _caches(self) -> Any:
        heads = self.heads // self.groups
        cache = jax.ShapeDtypeStruct((self.sequences, self.cached, heads, WIDTH), self.dtype)
        return [(cache, cache)] * self.layers

    def _next(self) -> tuple[Any, Any]:
        return jax.ShapeDtypeStruct((self.sequences,), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)


def draw(seed: int, count: int) -> tuple[Block, ...]:
    """That many members; kinds in turn, so that a short run meets all."""
    source = random.Random(seed)
    return tuple(_drawn(source, KINDS[n % len(KINDS)], n // len(KINDS)) for n in range(count))


def _drawn(source: random.Random, kind: str, turn: int) -> Block:
    """turn: how many of its kind were drawn before. Every second encoder has biases."""

    def one(*values: Any) -> Any:
        return source.choice(values)

    hidden, layers = one(256, 384, 512, 768, 1024), one(1, 1, 2)
    sequences, tokens = one(1, 2, 4, 8, 16, 32), one(1, 16, 64, 100, 128, 256, 512)
    common = (kind, hidden, sequences, tokens)
    if kind.startswith("encoder"):
        bias, (_, first) = turn % 2 == 0, (one(True, False), one(True, False))
        activation = one("gelu", "exact gelu", "relu")
        return Block(*common, one("float32", "bfloat16"), activation, bias, first, layers=layers)
    groups, bias = one(1, 2, 4) if hidden % 256 == 0 else one(1, 2), one(False, False, True)
    if kind == "decode":
        dtype, cached = one("bfloat16", "bfloat16", "float32"), one(64, 256, 1024, 2048)
        return Block(*common[:3], 1, dtype, "silu", bias, True, groups, cached, layers)
    tokens = tokens if kind == "decoder" else max(tokens, 16)
    return Block(*common[:3], tokens, "bfloat16", one("silu", "gelu"), bias, True, groups, layers=layers)


def _weights(block: Block) -> dict[str, Any]:
    hidden = block.hidden
    shared = hidden // block.groups
    sizes = {"q": (hidden, hidden), "k": (hidden, shared), "v": (hidden, shared), "o": (hidden, hidden)}
    if block.kind.startswith("encoder"):
        sizes |= {"up": (hidden, 4 * hidden), "down": (4 * hidden, hidden)}
    else:
        inner = hidden * 8 // 3 // 64 * 64
        sizes |= {"up": (hidden, inner), "gate": (hidden, inner), "down": (inner, hidden)}
    ones = jnp.ones(hidden, block.dtype)
    norms = {name: {"scale": ones, "shift": ones} for name in ("norm_1", "norm_2")}
    if not block.kind.startswith("encoder"):
        norms = {name: {"scale": norm["scale"]} for name, norm in norms.items()}
    return {name: _layer(block, size) for name, size in sizes.items()} | norms


def _layer(block: Block, size: tuple[int, int]) -> dict[str, Array]:
    weight = {"w": jnp.zeros(size, block.dtype)}
    return weight | {"b": jnp.zeros(size[1], block.dtype)} if block.bias else weight


def _dense(layer: Params, x: Array) -> Array:
    y = x @ layer["w"]
    return y + layer["b"] if "b" in layer else y


def _layer_norm(layer: Params, x: Array) -> Array:
    y = x.astype(jnp.float32)
    mean, variance = jnp.mean(y, -1, keepdims=True), jnp.var(y, -1, keepdims=True)
    y = (y - mean) * lax.rsqrt(variance + 1e-5)
    return y.astype(x.dtype) * layer["scale"] + layer["shift"]


def _rms_norm(layer: Params, x: Array) -> Array:
    y = x.astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)
    return y.astype(x.dtype) * layer["scale"]


def _encoder(block: Block, p: Params, x: Array) -> Array:
    norm = _layer_norm
    attend = lambda y: _attention(block, p, y)  # noqa: E731
    feed = lambda y: _dense(p["down"], ACTIVATIONS[block.activation](_dense(p["up"], y)))  # noqa: E731
    if block.first:
        x = x + attend(norm(p["norm_1"], x))
        return x + feed(norm(p["norm_2"], x))
    x = norm(p["norm_1"], x + attend(x))
    return norm(p["norm_2"], x + feed(x))


def _attention(block: Block, p: Params, x: Array) -> Array:
    q, k, v = (_dense(p[name], x).reshape(*x.shape[:2], -1, WIDTH) for name in "qkv")
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / WIDTH**0.5
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return _dense(p["o"], mixed.reshape(x.shape))


def _decoder(block: Block, p: Params, x: Array) -> Array:
    y = _rms_norm(p["norm_1"], x)
    q, k, v = _heads(p, y)
    places = jnp.arange(block.tokens)
    q, k = _rotate(q, places), _rotate(k, places)
    mixed = _mix(block, q, k, v, places[:, None] >= places[None, :])
    x = x + _dense(p["o"], mixed.reshape(x.shape))
    return x + _gated(block, p, _rms_norm(p["norm_2"], x))


def _decode(block: Block, p: Params, x: Array, cache: Any, place: Array) -> tuple[Array, Any]:
    """One token of each sequence."""
    y = _rms_norm(p["norm_1"], x)[:, None]
    q, k, v = _heads(p, y)
    q, k = _rotate(q, place[None]), _rotate(k, place[None])
    keys, values = (
        lax.dynamic_update_slice_in_dim(c, n, place, 1) for c, n in zip(cache, (k, v), strict=True)
    )
    mixed = _mix(block, q, keys, values, jnp.arange(block.cached)[None] <= place)
    x = x + _dense(p["o"], mixed.reshape(x.shape))
    return x + _gated(block, p, _rms_norm(p["norm_2"], x)), (keys, values)


def _heads(p: Params, y: Array) -> Iterator[Array]:
    return (_dense(p[name], y).reshape(*y.shape[:2], -1, WIDTH) for name in "qkv")


def _rotate(x: Array, places: Array) -> Array:
    """x: [sequences, tokens, heads, width]."""
    speeds = 10000.0 ** (-jnp.arange(0, WIDTH, 2) / WIDTH)
    angles = (places[:, None] * speeds)[None, :, None]
    left, right = jnp.split(x.astype(jnp.float32), 2, -1)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1).astype(x.dtype)


def _mix(block: Block, q: Array, k: Array, v: Array, seen: Array) -> Array:
    """Attention of grouped heads."""
    q = q.reshape(*q.shape[:2], -1, block.groups, WIDTH)
    scores = jnp.einsum("bqhgd,bkhd->bhgqk", q, k, preferred_element_type=jnp.float32) / WIDTH**0.5
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e30)).astype(v.dtype)
    return jnp.einsum("bhgqk,bkhd->bqhgd", weights, v)


def _gated(block: Block, p: Params, y: Array) -> Array:
    inner = ACTIVATIONS[block.activation](_dense(p["gate"], y)) * _dense(p["up"], y)
    return _dense(p["down"], inner)
