"""Sharding constraints are opaque ops that name a mesh; the mesh comes along when they are exported."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.frontend.exporter import export_module
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from tests.ir.running import run_with_xla

KEYS = np.array([1, 2], np.uint32)


def _constrained(mesh: str) -> str:
    return f"""module {{
      sdy.mesh @{mesh} = <[]>
      sdy.mesh @unused = <["a"=2]>
      func.func private @inner(%k: tensor<2xui32>) -> tensor<2xui32> {{
        %c = sdy.sharding_constraint %k <@{mesh}, [{{}}]> : tensor<2xui32>
        return %c : tensor<2xui32>
      }}
      func.func @main(%k: tensor<2xui32>) -> tensor<2xui32> {{
        %c = call @inner(%k) : (tensor<2xui32>) -> tensor<2xui32>
        %d = stablehlo.add %c, %k : tensor<2xui32>
        return %d : tensor<2xui32>
      }}
    }}"""


@pytest.mark.parametrize("mesh", ["empty_mesh", '"a mesh"'])
def test_the_mesh_of_a_constraint_is_exported(mesh: str) -> None:
    graph = import_module(parse_module(_constrained(mesh)))
    text = str(export_module(graph))
    assert text.count("sdy.mesh") == 1
    assert f"sdy.mesh @{mesh} = <[]>" in text
    again = import_module(parse_module(text))  # verified: an unknown mesh is an error
    assert [op.name for op in again.walk()] == ["sdy.sharding_constraint", "stablehlo.add"]
    assert run_with_xla(again, [KEYS])[0].tolist() == [2, 4]


def test_typed_keys() -> None:
    """JAX constrains the words of a key, with a mesh without axes."""

    def f(key: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.tanh(x) * jax.random.uniform(key, x.shape)

    key, x = jax.random.key(7), jnp.ones((4, 8))
    lowered = jax.jit(f).lower(key, x).as_text()
    assert "sdy.sharding_constraint" in lowered
    graph = import_module(parse_module(lowered))
    again = import_module(parse_module(str(export_module(graph))))
    (found,) = run_with_xla(again, [np.asarray(jax.random.key_data(key)), np.asarray(x)])
    np.testing.assert_allclose(found, jax.jit(f)(key, x), rtol=1e-6)
