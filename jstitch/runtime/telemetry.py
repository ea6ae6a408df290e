"""What jstitch tells whoever monitors it: events of `jax.monitoring`, and the loggers below `jstitch`.

emit(FALLBACKS, function="step", reason="symbolic shapes")
logger("fusion").info("%s: %d kernels", "step", 3)

Both are silent until somebody listens: a listener of jax.monitoring, a handler or level of `logging`, or
JSTITCH_LOG. Those who know tell it in few places: the report's records, the kernel cache, the library.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from jax import monitoring

from jstitch.errors import JstitchWarning

ROOT = "jstitch"
AREAS: Mapping[str, str] = {
    "fusion": "what each stitched call became, or why it stays XLA's; debug: kernels, and what is not fused",
    "cache": "compiled kernels that are missing on disk; debug: those that are found",
    "compile": "how long the compilation of each kernel took",
    "tune": "what was measured, or asked of XLA, and who runs a pattern or a function therefore",
}
"""Loggers below `jstitch`, by the last part of their names."""
EVERY_AREA = "all"


@dataclass(frozen=True)
class Event:
    """kind: 'event', 'duration' in seconds, or 'scalar'. labels: in order. when: it is recorded."""

    name: str
    kind: str
    labels: tuple[str, ...]
    when: str


CALLS = Event("/jstitch/stitched_calls", "event", ("function",), "a stitched call was lowered with kernels")
KERNELS = Event("/jstitch/kernels", "scalar", ("function",), "the same; how many kernels it has")
FALLBACKS = Event(
    "/jstitch/fallbacks", "event", ("function", "reason"), "a stitched call was lowered as XLA's own program"
)
STITCHING = Event(
    "/jstitch/stitch_duration",
    "duration",
    ("function",),
    "a stitched call was lowered, either way; with the kernels that were compiled and measured for it",
)
BACKGROUND = Event(
    "/jstitch/background_duration", "duration", ("function",), "`async_compile` has compiled a function"
)
HITS = Event("/jstitch/cache/hits", "event", ("target",), "a compiled kernel was found on disk")
MISSES = Event("/jstitch/cache/misses", "event", ("target",), "it was not, and is compiled")
COMPILATION = Event("/jstitch/compile_duration", "duration", ("target",), "a kernel was compiled")
VERDICTS = Event(
    "/jstitch/tune/verdicts",
    "event",
    ("kind", "choice", "how"),
    "it was decided who runs a 'pattern' or a 'function', or who won a 'race' in the background: 'measured',"
    " or 'modelled' where it could not be",
)
EVENTS = (CALLS, KERNELS, FALLBACKS, STITCHING, BACKGROUND, HITS, MISSES, COMPILATION, VERDICTS)


def emit(event: Event, value: float = 1, **labels: str) -> None:
    """Tell the listeners; what they raise is a warning. value: of durations, in seconds, and of scalars."""
    ordered = {label: labels[label] for label in event.labels}
    try:
        match event.kind:
            case "duration":
                monitoring.record_event_duration_secs(event.name, value, **ordered)
            case "scalar":
                monitoring.record_scalar(event.name, value, **ordered)
            case _:
                monitoring.record_event(event.name, **ordered)
    except Exception as error:
        warnings.warn(
            f"a listener of jax.monitoring failed on {event.name}: {type(error).__name__}: {error}",
            JstitchWarning,
            stacklevel=2,
        )


def logger(area: str) -> logging.Logger:
    """Of one of AREAS."""
    return logging.getLogger(f"{ROOT}.{area}")


def start_logging(wanted: str) -> None:
    """What JSTITCH_LOG asks for, on standard error: areas, with a + those whose debug lines are wanted too.

    fusion,+cache    An unknown area is one warning, and the others are shown.
    """
    root = logging.getLogger(ROOT)
    root.addHandler(logging.NullHandler())
    levels = dict(map(_level, filter(None, map(str.strip, wanted.split(",")))))
    unknown = levels.keys() - {*AREAS, EVERY_AREA}
    if unknown:
        known, found = ", ".join((*AREAS, EVERY_AREA)), ", ".join(map(repr, sorted(unknown)))
        warnings.warn(
            f"expected JSTITCH_LOG to name {known}, separated by commas, with a + for debug lines;"
            f" found {found}, which shows nothing.",
            JstitchWarning,
            stacklevel=2,
        )
    everywhere = levels.get(EVERY_AREA)
    shown = levels if everywhere is None else {**dict.fromkeys(AREAS, everywhere), **levels}
    shown = {area: level for area, level in shown.items() if area in AREAS}
    for area, level in shown.items():
        logger(area).setLevel(level)
    if shown:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        root.addHandler(handler)
        root.propagate = False  # the program's own handlers would show the lines once more


def _level(name: str) -> tuple[str, int]:
    return name.removeprefix("+"), logging.DEBUG if name.startswith("+") else logging.INFO
