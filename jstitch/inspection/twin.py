"""`jstitch.plan` and `jstitch.explain`: what the commands show, of a function in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jstitch.frontend.jitted import Jitted
from jstitch.inspection.explain import explain_program
from jstitch.inspection.explanation import Explanation
from jstitch.inspection.inspected import inspect_function
from jstitch.inspection.program_plan import ProgramPlan, plan_program
from jstitch.options import CompileOptions


def plan_function(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CompileOptions
) -> ProgramPlan:
    """Of `jit(f, options=options)(*args, **kwargs)`. Raises what tracing raises."""
    seen = inspect_function(f, args, kwargs, options)
    return plan_program(Jitted.of(f).name, seen.calls, seen.records)


def explain_function(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CompileOptions
) -> Explanation:
    """Of `jit(f, options=options)(*args, **kwargs)`. Raises what tracing raises."""
    return explain_program(Jitted.of(f).name, inspect_function(f, args, kwargs, options))
