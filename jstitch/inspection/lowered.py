"""A function as the StableHLO module that `jax.jit` makes of it, and the arguments that the module takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jstitch.frontend.importer import entry_function
from jstitch.frontend.jitted import Jitted
from jstitch.frontend.mlir import ir


def lower_function(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], platform: str
) -> tuple[ir.Module, list[np.ndarray] | None]:
    """The module, and its arguments; None where some of them are `jax.ShapeDtypeStruct`s.

    f: a plain function, or a `jax.jit` or `jstitch.jit` object. Calls that are stitched inside it stay so.
    Raises what tracing raises.
    """
    jitted = Jitted.of(f)

    def jit(g: Callable[..., Any], **settings: Any) -> Any:
        return jax.jit(g, **{**settings, "keep_unused": True})

    module = jitted.lower(jit, args, kwargs, platform).compiler_ir("stablehlo")
    leaves = jax.tree.leaves(dynamic_arguments(jitted, args, kwargs))
    taken = len(entry_function(module).regions[0].blocks[0].arguments)
    if taken != len(leaves):
        raise ValueError(f"Expected a module with {len(leaves)} arguments, found {taken}.")
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        return module, None
    return module, [_array(leaf) for leaf in leaves]


def dynamic_arguments(jitted: Jitted, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Without the static ones."""
    static = {n % len(args) for n in jitted.settings.get("static_argnums") or () if args}
    names = jitted.settings.get("static_argnames") or ()
    given = tuple(arg for n, arg in enumerate(args) if n not in static)
    return given, {name: arg for name, arg in kwargs.items() if name not in names}


def _array(leaf: Any) -> np.ndarray:
    """In the dtype that JAX gives it; a random key as its numbers."""
    if jnp.issubdtype(jax.typeof(leaf).dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, jax.typeof(leaf).dtype)
