"""The cell magic `%%stitch`, after `%load_ext jstitch`: the plan of the call that a cell ends with.

%%stitch --target h200
w = jnp.ones((256, 256))         # runs
loss(x, w)                       # is planned, not run
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser

from jstitch.codegen.parse_text import parse_text
from jstitch.errors import OptionError
from jstitch.inspection.explanation import Explanation
from jstitch.inspection.program_plan import ProgramPlan
from jstitch.inspection.twin import explain_function, plan_function
from jstitch.options import PLANNERS, TUNES, CompileOptions

Look = Callable[[Any], Callable[..., ProgramPlan | Explanation]]
_LOOK = "_jstitch_look"


def register(shell: Any) -> None:
    """shell: the InteractiveShell that `%load_ext` hands to extensions."""

    def stitch(line: str, cell: str) -> ProgramPlan | Explanation:
        wanted = _arguments().parse_argstring(line)
        made: ProgramPlan | Explanation = _looked_at(shell.transform_cell(cell), shell.user_ns, _look(wanted))
        return made

    stitch.__doc__ = _arguments().format_help()
    shell.register_magic_function(stitch, "cell", "stitch")


def _arguments() -> Any:
    parser = MagicArgumentParser(prog="%%stitch", description="The plan of the call that the cell ends with.")
    parser.add_argument("--explain", action="store_true", help="say why, instead")
    parser.add_argument("--target", help="cpu, h200, sm_90, ...")
    parser.add_argument("--planner", choices=PLANNERS)
    parser.add_argument("--tune", choices=TUNES)
    return parser


def _look(wanted: Any) -> Look:
    """From a function to one that says what becomes of its arguments. wanted: before its own options."""
    given = {name: getattr(wanted, name) for name in ("target", "planner", "tune")}
    changes = {name: value for name, value in given.items() if value is not None}
    look = explain_function if wanted.explain else plan_function

    def of(f: Any) -> Callable[..., ProgramPlan | Explanation]:
        own = getattr(f, "options", None)
        try:
            options = (own if isinstance(own, CompileOptions) else CompileOptions()).replace(**changes)
        except OptionError as error:
            raise UsageError(str(error)) from None
        return lambda *args, **kwargs: look(f, args, kwargs, options)

    return of


def _looked_at(code: str, names: dict[str, Any], look: Look) -> Any:
    """What look(f)(x) gives for code that ends with f(x), after all else of it has run."""
    tree = parse_text(code)
    match tree.body:
        case [*before, ast.Expr(ast.Call() as call)]:
            pass
        case _:
            raise UsageError("%%stitch: expected a cell whose last line is a call, such as f(x), found none")
    exec(compile(ast.Module(before, []), "<stitch>", "exec"), names)
    name = ast.copy_location(ast.Name(_LOOK, ast.Load()), call)
    call.func = ast.copy_location(ast.Call(name, [call.func], []), call)
    return eval(compile(ast.Expression(call), "<stitch>", "eval"), names, {_LOOK: look})
