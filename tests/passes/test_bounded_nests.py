"""What one loop would have to compute again and again is left to XLA, at once."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.passes.lower import build_nest
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.expect_values import ExpectedValues


def f(x: Any) -> Any:
    return jnp.tanh(jnp.sin(x) * 2.0 + jnp.cos(x)) / (1.0 + x * x)


def test_a_loop_of_too_many_values_is_xlas(monkeypatch: pytest.MonkeyPatch) -> None:
    options = jstitch.CompileOptions(tune="off")
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    monkeypatch.setattr(build_nest, "MOST_VALUES", 3)
    found = jstitch.jit(f, options=options)(x)
    assert jstitch.last_report()[-1].kernels == 0
    assert "more than 3 values" in str(jstitch.last_report()[-1].details)
    np.testing.assert_allclose(found, jax.jit(f)(x), rtol=1e-6)


@pytest.mark.parametrize(("rows", "each", "refused"), [(175, 14, True), (175, 11, False), (4, 700, False)])
def test_a_few_rows_tell_of_all(rows: int, each: int, refused: bool) -> None:
    expected = ExpectedValues(rows)
    told = pytest.raises(CannotLowerError, match="more than 2048 values") if refused else nullcontext()
    with told:
        for done in range(rows):
            expected.look(done, 20 + each * (done - 1) if done else 0)
            assert not refused or done < rows // 8
