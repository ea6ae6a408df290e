"""Module -> one straight list of instructions for an entry: scopes resolved, calls replaced by the bodies.

    { .reg .f32 t; add.f32 t, %f1, %f1; }      ->  add.f32 t#1, %f1, %f1
    call.uni (r), double, (p);                 ->  the body of `double`, its parameters renamed to r and p

Every name becomes unique: a register's name plus `#` and a number. Parameters are registers named after
the parameter and the byte offset in it.
"""

from __future__ import annotations

import itertools
import re
from collections import ChainMap
from dataclasses import dataclass, field

from jstitch.codegen.cuda.ptx.error import PtxError
from jstitch.codegen.cuda.ptx.parse import Function, Module, Statement, Variable, read_variable
from jstitch.codegen.cuda.ptx.scalar import width

PARAMETER_BASE = 1 << 20  # of the entry's parameters, 8 bytes each
SHARED_BASE = 1 << 24
LOCAL_BASE = 1 << 30
WINDOW = 36  # an address's bits above this one name its global buffer
FIRST_VARIABLE = 1 << 11  # windows below are the arguments'

_INSTRUCTION = re.compile(
    r"(?:@(?P<no>!?)\s*(?P<guard>[%\w$]+)\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<rest>.*)", re.S
)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s][^,]*")
_CALL = re.compile(
    r"(?:\((?P<returns>[^)]*)\)\s*,)?\s*(?P<name>[%\w$]+)\s*(?:,\s*\((?P<actuals>[^)]*)\))?.*", re.S
)
_NAME = re.compile(r"(?<![\w$%.])[%$A-Za-z_][\w$]*")
_REGISTERS = re.compile(r"(?P<prefix>%?[\w$]+)(?:<(?P<count>\d+)>)?")


@dataclass(frozen=True)
class Label:
    """A place that branches name."""

    name: str


@dataclass(frozen=True)
class Instruction:
    """guard: the predicate register; negated: runs where it is false."""

    line: int
    opcode: str
    operands: tuple[str, ...]
    guard: str | None = None
    negated: bool = False

    def __str__(self) -> str:
        guard = f"@{'!' * self.negated}{self.guard} " if self.guard else ""
        return re.sub(r"#\d+", "", f"{guard}{self.opcode} {', '.join(self.operands)}")


