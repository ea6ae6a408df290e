"""Seeded damage to StableHLO text: much of it does not parse, the rest are programs nobody thought of."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

DTYPES = (
    *("f32", "f64", "f16", "bf16", "i1", "i8", "i32", "i64", "ui8", "ui32", "i4", "f8E4M3FN", "f8E5M2"),
    *("complex<f32>", "!quant.uniform<i8:f32, 1.0>", "index", "tuple<f32>", "!stablehlo.token", "none"),
)
NUMBERS = ("0", "1", "2", "3", "-1", "7", "255", "65537", "2147483648", "9223372036854775807", "1.0e38", "?")
OPS = (
    *(
        "add",
        "subtract",
        "multiply",
        "divide",
        "minimum",
        "maximum",
        "power",
        "and",
        "or",
        "xor",
        "remainder",
    ),
    *("tanh", "exponential", "negate", "abs", "sign", "sqrt", "logistic", "not", "log", "is_finite", "floor"),
)
COMPARISONS = ("LT", "GT", "EQ", "NE", "LE", "GE")
_DTYPE = re.compile(r"(?<=[x<])(?:f64|f32|f16|bf16|i1|i8|i16|i32|i64|ui8|ui32|f8E4M3FN)(?=>)")
_NUMBER = re.compile(r"(?<![\w%.#])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])|(?<=[<x])\d+(?=x)")
_DIMENSION = re.compile(r"(?<=[<x])\d+(?=x)")
_VALUE = re.compile(r"%\w+")
_OP = re.compile(rf"(?<=stablehlo\.)(?:{'|'.join(OPS)})\b")
_COMPARISON = re.compile(rf"\b(?:{'|'.join(COMPARISONS)})\b")

Mutation = Callable[[str, Random], str]


def mutate(text: str, random: Random) -> str:
    """One to three mutations, gentle ones more often."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        text = random.choice(MUTATIONS)(text, random)
    return text


def _one(pattern: re.Pattern[str], words: Sequence[str]) -> Mutation:
    """Another word in one place."""

    def change(text: str, random: Random) -> str:
        found = list(pattern.finditer(text))
        if not found:
            return text
        place = random.choice(found)
        return text[: place.start()] + random.choice(words) + text[place.end() :]

    return change


def _everywhere(pattern: re.Pattern[str], words: Sequence[str]) -> Mutation:
    """Another word wherever a chosen one stands, so that types still agree."""

    def change(text: str, random: Random) -> str:
        found = sorted(set(pattern.findall(text)))
        if not found:
            return text
        old, new = random.choice(found), random.choice(words)
        return pattern.sub(lambda m: new if m[0] == old else m[0], text)

    return change


def _swap_values(text: str, random: Random) -> str:
    found = list(_VALUE.finditer(text))
    if len(found) < 2:
        return text
    place, other = random.choice(found), random.choice(found)
    return text[: place.start()] + other[0] + text[place.end() :]


def _drop_line(text: str, random: Random) -> str:
    lines = text.splitlines()
    del lines[random.randrange(len(lines))]
    return "\n".join(lines)


def _double_line(text: str, random: Random) -> str:
    lines = text.splitlines()
    place = random.randrange(len(lines))
    return "\n".join([*lines[: place + 1], *lines[place:]])


def _swap_lines(text: str, random: Random) -> str:
    lines = text.splitlines()
    a, b = random.randrange(len(lines)), random.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


def _drop_characters(text: str, random: Random) -> str:
    start = random.randrange(len(text))
    return text[:start] + text[start + random.choice((1, 2, 5, 50)) :]


def _other_byte(text: str, random: Random) -> str:
    place = random.randrange(len(text))
    return text[:place] + chr(random.choice((*range(32, 127), 0, 10, 233, 0x4E2D))) + text[place + 1 :]


MUTATIONS: tuple[Mutation, ...] = (
    *(_everywhere(_DTYPE, DTYPES), _everywhere(_DTYPE, DTYPES), _one(_DTYPE, DTYPES)),
    *(_everywhere(_DIMENSION, NUMBERS), _everywhere(_DIMENSION, NUMBERS), _one(_NUMBER, NUMBERS)),
    *(_one(_OP, OPS), _one(_OP, OPS), _everywhere(_OP, OPS), _one(_COMPARISON, COMPARISONS)),
    *(_swap_values, _swap_values, _drop_line, _double_line, _swap_lines, _drop_characters, _other_byte),
)
