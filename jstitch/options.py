"""Compile options: the one place for the project's knobs, and the only reader of JSTITCH_* variables."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jstitch.device_spec import DeviceSpec, find_spec
from jstitch.errors import JstitchWarning, OptionError, ParseError
from jstitch.plan_file import read_plan
from jstitch.template import parse_template

T = TypeVar("T")

PRESETS = {"fs2018": 1, "fs2019": 8, "fs2021": 8}
"""The papers as published, and how many templates of each kernel they try."""
PLANNERS = ("auto", "layers", "ilp", "dp", *PRESETS)
SCHEMES = ("packing", "thread", "warp", "block")
TECHNIQUES = (
    *("remote", "sharing", "shrinking", "columns", "chains", "recurrences", "sorts", "blocks"),
    *("tf32", "memory_order", "unroll_and_jam", "components"),
    *("templates", "roofs", "footprints", "substitution", "seeds", "beams", "evaluator"),
)
"""Parts of passes; those of the last line are the papers', and decide in the planners that have them."""
OPTIONAL_PASSES = (
    *(
        "narrow_collectives",
        "sink_collectives",
        "join_collectives",
        "split_complex",
        "linearize_iotas",
        "roll_loops",
        "unroll_loops",
        "divide_windows",
        "write_selections",
        "hoist_invariants",
        "write_sorts",
        "write_top_k",
        "write_taps",
        "unstack_reductions",
        "unroll_windows",
        "rewrite_argmax",
        "rewrite_one_hot_scatter",
        "write_scatters",
        "batch_gathers",
    ),
    *(
        "chain_scatters",
        "recompute_stacks",
        "fold_transposes",
        "hoist_products",
        "sink_products",
        "sink_sums",
        "unroll_turns",
        "multiply_products",
        "reduce_products",
        "narrow_products",
    ),
    *("join_sums", "merge_products", "swap_products", "align_rows", "cancel_transposes"),
    *("turn_products", "lead_products", "turn_gradients", "turn_weights"),
    *(
        "cse",
        "hoist_slices",
        "group_collectives",
        "chunk_rows",
        "clone_broadcasts",
        "clone_indices",
        "leave_sums",
        "leave_unset",
    ),
    *("merge_patterns", "choose_schedules", "hand_over"),
    *("weigh_cuts", "recompute_outputs", "split_prologues", "pack_patterns", "tile_chains"),
    *(
        "block_transposes",
        "nest_rows",
        "distribute_loops",
        "bound_exponents",
        "divide_by_invariants",
        "tile_products",
        "round_products",
    ),
    *("stream_results", "pair_halves", "prefetch_rows", "time_phases"),
    *("in_strips", "widen_teams", "prefetch_turns"),
)
"""Passes without which programs are right all the same."""
TUNES = ("model", "off", "measure")
ELSEWHERE = frozenset(
    (
        *("dump_dir", "reproducer_dir", "print_after", "cache_dir", "keep_plans", "race_seconds"),
        *("async_compile", "export_kernels", "strict"),
    )
)
"""Options that say where things go and when, not what is made."""
_PREFIX = "JSTITCH_"
_LOG = "LOG"
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _flag(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"one of {', '.join(_TRUE + _FALSE[:-1])}")


def _count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number") from None


def _text(text: str) -> str | None:
    return text or None


def _knob(name: str, default: T, read: Callable[[str], Any]) -> T:
    """A field whose default is the variable JSTITCH_<NAME>, read when options are made; else `default`."""

    def value() -> Any:
        text = os.environ.get(_PREFIX + name)
        if text is None:
            return default
        try:
            return read(text)
        except ValueError as error:
            raise OptionError(
                str(error), f"'{text}'", where=f"environment variable {_PREFIX}{name}", hint="unset or fix it"
            ) from None

    return dataclasses.field(default_factory=value, metadata={"default": default})  # type: ignore[no-any-return]


