"""The command line: `python -m jstitch COMMAND` (`--help` lists the commands)."""

from __future__ import annotations

import click

from jstitch.cli.calibrate import calibrate
from jstitch.cli.library import library
from jstitch.cli.listing import ops, passes
from jstitch.cli.opt import opt


@click.group()
def main() -> None:
    """Stitch memory-intensive JAX code into few large kernels."""


try:
    from jstitch.demo.command import demo
except ModuleNotFoundError as error:
    if error.name != "optax":
        raise

    @click.command()
    def demo() -> None:
        """Train a small language model under jax.jit and jstitch.jit in turn (needs optax)."""
        raise click.ClickException("the demo needs optax: pip install 'jstitch[demo]'")


for command in (calibrate, demo, library, ops, opt, passes):
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="python -m jstitch")
