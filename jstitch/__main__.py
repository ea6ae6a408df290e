"""The command line: `python -m jstitch COMMAND` (`--help` lists the commands)."""

from __future__ import annotations

import click

from jstitch.cli.bench import bench
from jstitch.cli.cache import cache
from jstitch.cli.calibrate import calibrate
from jstitch.cli.collection import rare_collection
from jstitch.cli.doctor import doctor
from jstitch.cli.explain import explain
from jstitch.cli.inspect_dump import inspect_dump
from jstitch.cli.library import library
from jstitch.cli.listing import ops, passes
from jstitch.cli.opt import opt
from jstitch.cli.plan import plan
from jstitch.cli.report import report
from jstitch.cli.run import run
from jstitch.cli.trace import trace


@click.group()
@click.pass_context
def main(context: click.Context) -> None:
    """Stitch memory-intensive JAX code into few large kernels."""
    context.with_resource(rare_collection())


try:
    from jstitch.demo.command import demo
except ModuleNotFoundError as error:
    if error.name != "optax":
        raise

    @click.command()
    def demo() -> None:
        """Train a small language model under jax.jit and jstitch.jit in turn (needs optax)."""
        raise click.ClickException("the demo needs optax: pip install 'jstitch[demo]'")


for command in (
    bench,
    cache,
    calibrate,
    demo,
    doctor,
    explain,
    inspect_dump,
    library,
    ops,
    opt,
    passes,
    plan,
    report,
    run,
    trace,
):
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="python -m jstitch")