@dataclass(frozen=True)
class CompileOptions:
    """How to stitch. Hashable: part of jit's cache key. Every field has a `JSTITCH_<FIELD>` variable.

    target: 'cpu', a GPU ('h200', 'sm_90', a DeviceSpec), None = what the program is lowered for and runs on.
    planner: which fusion planner runs; fs2018, fs2019 and fs2021 are FusionStitching's as published. schemes:
    composition schemes that it may use.
    without: techniques switched off to see what they bring: 'remote' fusion of patterns with nothing in
    common, 'sharing' of arena bytes, 'shrinking' of what is kept when it does not fit, programs that own
    'columns' where sums would cross rows, 'components' of rows of a few elements, 'chains' of products in
    one kernel, 'blocks' of the columns between these, 'templates' beyond the first; of the papers'
    planners 'roofs' of layers, 'footprints' of packs, 'substitution' and 'seeds' of candidates, 'beams'
    beside the first, and the 'evaluator' that judges them; passes by name (those of `jstitch passes` that
    programs are right without).
    tune: 'model' stitches what the cost model expects to pay, 'off' everything that can be, 'measure' what is
    faster than XLA's own on this device, once. tune_seconds: most seconds of measuring for one function.
    ask_seconds: most seconds, as estimated by their ops, of compiling programs to see what one function with
    matrix products costs by XLA:GPU, with kernels and without; 0 takes the model's word.
    race_seconds: most seconds of racing one function with kernels against XLA's own version, on this CPU, in
    the background, once: kernels that are slower are left out when it is compiled again. 0 never races.
    templates: schedules tried per kernel, of which the one that is modelled to be fastest is built.
    template: how kernels are to be divided, in the notation of docs/schedules.md: every kernel that has all
    of the ops it names is built exactly so, or not at all.
    plan: a file of `jstitch plan --save`, whose kernels are built: neither models nor clocks decide.
    arena_bytes: most scratch bytes per kernel program, None = the target's own budget.
    dump_dir: folder for one readable file per stage. reproducer_dir: folder for one file per call that a pass
    fails on, with which `jstitch opt --run-reproducer` fails the same way. print_after: passes whose result
    is printed.
    cache_dir: folder of the kernel cache, None = the user's cache folder. keep_plans: what was decided of a
    call is kept there, too, and the next process that compiles the same call plans nothing.
    calibrated: reckon with what `jstitch calibrate` measured on this machine, where it did.
    async_compile: `jit` runs XLA's version until the stitched one is compiled, in the background.
    export_kernels: `jax.export` keeps stitched kernels, instead of portable operations.
    verify: check every IR between passes, not only the kernels that are built. strict: raise where the
    default is to fall back to XLA.
    Raises OptionError on values that a field cannot have.
    """

    target: str | DeviceSpec | None = _knob("TARGET", None, _text)  # noqa: RUF009
    planner: str = _knob("PLANNER", "layers", str)
    schemes: tuple[str, ...] = _knob("SCHEMES", SCHEMES, _names)
    without: tuple[str, ...] = _knob("WITHOUT", (), _names)
    tune: str = _knob("TUNE", "model", str)
    tune_seconds: float = _knob("TUNE_SECONDS", 20.0, _number)
    ask_seconds: float = _knob("ASK_SECONDS", 30.0, _number)
    race_seconds: float = _knob("RACE_SECONDS", 3.0, _number)
    templates: int = _knob("TEMPLATES", 1, _count)
    template: str | None = _knob("TEMPLATE", None, _text)
    plan: str | None = _knob("PLAN", None, _text)
    arena_bytes: int | None = _knob("ARENA_BYTES", None, _count)
    dump_dir: str | None = _knob("DUMP_DIR", None, _text)
    reproducer_dir: str | None = _knob("REPRODUCER_DIR", None, _text)
    print_after: tuple[str, ...] = _knob("PRINT_AFTER", (), _names)
    cache_dir: str | None = _knob("CACHE_DIR", None, _text)
    keep_plans: bool = _knob("KEEP_PLANS", True, _flag)
    calibrated: bool = _knob("CALIBRATED", True, _flag)
    async_compile: bool = _knob("ASYNC_COMPILE", False, _flag)
    export_kernels: bool = _knob("EXPORT_KERNELS", False, _flag)
    verify: bool = _knob("VERIFY", False, _flag)
    strict: bool = _knob("STRICT", False, _flag)

    def __post_init__(self) -> None:
        _report_unknown([*(field.name.upper() for field in dataclasses.fields(self)), _LOG])
        self._normalize()
        if self.target not in (None, "cpu"):
            _check_gpu(self.target)
        _check("planner", self.planner, PLANNERS)
        _check("tune", self.tune, TUNES)
        for scheme in self.schemes:
            _check("schemes", scheme, SCHEMES)
        for technique in self.without:
            _check("without", technique, (*TECHNIQUES, *OPTIONAL_PASSES))
        self._check_seconds("tune_seconds", "0 never measures")
        self._check_seconds("ask_seconds", "0 never asks")
        self._check_seconds("race_seconds", "0 never races")
        if self.templates < 1:
            raise OptionError(
                "templates to be at least 1", str(self.templates), hint="1 takes the first schedule"
            )
        if self.template is not None:
            _check_template(self.template)
        if self.plan is not None:
            _check_plan(self.plan)
        if self.arena_bytes is not None and self.arena_bytes <= 0:
            raise OptionError(
                "a positive arena_bytes", str(self.arena_bytes), hint="use None for the default"
            )

    def _check_seconds(self, field: str, hint: str) -> None:
        seconds = getattr(self, field)
        if not seconds >= 0:  # NaN must fail too
            raise OptionError(f"{field} to be at least 0", str(seconds), hint=hint)

    def _normalize(self) -> None:
        """Accept a comma-separated string for name lists, and path objects for folders."""
        for field in ("schemes", "without", "print_after"):
            value = getattr(self, field)
            object.__setattr__(self, field, _names(value) if isinstance(value, str) else tuple(value))
        for field in ("dump_dir", "reproducer_dir", "cache_dir", "plan"):
            value = getattr(self, field)
            object.__setattr__(self, field, None if value is None else os.fspath(value))

    @property
    def tried(self) -> int:
        """Templates of each kernel: as many as `templates` says, or as the planner's paper tries."""
        if "templates" in self.without:
            return 1
        return max(self.templates, PRESETS.get(self.planner, 1))

    @property
    def deciding(self) -> dict[str, Any]:
        """Fields that what is made depends on, but for the target and what is checked on the way."""
        names = (field.name for field in dataclasses.fields(self))
        return {n: getattr(self, n) for n in names if n not in ELSEWHERE | {"target", "verify"}}

    def replace(self, **changes: Any) -> CompileOptions:
        """A copy with these fields changed."""
        return dataclasses.replace(self, **changes)


