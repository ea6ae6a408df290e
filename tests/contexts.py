"""Contexts to run passes in: for the CPU as it is shipped, for an H200."""

from __future__ import annotations

from typing import Any

from jstitch.device_spec import find_spec
from jstitch.frontend.target import cuda_profile
from jstitch.options import CompileOptions
from jstitch.passes.base import profile
from jstitch.passes.base.context import Context
from jstitch.passes.base.profile import Profile


def on(target: Profile, **options: Any) -> Context:
    """For that target, with these of the CompileOptions."""
    return Context(CompileOptions(**options), target)


CPU_PROFILE = profile.CPU
H200_PROFILE = cuda_profile(find_spec("h200"))
CPU = on(CPU_PROFILE)
H200 = on(H200_PROFILE)
