from __future__ import annotations

from collections.abc import Iterator

import pytest

from jstitch.device_spec import find_spec
from jstitch.frontend.target import cuda_profile
from jstitch.passes.base import profile


@pytest.fixture
def h200() -> Iterator[None]:
    """Passes run as for this GPU."""
    with profile.using(cuda_profile(find_spec("h200"))):
        yield