def wanted_log() -> str:
    """JSTITCH_LOG: what the process logs, which is nobody's option. See jstitch.runtime.telemetry."""
    return os.environ.get(_PREFIX + _LOG, "")


_reported: set[str] = set()


def _report_unknown(known: Sequence[str]) -> None:
    """One warning for each JSTITCH_* variable that no option has."""
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX) not in known and name not in _reported:
            _reported.add(name)
            names = ", ".join(_PREFIX + field for field in known)
            warnings.warn(
                f"Environment variable {name} means nothing to jstitch; expected {names}.",
                JstitchWarning,
                stacklevel=4,
            )


def _check_gpu(target: str | DeviceSpec) -> None:
    try:
        find_spec(target)
    except OptionError as error:
        raise OptionError(f"target to be 'cpu' or {error.expected}", error.found, hint=error.hint) from None


def _check_template(text: str) -> None:
    try:
        parse_template(text)
    except ParseError as error:
        raise OptionError(error.expected, error.found, where=error.where, hint=error.hint) from None


def _check_plan(path: str) -> None:
    try:
        read_plan(path)
    except ParseError as error:
        raise OptionError(error.expected, error.found, where=error.where, hint=error.hint) from None
    except OSError as error:
        hint = "make one: jstitch plan PROGRAM --save FILE"
        raise OptionError("a saved plan", f"{path}: {error.strerror or error}", hint=hint) from None


def _check(field: str, value: str | None, allowed: tuple[str | None, ...]) -> None:
    if value not in allowed:
        names = ", ".join(map(repr, allowed))
        raise OptionError(
            f"{field} to be one of {names}",
            repr(value),
            hint=f"set CompileOptions({field}=...) or {_PREFIX}{field.upper()} to one of them",
        )
