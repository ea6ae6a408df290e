"""`analyze(f, *args, target="h200")`: what XLA and jstitch would launch on a GPU, without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.stages import Lowered

from jstitch.analysis.least import least
from jstitch.analysis.report import Analysis, Side
from jstitch.device_spec import DeviceSpec, find_spec
from jstitch.frontend.jitted import Jitted, own_sharding
from jstitch.frontend.stitch import jit_observed
from jstitch.options import CompileOptions
from jstitch.runtime.report import Record, last_report, record_count
from jstitch.xla.compile import AnalysisError, compile_lowered, device_sharding
from jstitch.xla.launches import Program, launches
from jstitch.xla.traffic import Traffic


def analyze(
    f: Callable[..., Any],
    *args: Any,
    target: str | DeviceSpec = "h200",
    options: CompileOptions | None = None,
    devices: int | None = None,
    **kwargs: Any,
) -> Analysis:
    """Compile `f(*args, **kwargs)` twice for `target` with XLA:GPU, plain and stitched, and count.

        print(jstitch.analyze(jax.grad(loss), params, batch, target="h200"))

    f: a function, or a `jax.jit` or `jstitch.jit` object, whose static and donated arguments are kept.
    args, kwargs: arrays, or `jax.ShapeDtypeStruct`s in their place; nothing is computed.
    target: 'h200', 'sm_90', a DeviceSpec. options: as for `jstitch.jit`; its target is replaced.
    devices: how many of them; None: as many as the arguments' meshes have. Arguments keep their
    `NamedSharding`s (an `AbstractMesh` will do), those without one are whole on each device; what is counted
    is one device's share, and `f` must say shardings inside it without naming devices.
    Needs JAX's CUDA plugin (`pip install 'jstitch[analyze]'`), no GPU, no driver, no CUDA toolkit.
    Raises AnalysisError when the plugin is missing or XLA cannot compile f, OptionError for unknown targets.
    """
    chosen = (options or CompileOptions(),)
    return analyze_each(f, chosen, *args, target=target, devices=devices, **kwargs)[0]


def analyze_each(
    f: Callable[..., Any],
    options: Sequence[CompileOptions],
    *args: Any,
    target: str | DeviceSpec = "h200",
    devices: int | None = None,
    **kwargs: Any,
) -> tuple[Analysis, ...]:
    """`analyze` with each of several options; XLA's own program is compiled once."""
    spec = find_spec(target)
    meshes = (s.mesh.size for s in map(own_sharding, jax.tree.leaves((args, kwargs))) if s is not None)
    program = Jitted.of(f, device_sharding(spec, devices or max(meshes, default=1)))
    plain = _side(program.lower(jax.jit, args, kwargs, "cuda"), spec, {})
    return tuple(_compare(program, plain, spec, one, args, kwargs) for one in options)


def _compare(
    program: Jitted,
    plain: Side,
    spec: DeviceSpec,
    options: CompileOptions,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Analysis:
    """The stitched side, next to the plain one."""
    chosen = replace(options, target=spec)
    since = record_count()
    lowered = program.lower(lambda g, **settings: jit_observed(g, chosen, **settings), args, kwargs, "cuda")
    records = last_report(since)
    stitched = _side(lowered, spec, kernel_traffic(records))
    reasons = dict.fromkeys(record.reason for record in records if record.reason is not None)
    count = program.sharding.mesh.size if program.sharding is not None else 1
    shardings = (s for record in records for s in record.details.get("shardings", ()))
    return Analysis(program.name, spec, plain, stitched, tuple(reasons), count, tuple(shardings))


def kernel_traffic(records: tuple[Record, ...]) -> dict[str, Traffic]:
    """Bytes that stitched kernels move, by entry name: (read, written) from their lowering's records."""
    return {
        entry: Traffic(read, written)
        for record in records
        for entry, (read, written) in record.details.get("bytes", {}).items()
    }


def _side(lowered: Lowered, spec: DeviceSpec, known: Mapping[str, Traffic]) -> Side:
    """With the better of XLA's two ways to multiply matrices: it cannot time them without the device."""
    try:
        first = _count(compile_lowered(lowered, spec, library_gemms=False), known)
    except AnalysisError:
        return _count(compile_lowered(lowered, spec, library_gemms=True), known, library_gemms=True)
    if not first.gemm_launches:
        return first
    second = _count(compile_lowered(lowered, spec, library_gemms=True), known, library_gemms=True)
    return min(first, second, key=lambda side: side.modelled_seconds)


def _count(program: Program, known: Mapping[str, Traffic], *, library_gemms: bool = False) -> Side:
    program = replace(program, known=known)
    kernels, loops = launches(program)
    return Side(kernels, loops, library_gemms, least(program), program.temporaries)
