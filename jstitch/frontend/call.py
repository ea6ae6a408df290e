"""A stitched call: JAX's own `jit` call, whose name also says how to stitch it.

    call_of(f, options)(x)  =>     b = jit[name=f jaxpr={ lambda ; a. let ... in (b,) }] x

To every interpreter of jaxprs, ours and other people's, it is a call of `jit`: differentiated, batched,
checked, discharged, printed and exported by JAX's own rules, all of which keep the name. Only two things look
at it: the lowering (`jstitch.frontend.lowering`) and, since that sees calls inside a program only, the
evaluation of such a call outside of any: it becomes a program of its own.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import jax
from jax.extend.core import jaxpr_as_fun

from jstitch import _jax
from jstitch.options import CompileOptions


class StitchedName(str):
    """A function's name, as people read it, that carries the options of a stitched call.

    It equals no plain string, so that JAX's caches tell a stitched call from a call of the same name.
    owner: the function that is called. Weak, since JAX's caches keep names for longer. about: what the call's
    record says of it, where that is known already.
    """

    __slots__ = ("about", "options", "owner")
    options: CompileOptions
    owner: weakref.ref[Callable[..., Any]]
    about: Mapping[str, Any]

    def __new__(
        cls, name: str, options: CompileOptions, owner: Callable[..., Any], about: Mapping[str, Any]
    ) -> StitchedName:
        new = super().__new__(cls, name)
        new.options = options
        new.owner = weakref.ref(owner)
        new.about = about
        return new

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StitchedName) and str(self) == str(other) and self.options == other.options

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((str(self), self.options))


_programs: WeakKeyDictionary[Callable[..., Any], dict[Any, Any]] = WeakKeyDictionary()
"""Of calls of a function that were evaluated outside other programs: the program of each."""


class Call:
    """A function as one stitched call, for `jax.jit` to trace.

    Arguments without a tracer are static there, and the function's own business. The function is held weakly,
    as JAX holds it: who jits it keeps it alive.
    """

    def __init__(
        self, f: Callable[..., Any], options: CompileOptions, about: Mapping[str, Any] | None = None
    ) -> None:
        self._function = _reference(f)
        self.__name__ = _jax.name_of(f)
        self._name = StitchedName(self.__name__, options, self, about or {})

    def __repr__(self) -> str:
        """The function's: JAX's errors about arguments name what was called."""
        return repr(self._function())

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        f: Callable[..., Any] = self._function()
        return f

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        f = self.__wrapped__
        if not _jax.is_staging() or _jax.disabled_jit():
            return f(*args, **kwargs)
        weakref.ref(f)  # raises what `jax.jit` does when it has something to trace
        numbers = [n for n, arg in enumerate(args) if not _is_dynamic(arg)]
        names = [key for key, arg in kwargs.items() if not _is_dynamic(arg)]
        traced = _jax.trace(f, args, kwargs, numbers, names)
        if traced is None:
            return f(*args, **kwargs)
        # JAX drops a call without results before it looks inside, where it may have to complain.
        if not traced.closed.jaxpr.outvars and not _jax.has_effects(traced.closed):
            outs = jaxpr_as_fun(traced.closed)(*traced.inputs)
        else:
            outs = _jax.bind_jit(traced.closed, traced.inputs, self._name)
        return jax.tree.unflatten(traced.tree, outs)


_calls: WeakKeyDictionary[Callable[..., Any], dict[CompileOptions, Call]] = WeakKeyDictionary()
"""Of functions: a function that is jitted twice is traced once."""


def call_of(f: Callable[..., Any], options: CompileOptions) -> Call:
    """`f` as one stitched call, the same one for equal options."""
    try:
        calls = _calls.setdefault(f, {})
    except TypeError:  # neither hashed nor referred to weakly: JAX says so when it is called
        return Call(f, options)
    known = calls.get(options)
    if known is None or known.__wrapped__ is not f:  # bound methods are equal, and die one by one
        known = calls[options] = Call(f, options)
    return known


def _reference(f: Callable[..., Any]) -> Callable[[], Any]:
    try:
        return weakref.ref(f)
    except TypeError:
        return lambda: f


def _is_dynamic(arg: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arg))


@functools.lru_cache(maxsize=64)
def _program_of_orphan(key: tuple[tuple[str, Any], ...]) -> Any:
    """Of a call whose function is gone, and which some jaxpr still has. They are few, and forgotten."""
    return _jax.program_of(dict(key[:-1]))


def around_evaluation(own: Callable[..., Any]) -> Callable[..., Any]:
    """The evaluation of `jit` outside other programs: `own`, which is JAX's, but for stitched calls."""

    def evaluate(*args: Any, name: str, **params: Any) -> Any:
        if not isinstance(name, StitchedName):
            return own(*args, name=name, **params)
        params = {"name": name, **params}
        key, owner = (*params.items(), ("", _jax.trace_context())), name.owner()
        if owner is None:
            program = _program_of_orphan(key)
        else:
            programs = _programs.setdefault(owner, {})
            program = programs.get(key) or programs.setdefault(key, _jax.program_of(params))
        return own(*args, **{**params, "name": str(name), "jaxpr": program})

    return evaluate