@dataclass
class Flat:
    """registers: bits by name. symbols: the address of each variable. regions: bytes of shared and local."""

    module: Module
    entry: Function
    code: list[Instruction | Label] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)
    symbols: dict[str, int] = field(default_factory=dict)
    windows: dict[int, str] = field(default_factory=dict)
    shared_bytes: int = 0
    local_bytes: int = 0
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def place(self, variable: Variable, name: str) -> None:
        """Give a shared or local variable an address, under a unique name."""
        shared = variable.space == "shared"
        used = self.shared_bytes if shared else self.local_bytes
        start = -(-used // variable.align) * variable.align
        self.symbols[name] = (SHARED_BASE if shared else LOCAL_BASE) + start
        if shared:
            self.shared_bytes = start + len(variable.data or b"")
        else:
            self.local_bytes = start + len(variable.data or b"")


def flatten(module: Module, entry: str) -> Flat:
    """The entry's code. Raises PtxError for an unknown entry, an undefined callee, recursion."""
    function = module.functions.get(entry)
    if function is None or not function.entry:
        known = sorted(name for name, f in module.functions.items() if f.entry)
        raise PtxError(f"expected an entry named {entry!r}, found {known}")
    flat = Flat(module, function)
    flat.symbols |= {formal: PARAMETER_BASE + 8 * n for n, formal in enumerate(function.formals)}
    _place_variables(flat)
    _walk(flat, function, ChainMap(), None, ())
    return flat


def _place_variables(flat: Flat) -> None:
    windows = itertools.count(FIRST_VARIABLE)
    for variable in sorted(flat.module.variables.values(), key=lambda v: v.data is None):  # extern last
        if variable.space == "shared":
            flat.place(variable, variable.name)
        else:
            window = next(windows)
            flat.windows[window] = variable.name
            flat.symbols[variable.name] = window << WINDOW


def _labels(flat: Flat, body: tuple[Statement, ...], start: int) -> dict[str, str]:
    """The labels of the scope whose first statement is number `start`, with unique names."""
    found, depth = {}, 0
    for statement in body[start:]:
        depth += {"{": 1, "}": -1}.get(statement.text, 0)
        if depth < 0:
            break
        if depth == 0 and statement.text.endswith(":"):
            label = statement.text[:-1].strip()
            found[label] = f"{label}#{next(flat.numbers)}"
    return found


def _walk(
    flat: Flat, function: Function, names: ChainMap[str, str], end: str | None, callers: tuple[str, ...]
) -> None:
    """Append a body. end: the label after an inlined body, None for the entry's."""
    names = names.new_child(_labels(flat, function.body, 0))
    for number, statement in enumerate(function.body, start=1):
        text = statement.text
        if text == "{":
            names = names.new_child(_labels(flat, function.body, number))
        elif text == "}":
            names = names.parents
        elif text.endswith(":"):
            flat.code.append(Label(names[text[:-1].strip()]))
        elif text.startswith("."):
            _declare(flat, statement, names)
        else:
            _append(flat, _read(statement, names), names, end, (*callers, function.name))


def _declare(flat: Flat, statement: Statement, names: ChainMap[str, str]) -> None:
    kind, _, rest = statement.text.partition(" ")
    if kind == ".reg":
        type_name, _, rest = rest.strip().partition(" ")
        for prefix, count in _REGISTERS.findall(rest):
            for name in [f"{prefix}{n}" for n in range(int(count))] if count else [prefix]:
                names[name] = f"{name}#{next(flat.numbers)}"
                flat.registers[names[name]] = width(type_name[1:])
    elif kind in (".local", ".shared", ".param"):
        name = re.findall(r"([%\w$]+)\s*(?:\[\d*\])?$", rest)[-1]
        names[name] = f"{name}#{next(flat.numbers)}"
        if kind != ".param":
            flat.place(read_variable(statement.text, statement.line), names[name])
    elif kind != ".pragma":
        raise PtxError("unknown directive", statement.line, text=statement.text)


def _read(statement: Statement, names: ChainMap[str, str]) -> Instruction:
    found = _INSTRUCTION.fullmatch(statement.text)
    if found is None:
        raise PtxError("expected an instruction", statement.line, text=statement.text)
    rest = _NAME.sub(lambda name: names.get(name[0], name[0]), found["rest"])
    operands = tuple(operand.strip() for operand in _OPERAND.findall(rest))
    guard = None if found["guard"] is None else names.get(found["guard"], found["guard"])
    if found["opcode"].startswith("call"):
        operands = (rest,)
    return Instruction(statement.line, found["opcode"], operands, guard, bool(found["no"]))


def _append(
    flat: Flat, step: Instruction, names: ChainMap[str, str], end: str | None, callers: tuple[str, ...]
) -> None:
    if step.opcode in ("ret", "ret.uni") and end is not None:
        flat.code.append(Instruction(step.line, "bra", (end,), step.guard, step.negated))
    elif step.opcode in ("call", "call.uni"):
        _inline(flat, step, callers)
    else:
        flat.code.append(step)


def _inline(flat: Flat, step: Instruction, callers: tuple[str, ...]) -> None:
    found = _CALL.fullmatch(step.operands[0])
    callee = flat.module.functions.get(found["name"]) if found else None
    if found is None or callee is None:
        raise PtxError("calls a function that the module does not define", step.line, text=str(step))
    if callee.name in callers:
        raise PtxError("recursive calls are not supported", step.line, text=str(step))
    actuals = [re.findall(r"[^\s,]+", found[part] or "") for part in ("returns", "actuals")]
    if [len(a) for a in actuals] != [len(callee.returns), len(callee.formals)]:
        raise PtxError(f"expected {len(callee.formals)} arguments", step.line, text=str(step))
    bound = dict(zip((*callee.returns, *callee.formals), itertools.chain(*actuals), strict=True))
    after = f"after {callee.name}#{next(flat.numbers)}"
    if step.guard is not None:
        flat.code.append(Instruction(step.line, "bra", (after,), step.guard, not step.negated))
    _walk(flat, callee, ChainMap(bound), after, callers)
    flat.code.append(Label(after))
