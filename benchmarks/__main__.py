"""The command line: `python -m benchmarks COMMAND` (`--help` lists the commands)."""

from __future__ import annotations

import os
import sys

import click

from benchmarks.ablation import ablation_command
from benchmarks.background import async_command
from benchmarks.block_costs import blocks_command
from benchmarks.chains import chains_command
from benchmarks.compile_time import compile_command
from benchmarks.device import device_command
from benchmarks.gpu import gpu_command
from benchmarks.gpu_times import gpu_times_command
from benchmarks.hunt import hunt_command
from benchmarks.kernel_races import kernels_command
from benchmarks.latency import latency_command
from benchmarks.losses import losses_command
from benchmarks.overhead import overhead_command
from benchmarks.papers import papers_command
from benchmarks.recurrences import recurrences_command
from benchmarks.soak import soak_command
from benchmarks.soak_worker import soak_child_command
from benchmarks.suite import child_command, run_command
from benchmarks.tilings import tilings_command
from benchmarks.timeline import timeline_command


@click.group()
@click.pass_context
def main(context: click.Context) -> None:
    """Compare jstitch.jit with jax.jit (and torch.compile) on this machine."""
    if context.invoked_subcommand != "compile":  # where it is a cost
        os.environ.setdefault("JSTITCH_RACE_SECONDS", "0")  # nobody races behind what is timed


for command in (
    *(run_command, child_command, compile_command, overhead_command),
    *(gpu_command, gpu_times_command, device_command, async_command, ablation_command, papers_command),
    *(latency_command, blocks_command, chains_command, losses_command, tilings_command),
    *(hunt_command, kernels_command, recurrences_command, timeline_command),
    *(soak_command, soak_child_command),
):
    main.add_command(command)

if __name__ == "__main__":
    sys.exit(main())
