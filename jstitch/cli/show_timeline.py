"""`inspect DUMP kernel NAME --show timeline`: the estimated time of each launch, and where its warps wait."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group
from rich.table import Table
from rich.text import Text

from jstitch.cli.files import InputError
from jstitch.codegen.cuda.ptx import PtxError
from jstitch.codegen.cuda.source import Launch
from jstitch.codegen.cuda.timeline.paths import TooLongError
from jstitch.codegen.cuda.timeline.timeline import Timeline, timeline
from jstitch.codegen.launch_ir import Parameter
from jstitch.device_spec import DeviceSpec, find_spec
from jstitch.inspection.dumps import DumpedKernel

_LEFT_OUT = "an estimate: the machine code on a model of a multiprocessor, nothing measured"

_NEARLY = 0.95


def timelines(kernel: DumpedKernel) -> Iterator[tuple[Launch, Timeline, str]]:
    """Every launch, with its PTX. Raises InputError for kernels of CPUs and code that cannot be followed."""
    if not kernel.ptx:
        raise InputError(f"{kernel.name} is for {kernel.target}: only kernels for GPUs have a timeline")
    source = kernel.described["source"]
    described = {fields["function"]: fields for fields in source["launches"]}
    for function, ptx in kernel.ptx.items():
        fields = described[function]
        launch = Launch(**{**fields, "parameters": tuple(Parameter(**p) for p in fields["parameters"])})
        try:
            yield launch, timeline(ptx, source["name"], launch, find_spec(kernel.target)), ptx
        except (PtxError, TooLongError) as error:
            raise InputError(f"{kernel.name}, {function}: {error}") from None


def timeline_table(kernel: DumpedKernel) -> Group:
    """Launches, and the instructions at which their warps wait most."""
    found = list(timelines(kernel))
    spec = find_spec(kernel.target)
    table = Table(title=f"{kernel.name}, {spec.title}: estimated", title_justify="left", caption=_LEFT_OUT)
    heads = "launch", "us", "of peak", "bound by", "CTAs", "of an SM", "rounds", "registers", "units busy"
    for head in heads:
        table.add_column(head, justify="left" if head in ("launch", "bound by", "units busy") else "right")
    waits = [Text()]
    for launch, one, ptx in found:
        table.add_row(*_cells(launch, one))
        waits += _waits(launch, one, ptx.splitlines(), spec)
    return Group(table, *waits)


def _cells(launch: Launch, found: Timeline) -> Iterator[str]:
    lost = "" if found.followed > _NEARLY else f" ({found.followed:.0%} followed)"
    yield launch.function + lost + ("" if found.complete else " (first CTAs)")
    yield f"{found.seconds * 1e6:,.1f}"
    yield f"{found.peak:.0%}"
    yield found.bound
    yield f"{launch.grid:,} x {launch.block}"
    yield f"{found.ctas_per_sm}"
    yield f"{found.rounds:.2f}"
    yield f"{found.resources.registers}"
    busy = sorted(found.units.items(), key=lambda unit: -unit[1])[:3]
    yield ", ".join(f"{name} {share:.0%}" for name, share in busy)


def _waits(launch: Launch, found: Timeline, ptx: list[str], spec: DeviceSpec) -> Iterator[Text]:
    yield Text(f"{launch.function}: of the cycles that warps wait on {spec.arch}")
    for place in found.places:
        source = ptx[place.line - 1].strip() if 0 < place.line <= len(ptx) else ""
        yield Text(f"  {place.share:5.1%} {place.cause:8} {place.instruction:44.44} {source}")
