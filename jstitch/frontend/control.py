"""What users decide themselves: `no_fuse(x)` and `fuse_together(f)`.

    y = jstitch.no_fuse(jnp.exp(x))                 what reads y is never in the kernel that makes it
    norm = jstitch.fuse_together(norm)              each call of norm becomes one kernel

`no_fuse` is a primitive, linear and elementwise, that lowers to a marked `stablehlo.optimization_barrier`;
`fuse_together` is a name scope, which JAX carries through every transformation to the lowered ops.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jstitch.frontend.mlir import ir
from jstitch.ir.ops.control import BARRIER
from jstitch.ir.scope import together_scope

P = ParamSpec("P")
R = TypeVar("R")
Tree = TypeVar("Tree")

MARK = "jstitch.no_fuse"
no_fuse_p: Any = Primitive("no_fuse")
_calls = itertools.count(1)


def no_fuse(x: Tree) -> Tree:
    """`x` itself; what makes its arrays and what uses the returned ones are never in one stitched kernel.

    x: a pytree of arrays. Works under jit, grad (cotangents are boundaries too), vmap, scan and remat, and
    does nothing outside of stitched code. Uses of the original `x` are not affected: use the result.
    Nothing of it is left in a stitched program, so XLA may still fuse what was left to XLA; in a program
    without kernels XLA sees an `optimization_barrier`, which its CPU compiler drops before it fuses.
    Raises TypeError for a leaf that is not an array.
    """
    return cast(Tree, jax.tree.map(no_fuse_p.bind, x))


def _lower(ctx: Any, x: Any) -> list[Any]:
    made = ir.Operation.create(BARRIER, results=[x.type], operands=[x], attributes={MARK: ir.UnitAttr.get()})
    return list(made.results)


def _transpose(cotangent: Any, x: Any) -> list[Any]:
    return [cotangent if type(cotangent) is ad.Zero else no_fuse_p.bind(cotangent)]


no_fuse_p.def_impl(lambda x: x)
no_fuse_p.def_abstract_eval(lambda aval: aval)
ad.deflinear2(no_fuse_p, _transpose)  # type: ignore[no-untyped-call]
batching.defvectorized(no_fuse_p)  # type: ignore[no-untyped-call]
mlir.register_lowering(no_fuse_p, _lower)


@overload
def fuse_together(f: Callable[P, R], *, strict: bool = False) -> Callable[P, R]: ...
@overload
def fuse_together(f: None = None, *, strict: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def fuse_together(f: Callable[..., Any] | None = None, *, strict: bool = False) -> Callable[..., Any]:
    """`f`, whose every call in stitched code becomes one kernel, whatever planner and cost model think of it.

        norm = jstitch.fuse_together(norm)
        @jstitch.fuse_together(strict=True)

    All ops of a call that kernels can hold are one kernel: the forward ops one and, under grad, the backward
    ops another; in the body of a loop, one for the body. Under nested calls the outermost one counts.
    A call that no kernel can hold (something that is XLA's, such as a matrix product, stands between two of
    its ops; or its values do not fit) is planned as if it had not been asked for, and the plan's refusals
    with the rule 'user' say why; with `strict`, lowering raises CannotFuseError. Outside of stitched code
    the call is a plain call of f.
    """
    if f is None:
        return functools.partial(fuse_together, strict=strict)
    function = re.sub(r"\W+", "_", getattr(f, "__name__", type(f).__name__)).strip("_") or "function"

    @functools.wraps(f)
    def together(*args: Any, **kwargs: Any) -> Any:
        with jax.named_scope(together_scope(next(_calls), function, strict)):
            return f(*args, **kwargs)

    return together
