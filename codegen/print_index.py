"""An Index as source text, which both emitters share."""

from __future__ import annotations

from jstitch.ir.index import Atom, Clamp, Dynamic, FloorDiv, Index, Mod, Var, add, bounds, const


def print_index(e: Index) -> str:
    """An Index as kernel text, int64 throughout."""
    parts: list[str] = []
    for atom, k in e.terms:
        text = _print_atom(atom)
        match k:
            case 1:
                parts.append(f"+ {text}")
            case -1:
                parts.append(f"- {text}")
            case _ if k < 0:
                parts.append(f"- {text} * {-k}")
            case _:
                parts.append(f"+ {text} * {k}")
    if e.const or not parts:
        parts.append(f"- {-e.const}" if e.const < 0 else f"+ {e.const}")
    text = " ".join(parts)
    return text.removeprefix("+ ") if text.startswith("+ ") else f"-{text[2:]}"


def _print_atom(atom: Atom) -> str:
    match atom:
        case Var(name, _):
            return name
        case FloorDiv(of, by):
            steps = _steps_below_zero(of, by)
            text = f"quotient({print_index(add(of, const(steps * by)))}, {by})"
            return f"({text} - {steps})" if steps else text
        case Mod(of, by):
            return f"remainder_pos({print_index(add(of, const(_steps_below_zero(of, by) * by)))}, {by})"
        case Clamp(of, lo, hi):
            return f"clamp_index({print_index(of)}, {lo}, {hi})"
        case Dynamic(operand, _):
            return f"int64({operand})"


def _steps_below_zero(e: Index, by: int) -> int:
    """How many times `by` must be added to make e >= 0, which is all that kernels divide."""
    return max(0, -(bounds(e)[0] // by))
