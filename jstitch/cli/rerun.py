"""`jstitch opt --run-reproducer FILE`: what failed then, again, and whether it fails the same way."""

from __future__ import annotations

import traceback
from functools import partial
from pathlib import Path

import click

from jstitch.cli.emit import EMIT
from jstitch.cli.files import bad_input, read_bytes
from jstitch.cli.pass_job import Job, run_job
from jstitch.cli.pipeline_text import parse_pipeline
from jstitch.cli.run_passes import Watch
from jstitch.errors import ParseError
from jstitch.frontend.crash import Crash, describe, read_crash
from jstitch.frontend.safe_parse import safe_parse
from jstitch.inspection.rerun import prepare
from jstitch.passes.base.named_pass import blamed


def rerun(file: Path) -> None:
    """The traceback, whether it fails as it did, and status 1; or that it does not fail."""
    with bad_input(str(file)):
        data = read_bytes(file)
        crash = read_crash(data)
        module = safe_parse(data)
        job = _job(crash)
        again = prepare(crash, module) if job is None else partial(run_job, module, job)
    try:
        again()
    except Exception as error:
        traceback.print_exception(error)
        click.echo(_compared(file, crash, error), err=True)
        raise SystemExit(1) from None
    click.echo(f"{file}: does not fail; it was {crash.error}\n  then: {crash.versions}", err=True)


def _job(crash: Crash) -> Job | None:
    """The command's own passes; None where it was all of the pipeline. Raises ParseError, OptionError."""
    options = crash.compile_options()
    if crash.via == "pipeline":
        return None
    if crash.via != "opt" or crash.emit not in (None, *EMIT):
        raise ParseError("via 'opt' or 'pipeline'", f"{crash.via!r} and {crash.emit!r}")
    return Job(parse_pipeline(crash.pipeline), options, Watch(verify=options.verify), crash.emit)


def _compared(file: Path, crash: Crash, error: Exception) -> str:
    found, where = describe(error), blamed(error)
    if (found, where) == (crash.error, crash.failed):
        return f"{file}: fails the same way{f', in {where}' if where else ''}"
    then = f"{crash.error}{f', in {crash.failed}' if crash.failed else ''}"
    return f"{file}: fails in another way; it was {then}\n  then: {crash.versions}"
