"""`jstitch.plan` and `jstitch.explain`: what the commands show, of a function in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from jstitch.frontend.jitted import Jitted
from jstitch.inspection.explain import explain_program
from jstitch.inspection.explanation import Explanation
from jstitch.inspection.inspected import Inspected, inspect_function
from jstitch.inspection.program_plan import ProgramPlan, plan_program
from jstitch.inspection.report.data import report_data
from jstitch.inspection.report.page import report_html
from jstitch.options import CompileOptions


def plan_function(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CompileOptions
) -> ProgramPlan:
    """Of `jit(f, options=options)(*args, **kwargs)`. Raises what tracing raises."""
    name, seen = Jitted.of(f).name, inspect_function(f, args, kwargs, options)
    made = plan_program(name, seen.calls, seen.records)
    return replace(made, page=partial(_page, name, seen))


def explain_function(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CompileOptions
) -> Explanation:
    """Of `jit(f, options=options)(*args, **kwargs)`. Raises what tracing raises."""
    name, seen = Jitted.of(f).name, inspect_function(f, args, kwargs, options)
    return replace(explain_program(name, seen), page=partial(_page, name, seen))


def _page(name: str, seen: Inspected) -> str:
    """With lines of the source files: who asks has the function."""
    return report_html(report_data(name, seen, lines=True))
