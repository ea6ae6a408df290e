"""An Index as source text, in the vocabulary both emitters share."""

from __future__ import annotations

from jstitch.ir.index import Atom, Clamp, Dynamic, FloorDiv, Index, Mod, Var


def print_index(e: Index) -> str:
    """An Index in the emitters' vocabulary, int64 throughout."""
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
            return f"quotient({print_index(of)}, {by})"
        case Mod(of, by):
            return f"remainder_pos({print_index(of)}, {by})"
        case Clamp(of, lo, hi):
            return f"clamp_index({print_index(of)}, {lo}, {hi})"
        case Dynamic(operand, _):
            return f"int64({operand})"
