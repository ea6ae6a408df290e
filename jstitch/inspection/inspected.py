"""What is known of a program's stitched calls before anything is compiled: plans, the report's records.

inspect_function(step, (params, batch), {}, options).calls[0].plans[-1].refusals
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jstitch.frontend.mlir import ir
from jstitch.frontend.observe import Observed
from jstitch.inspection.subject import observe_function, observe_module
from jstitch.options import CompileOptions
from jstitch.runtime.report import Record, last_report, record_count


@dataclass(frozen=True)
class Inspected:
    """calls: that reached the pipeline. records: of all calls, in the order of lowering."""

    calls: tuple[Observed, ...]
    records: tuple[Record, ...] = ()


def inspect_module(module: ir.Module, options: CompileOptions) -> Inspected:
    """Raises what `observe_module` raises."""
    return Inspected((observe_module(module, options, kernels=False),))


def inspect_function(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CompileOptions
) -> Inspected:
    """Raises what tracing raises, and OptionError for a target that is not to be had."""
    before = record_count()
    calls = observe_function(f, args, kwargs, options, kernels=False)
    return Inspected(calls, last_report(before))
