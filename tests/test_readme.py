"""README and docs stay true: CI runs README's commands, generated parts are current, links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import shlex
import types
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from tests.pages import PAGES, ROOT

README = (ROOT / "README.md").read_text()
DUMPED_WITH = "0.10."  # StableHLO, and so the dumps shown, differ between jax releases


def test_ci_runs_exactly_the_commands_of_readme() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    shown = [line for block in blocks for line in block.splitlines()]
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    run = [shlex.split(line)[1] for line in lines if line.startswith("readme ")]
    assert len(shown) == len(set(shown)) > 3
    assert set(shown) == set(run)


@cache
def refresh() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("refresh", ROOT / "docs" / "refresh.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parts() -> list[Any]:
    found = []
    for page in PAGES:
        for match in re.finditer(
            r"<!-- generated: (.*?) -->\n(.*?)\n<!-- end -->", page.read_text(), re.DOTALL
        ):
            of_a_dump = "table" not in match[1]
            other = of_a_dump and not jax.__version__.startswith(DUMPED_WITH)
            mark = pytest.mark.skipif(other, reason=f"the dumps shown are those of jax {DUMPED_WITH}x")
            found.append(pytest.param(match[1], match[2], marks=mark, id=f"{page.name}: {match[1]}"))
    return found


@pytest.mark.parametrize(("name", "shown"), parts())
def test_generated_parts_are_up_to_date(name: str, shown: str) -> None:
    assert refresh().PARTS[name]() == shown, "run `python docs/refresh.py`"


def test_every_generated_part_is_shown() -> None:
    shown = {name for page in PAGES for name in re.findall(r"<!-- generated: (.*?) -->", page.read_text())}
    assert shown == set(refresh().PARTS)


def test_the_example_is_one_kernel_with_the_right_result() -> None:
    block = re.search(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert block is not None
    example: dict[str, Any] = {}
    exec(block[1], example)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(8, 128, 512)), jnp.bfloat16)
    mask = jnp.asarray(rng.random((8, 128, 512)) < 0.9)
    since = jstitch.record_count()
    found = example["masked_softmax"](x, mask)
    assert jstitch.stitch_count(since) == 1
    expected = jax.jit(example["masked_softmax"].__wrapped__)(x, mask)
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=2**-7)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_named_paths_exist() -> None:
    """Paths of the project's code that the pages mention in backticks."""
    for page in PAGES:
        for path in re.findall(r"`((?:jstitch|passes|codegen|tests|docs)/[\w./]+)`", page.read_text()):
            assert (ROOT / path).exists(), f"{page.name} mentions {path}"
