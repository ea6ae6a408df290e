"""`jstitch trace FILE_OR_DIR`: the time in a profile, by kernels with the user's scopes and lines."""

from __future__ import annotations

import json
from pathlib import Path

import click

from jstitch.cli.files import bad_input
from jstitch.inspection.profile_file import find_profiles
from jstitch.inspection.trace_summary import summarize

JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")


@click.command("trace")
@click.argument("path", type=click.Path(path_type=Path))
@JSON
def trace(path: Path, as_json: bool) -> None:
    """Summarize what `jax.profiler.trace` wrote to PATH: an .xplane.pb, or a folder, of which the newest.

    Times of stitched kernels, with scope, source lines, ops, bytes and flops, and of XLA's own.
    """
    with bad_input(str(path)):
        found = summarize(find_profiles(path))
    click.echo(json.dumps(found.to_json(), indent=1) if as_json else str(found))
