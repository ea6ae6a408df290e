"""What the names around an op say: `Op.scope`, outermost first.

jit(step)/transpose(jvp(encoder))/norm     a backward op, of `norm` in `encoder`
jit(step)/jit(block)#2/...                 of the second function that was inlined: tells its calls apart
jit(step)#2/while/body/...                 of the third turn of a loop that was written out
.../jstitch.fuse_together.7.block/...      of the seventh call that `fuse_together` was asked for

JAX writes jax.named_scope, jitted functions, transformations and its own calls (`while/body`) this way.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

_TOGETHER = re.compile(r"jstitch\.fuse_together\.(?P<call>\d+)(?P<strict>\.strict)?\.(?P<function>\w+)")
_ACTIVATION = re.compile(r"#[\d.]+")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_BACKWARD = "transpose("
_JAX = frozenset(
    {
        *("body", "checkpoint", "closed_call", "cond", "core_call", "custom_jvp_call", "custom_vjp_call"),
        *("custom_vjp_call_jaxpr", "eval_jaxpr", "main", "rematted_computation", "remat", "scan"),
        *("shard_map", "while"),
    }
)
"""What JAX itself calls the bodies of its loops and calls."""


@dataclass(frozen=True)
class Together:
    """One call of a function that is to be one kernel. Its backward ops are a group of their own.

    activations: which of the calls of the functions around it. strict: raise when no kernel can hold it.
    """

    call: int
    function: str
    activations: tuple[str, ...]
    backward: bool
    strict: bool

    def __str__(self) -> str:
        return f"fuse_together({self.function}){' (backward)' if self.backward else ''}"


def together_scope(call: int, function: str, strict: bool) -> str:
    """The name of the scope in which such a call is traced. function: an identifier."""
    return f"jstitch.fuse_together.{call}{'.strict' if strict else ''}.{function}"


@lru_cache(maxsize=4096)
def together(scope: str) -> Together | None:
    """The outermost call of `fuse_together` around an op."""
    found = _TOGETHER.search(scope)
    if found is None:
        return None
    activations = tuple(_ACTIVATION.findall(scope[: found.start()]))
    backward = is_backward(scope[: found.end()])
    return Together(int(found["call"]), found["function"], activations, backward, found["strict"] is not None)


def in_turn(scope: str, loop: str, turn: int) -> str:
    """The scope of an op of a loop's body where that turn is written out. loop: the loop's own scope."""
    return f"{loop}#{turn}{scope[len(loop) :]}" if turn and scope.startswith(loop) else scope


def plain_scope(scope: str) -> str:
    """The scope as JAX wrote it, without the numbers of calls."""
    return _ACTIVATION.sub("", scope)


def common_scope(scopes: Iterable[str]) -> str:
    """The names that are around all of these, outermost first; "" where there are none.

    jit(f)/jvp(mlp)/act, jit(f)/transpose(jvp(mlp))    ->   jit(f)/mlp
    """
    found = (plain_scope(scope).split("/") for scope in dict.fromkeys(scopes) if scope)
    same = itertools.takewhile(lambda level: len(set(map(_bare, level))) == 1, zip(*found, strict=False))
    names = (level[0] if len(set(level)) == 1 else _bare(level[0]) for level in same)
    return "/".join(filter(None, names))


def _bare(name: str) -> str:
    """Without the transformations around it; functions that were jitted stay apart from scopes."""
    return name if name.startswith("jit(") else name.rpartition("(")[2].rstrip(")")


def is_backward(scope: str) -> bool:
    """Whether reverse-mode differentiation made the op."""
    return _BACKWARD in scope


@lru_cache(maxsize=4096)
def innermost_name(scope: str) -> str:
    """The innermost name that somebody gave, by named_scope or fuse_together; "" if there is none."""
    for part in reversed(scope.split("/")):
        part = _ACTIVATION.sub("", part)
        called = _TOGETHER.search(part)
        if called is not None:
            return called["function"]
        inner = part.rpartition("(")[2].rstrip(")")
        given = "jit(" not in part and _NAME.fullmatch(inner) and inner not in _JAX
        if given and not inner.startswith("branch_"):
            return inner
    return ""
