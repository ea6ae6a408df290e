"""What is looked at: a StableHLO module or a function, taken through the whole pipeline; nothing is run.

observe_module(parse_module(text), CompileOptions(target="h200")).plans
observe_function(step, (params, batch), {}, CompileOptions(target="cpu"))[0].built
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from jstitch.errors import OptionError
from jstitch.frontend.dump import open_dump
from jstitch.frontend.importer import entry_function, import_module
from jstitch.frontend.jitted import Jitted
from jstitch.frontend.lowering import donation_map
from jstitch.frontend.mlir import ir
from jstitch.frontend.observe import Observed, observing
from jstitch.frontend.op_times import with_times
from jstitch.frontend.rewrite import rewrite_graph
from jstitch.frontend.stitch import jit_observed
from jstitch.frontend.target import Target, find_target
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context


def platform_of(options: CompileOptions) -> str:
    """'cpu' or 'cuda'; without a target, what this process runs on."""
    if options.target is None:
        return "cuda" if jax.default_backend() == "gpu" else "cpu"
    return "cpu" if options.target == "cpu" else "cuda"


def target_of(options: CompileOptions) -> Target:
    """Raises OptionError where there is no such target."""
    found = find_target(platform_of(options), options)
    if isinstance(found, str):
        raise OptionError("a target that can be planned for", found, hint="target='cpu' or a GPU's name")
    return found


def observe_module(
    module: ir.Module, options: CompileOptions, name: str = "main", *, kernels: bool = True
) -> Observed:
    """Its entry function, as if it were one stitched call that is the whole program.

    kernels: make kernels, too, not only plans.

    Raises ValueError without an entry function, OptionError for a target that is not to be had, and
    whatever the pipeline raises.
    """
    graph, target = import_module(module), target_of(options)
    arguments = list(entry_function(module).regions[0].blocks[0].arguments)
    context = with_times(Context(options, target.profile))
    with observing(kernels=_wanted(kernels, options)) as calls:
        rewrite_graph(
            *(graph, context, name, open_dump(context, name), target.backend),
            donated=donation_map(arguments),
            arguments=range(len(arguments)),
        )
    return calls[0]


def observe_function(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: CompileOptions,
    *,
    kernels: bool = True,
) -> tuple[Observed, ...]:
    """Every stitched call in `jstitch.jit(f, options=options)(*args, **kwargs)`, in the order of lowering.

    args: arrays, or `jax.ShapeDtypeStruct`s in their place. f: as for `jstitch.analyze`. kernels: make
    kernels, too, not only plans.
    """

    def jit(g: Callable[..., Any], **settings: Any) -> Any:
        return jit_observed(g, options, **settings)

    target_of(options)
    with observing(kernels=_wanted(kernels, options)) as calls:
        Jitted.of(f).lower(jit, args, kwargs, platform_of(options))
    return tuple(calls)


def _wanted(kernels: bool, options: CompileOptions) -> bool:
    """Plans that are measured are made of kernels."""
    return kernels or options.tune == "measure"
