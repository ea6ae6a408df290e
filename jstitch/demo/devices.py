"""`python -m jstitch.demo.devices`: one training step on 8 CPU devices, data-, fully and tensor-parallel.

Each layout under `jax.jit` and `jstitch.jit`: the same losses, the same collectives, and kernels in between.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import jstitch

DEVICES = 8
COLLECTIVE = re.compile(r" (all-[a-z-]+?|reduce-scatter|collective-permute)(?:-start)?\(")
Spec = PartitionSpec
LAYOUTS: dict[str, dict[str, Any]] = {
    "data": {"x": ("data",)},
    "fully sharded": {"x": ("data",), "up": ("data",), "down": ("data",), "scale": ("data",)},
    "tensor": {"x": ("data",), "up": (None, "model"), "down": ("model",)},
}


def loss(weights: dict[str, Any], x: Any) -> Any:
    """A normed, gated layer."""
    centred = x - x.mean(-1, keepdims=True)
    normed = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weights["scale"]
    return jnp.mean((jax.nn.gelu(normed @ weights["up"]) @ weights["down"] - x) ** 2)


def step(weights: dict[str, Any], x: Any) -> tuple[dict[str, Any], Any]:
    value, gradients = jax.value_and_grad(loss)(weights, x)
    return jax.tree.map(lambda w, g: w - 0.1 * g - 1e-4 * w, weights, gradients), value


def main() -> None:
    jax.config.update("jax_num_cpu_devices", DEVICES)  # type: ignore[no-untyped-call]
    numbers = np.random.default_rng(0)
    shapes = {"x": (1024, 256), "up": (256, 1024), "down": (1024, 256), "scale": (256,)}
    arrays = {name: numbers.standard_normal(s, np.float32) / 8 for name, s in shapes.items()}
    mesh = jax.make_mesh(
        (4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2, devices=jax.devices("cpu")
    )
    for layout, specs in LAYOUTS.items():
        placed = {
            name: jax.device_put(a, NamedSharding(mesh, Spec(*specs.get(name, ()))))  # type: ignore[no-untyped-call]
            for name, a in arrays.items()
        }
        x = placed.pop("x")
        since = jstitch.record_count()
        stitched, plain = (jit(step).lower(placed, x).compile() for jit in (jstitch.jit, jax.jit))
        print(f"{layout}: {jstitch.stitch_count(since)} kernels on each device")
        for name, compiled in (("jax.jit", plain), ("jstitch.jit", stitched)):
            found = Counter(COLLECTIVE.findall(compiled.as_text() or ""))
            said = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))
            print(f"  {name:12} loss {float(compiled(placed, x)[1]):.6f}, collectives: {said or 'none'}")


if __name__ == "__main__":
    main()
