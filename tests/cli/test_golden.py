"""Golden tests in lit's manner: tests/golden/<pass>.mlir holds a RUN line, a module, and the CHECK lines.

    // RUN: jstitch opt %s --passes cse | filecheck %s

`pytest tests/cli/test_golden.py --regenerate-golden` writes the CHECK lines anew, every line of the output as
it is; read the difference before you keep it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from filecheck.matcher import Matcher
from filecheck.options import DumpInputKind, Options

from jstitch.__main__ import main
from jstitch.cli.pipeline_text import parse_pipeline
from jstitch.cli.run_passes import State
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.frontend.target import find_target
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context, Returned
from jstitch.passes.base.named_pass import Form
from jstitch.passes.named_passes import NAMES

FOLDER = Path(__file__).parents[1] / "golden"
FILES = sorted(FOLDER.glob("*.mlir"))
_RUN = re.compile(r"// RUN: jstitch (?P<command>.*) \| filecheck %s$", re.MULTILINE)
_CHECKS = re.compile(r"^// CHECK.*\n?", re.MULTILINE)
_HASH = re.compile(r'(?<=h = ")[0-9a-f]{32}(?=")')  # of a kernel's source and of the processor

# Steps of lowering, which no name on a command line reaches: a module whose kernel shows each.
KERNEL_STEPS = {
    "alias_donated",
    "choose_template",
    "contract_patterns",
    "form_groups",
    "place_tiles",
    "place_values",
    "raise_levels",
    "small_parts",
    "write_nest",
}


def command_of(path: Path) -> list[str]:
    """The words of the file's RUN line."""
    (run,) = _RUN.findall(path.read_text())
    return [str(path) if word == "%s" else word for word in shlex.split(run)]


def output_of(path: Path) -> str:
    """What the RUN line prints; its status is 0."""
    result = CliRunner().invoke(main, command_of(path))
    assert result.exit_code == 0, result.output
    return result.stdout.rstrip("\n") + "\n"


def checked(text: str, output: str) -> str:
    """The file's text with CHECK lines for this output."""
    checks = "\n".join(_check(number, line) for number, line in enumerate(output.splitlines()))
    return f"{_CHECKS.sub('', text).rstrip()}\n\n{checks}\n"


def _check(number: int, line: str) -> str:
    word = "CHECK-NEXT" if number else "CHECK"
    if not line:
        return "// CHECK-EMPTY:"
    if _HASH.search(line):
        return f"// {word}: {_HASH.sub('{{[0-9a-f]+}}', line)}"
    return f"// {word}{{LITERAL}}: {line}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden(path: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    output = output_of(path)
    if request.config.getoption("--regenerate-golden"):
        path.write_text(checked(path.read_text(), output))
    found = tmp_path / "output"
    found.write_text(output)
    options = Options(str(path), str(found), match_full_lines=True, dump_input=DumpInputKind.FAIL)
    assert Matcher.from_opts(options).run() == 0
    assert len(_CHECKS.findall(path.read_text())) == len(output.splitlines())  # none after the last CHECK


def test_every_pass_has_its_golden() -> None:
    assert {path.stem for path in FILES} == {*NAMES, *KERNEL_STEPS}


@pytest.mark.parametrize("path", [p for p in FILES if p.stem in NAMES], ids=lambda path: path.stem)
def test_the_pass_changes_its_module(path: Path) -> None:
    words = command_of(path)
    text = words[words.index("--passes") + 1]
    passes = parse_pipeline(text)
    assert passes[-1].name == path.stem
    if passes[-1].gives is Form.KERNEL:
        without = [text.rpartition(f",{path.stem}")[0] if word == text else word for word in words]
        assert CliRunner().invoke(main, without).stdout != output_of(path)
        return
    target = words[words.index("--target") + 1] if "--target" in words else "cpu"
    options = CompileOptions(target=target)
    found = find_target("cpu" if target == "cpu" else "cuda", options)
    assert not isinstance(found, str)
    context = Context(options, found.profile, Returned((), {}))
    states = [State(import_module(parse_module(path.read_text())))]
    for p in passes:
        states.append(states[-1].after(p, context))
    assert str(states[-1]) != str(states[-2])
