"""A pass with a name, as data: what it takes, what it gives, its options.

    NamedPass("gate", Form.PLAN, Form.PLAN, gate, about=gate).bind({"margin": ["0.9"]}).run(plan, context)

A pass's keyword-only parameters are its options. What a pass raises says in a note which one it was.
"""

from __future__ import annotations

import enum
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_type_hints

from jstitch.errors import ParseError
from jstitch.passes.base.context import Context, Span

_PASS = "  pass:  "  # begins a note


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """Around a pass and what checks its result: what is raised gets a note with the pass's name.

    Of passes inside each other, the inner one's.
    """
    try:
        yield
    except Exception as error:
        if not blamed(error):
            error.add_note(f"{_PASS}{name}")
        raise


def blamed(error: BaseException) -> str:
    """The name of the pass that raised it; "" when it was none."""
    notes = getattr(error, "__notes__", ())
    return next((note.removeprefix(_PASS) for note in notes if note.startswith(_PASS)), "")


class Form(enum.Enum):
    """What a pass takes or gives."""

    GRAPH = "graph"
    PLAN = "plan"
    KERNEL = "kernel"


@dataclass(frozen=True)
class NamedPass:
    """A pass by name. run_on: from what it takes to what it gives; about: the function that explains it.

    settings: of its options, those that are not at their defaults.
    """

    name: str
    takes: Form
    gives: Form
    run_on: Callable[..., Any]
    about: Callable[..., Any]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def run(self, subject: Any, context: Context) -> Any:
        """A Graph, a FusionPlan or a Kernel from one. Raises what the pass raises."""
        begun = time.perf_counter()
        with blaming(self.name):
            made = self.run_on(subject, context, **self.settings)
        if context.watch is not None:
            context.watch(Span(self.name, self.gives.value, begun, time.perf_counter()))
        return made

    def __str__(self) -> str:
        """As one types it: `unroll_loops{trips=4 ops=100}`."""
        options = " ".join(f"{name}={_written(value)}" for name, value in self.settings.items())
        return f"{self.name}{{{options}}}" if options else self.name

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Its options and their values where none is given; None: what the compile options say."""
        parameters = inspect.signature(self.run_on).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def bind(self, texts: Mapping[str, Sequence[str]]) -> NamedPass:
        """The pass with these options. Raises ParseError for an option or a value that it cannot have."""
        types = get_type_hints(self.run_on)
        for name in texts:
            if name not in self.defaults:
                known = ", ".join(self.defaults) or "none"
                raise ParseError(f"an option of {self.name}: {known}", name)
        settings = {name: _read(self.name, name, types[name], words) for name, words in texts.items()}
        return NamedPass(self.name, self.takes, self.gives, self.run_on, self.about, settings)

    @property
    def what(self) -> str:
        """One line: of the module that is named after it, else of its function."""
        own = self.about.__module__.rpartition(".")[2] == self.about.__name__
        text = inspect.getdoc(inspect.getmodule(self.about) if own else self.about)
        return (text or "").partition("\n")[0]


def _written(value: Any) -> str:
    """What `_read` reads."""
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def _read(owner: str, name: str, wanted: Any, words: Sequence[str]) -> Any:
    """One option's value. Lists are written a,b,c."""
    if wanted == tuple[str, ...] | None:
        return tuple(words)
    single = next(t for t in (bool, int, float) if t is wanted or wanted == t | None)
    try:
        (word,) = words
        return {"true": True, "false": False}[word] if single is bool else single(word)
    except (KeyError, ValueError):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}[single]
        raise ParseError(f"{owner}{{{name}=...}} to be {kind}", ",".join(words)) from None


graph_pass = partial(NamedPass, takes=Form.GRAPH, gives=Form.GRAPH)
planner_pass = partial(NamedPass, takes=Form.GRAPH, gives=Form.PLAN)
plan_pass = partial(NamedPass, takes=Form.PLAN, gives=Form.PLAN)
kernel_pass = partial(NamedPass, takes=Form.KERNEL, gives=Form.KERNEL)
