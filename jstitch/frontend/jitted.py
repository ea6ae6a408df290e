"""A function with what it takes to jit it again: with other options, for another device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.stages import Lowered, Wrapped

from jstitch import _jax
from jstitch.frontend.swap import SwappingJit


@dataclass(frozen=True)
class Jitted:
    """function: the user's own. settings: what `jax.jit` was given with it. sharding: where its arrays are
    imagined to be, None = nowhere in particular."""

    function: Callable[..., Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    sharding: NamedSharding | None = None

    @staticmethod
    def of(f: Callable[..., Any], sharding: NamedSharding | None = None) -> Jitted:
        """f: a plain function, or a `jax.jit` or `jstitch.jit` object."""
        if isinstance(f, Wrapped):
            jitted: Any = f.stitched if isinstance(f, SwappingJit) else f
            own: Any = f
            return Jitted(own.__wrapped__, _jax.jit_settings(jitted), sharding)
        return Jitted(f, {}, sharding)

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def lower(
        self, jit: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], platform: str
    ) -> Lowered:
        """Trace and lower for a platform that need not be here. jit: jax's or ours."""
        numbers = self.settings.get("static_argnums") or ()
        names = self.settings.get("static_argnames") or ()
        static = {n % len(args) for n in numbers if args and -len(args) <= n < len(args)}
        shapes = tuple(arg if i in static else self._shapes(arg) for i, arg in enumerate(args))
        named = {name: arg if name in names else self._shapes(arg) for name, arg in kwargs.items()}
        # Where nothing says where the program is to run, its results must.
        nowhere = self.sharding is not None and not jax.tree.leaves((shapes, named))
        placed = {"out_shardings": self.sharding} if nowhere else {}
        jitted = jit(self.function, **self.settings, **placed)
        lowered: Lowered = jitted.trace(*shapes, **named).lower(lowering_platforms=(platform,))
        return lowered

    def _shapes(self, tree: Any) -> Any:
        return jax.tree.map(self._shape, tree)

    def _shape(self, leaf: Any) -> jax.ShapeDtypeStruct:
        """The type of an array, on the imagined device."""
        aval = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
        weak = bool(getattr(aval, "weak_type", False))
        return jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
            aval.shape, aval.dtype, sharding=self._place(leaf), weak_type=weak
        )

    def _place(self, leaf: Any) -> NamedSharding | None:
        """An array's own sharding, on the imagined devices where it has as many."""
        own, imagined = own_sharding(leaf), self.sharding
        if imagined is None or own is None or own.mesh.size != imagined.mesh.size:
            return imagined or own
        devices = imagined.mesh.devices.reshape(tuple(own.mesh.shape.values()))
        return NamedSharding(Mesh(devices, own.mesh.axis_names), own.spec)


def own_sharding(leaf: Any) -> NamedSharding | None:
    """Of an array on several devices: its program is another one than that of an array on one."""
    own = getattr(leaf, "sharding", None)
    return own if isinstance(own, NamedSharding) and own.mesh.size > 1 else None
