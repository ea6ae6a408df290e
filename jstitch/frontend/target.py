"""Which backend lowers a program, and with which profile.

platform cpu                              this machine's cores
platform cuda, target=None                the GPU that is here
platform cuda, target="h200"              that GPU, whether or not one is here
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import cache, partial

import jax

from jstitch import _jax
from jstitch.calibration import measure, store
from jstitch.codegen.backend import Backend
from jstitch.codegen.cpu.backend import CpuBackend
from jstitch.codegen.cuda.backend import CudaBackend
from jstitch.codegen.cuda.launch_kernel import BLOCK
from jstitch.codegen.cuda.traffic import reread_bytes
from jstitch.device_spec import DeviceSpec, find_spec, spec_of_device
from jstitch.options import CompileOptions
from jstitch.passes.base import profile
from jstitch.passes.base.bandwidth_curve import BandwidthCurve
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.profile import Profile

NO_TF32 = "NVIDIA_TF32_OVERRIDE"  # 0: NVIDIA's libraries, which XLA calls, multiply no f32 as tf32
PLATFORMS = ("cpu", "cuda")
COPY = 0.85  # of the bandwidth on paper that a copy reaches
ISSUE = 0.3  # of the arithmetic on paper that scalar code reaches
SECTOR_BYTES = 32
WARP = 32
UNBOUNDED_ROWS = 1 << 62  # programs are as many as a GPU holds, whose threads share what is summed
ROWS_PER_PARTIAL = 16  # at least, so that partial results are a small share of the traffic


@dataclass(frozen=True)
class Target:
    """A backend and what it wants of a lowering."""

    backend: Backend
    profile: Profile


def find_target(platform: str, options: CompileOptions) -> Target | str:
    """The target of a lowering for `platform`, or why there is none."""
    if platform == "cpu":
        if options.target not in (None, "cpu"):
            return f"the target option says {options.target}, this is cpu"
        return Target(CpuBackend(), _restricted(cpu_profile(options), options))
    if options.target == "cpu":
        return "the target option says cpu, this is cuda"
    spec = find_spec(options.target) if options.target else _spec_of_this_machine()
    if spec is None:
        return "lowered for cuda where no GPU is: the target option must name one, such as target='h200'"
    return Target(CudaBackend(spec), _restricted(cuda_profile(spec), options))


def cpu_profile(options: CompileOptions) -> Profile:
    """The shipped profile, with this machine's own numbers: those that were measured, or that it tells."""
    if not options.calibrated:
        return _as_xla_is(profile.CPU)
    machine = store.load(store.place(options.cache_dir)) or _unmeasured()
    return _as_xla_is(replace(profile.CPU, machine=machine))


@cache
def _unmeasured() -> Machine:
    """The shipped machine, with the size of this one's cache."""
    return replace(profile.CPU.machine, near_bytes=measure.near_bytes())


@cache
def _as_xla_is(known: Profile) -> Profile:
    """The profile, with what depends on the version of XLA."""
    return replace(known, machine=replace(known.machine, **_jax.XLA_CPU))


def _restricted(profile: Profile, options: CompileOptions) -> Profile:
    """Without what is switched off; rows of more or of fewer threads."""
    if "columns" in options.without:
        profile = replace(profile, columns=False)
    if "blocks" in options.without:
        profile = replace(profile, column_blocks=False)
    if "memory_order" in options.without:
        profile = replace(profile, follows_memory=False)
    if "unroll_and_jam" in options.without:
        profile = replace(profile, jams=False)
    if "components" in options.without:
        profile = replace(profile, components=False)
    if (device := profile.machine.device) is None:
        return profile
    if "tf32" in options.without or os.environ.get(NO_TF32) == "0":
        machine = replace(profile.machine, device=replace(device, tf32=False))
        profile = replace(profile, machine=machine)
    match "warp" in options.schemes, "block" in options.schemes:
        case True, False:
            return replace(profile, most_threads=WARP)
        case False, True:
            return replace(profile, least_threads=2 * WARP)
    return profile


def _spec_of_this_machine() -> DeviceSpec | None:
    """Of its first GPU, None where there is none."""
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError:
        return None
    major, minor = device.compute_capability.split(".")
    return spec_of_device(device.device_kind, (int(major), int(minor)))


@cache
def cuda_profile(spec: DeviceSpec) -> Profile:
    """Partial results of three CTAs for two multiprocessors, a row at a time, tiles in shared memory.

    The same object for the same GPU: costs are remembered by profile.
    """
    return Profile(
        arena_bytes=spec.shared_optin,
        product_bytes=spec.shared_optin,
        row_step=1,
        program_work=1 << 12,
        max_programs=3 * spec.sms // 2,
        partial_rows=ROWS_PER_PARTIAL,
        ordered_rows=UNBOUNDED_ROWS,
        kept_first=True,
        follows_memory=False,
        jams=False,
        blocks=False,
        seams=False,
        one_pass=True,
        variance_block=0,
        combine_whole=1 << 62,
        max_buffers=2000,
        most_threads=1024,
        updates=True,
        recompute=True,
        copies=True,
        products=True,
        sums=True,
        unset=True,
        turns=5,
        keep_cost=20.0,
        reread_bytes=partial(reread_bytes, arena_bytes=spec.shared_optin, block=BLOCK),
        look_up=24.0,
        narrow_tiles=True,
        machine=Machine(
            launch=spec.launch_seconds,
            call_seconds=0.0,
            lane_cycle=1 / (spec.sms * spec.fpus_per_sm * spec.clock * ISSUE),
            bandwidths=BandwidthCurve.level(spec.bandwidth * COPY),
            lone_bandwidths=BandwidthCurve.level(spec.bandwidth * COPY / spec.sms),
            serial_work=math.inf,
            xla_serial_work=math.inf,
            cores=1.0,
            xla_cycles=1.0,
            xla_narrow=1.0,
            seam_cycles=0.0,
            seam_circular=1.0,
            window_cycles=1.0,
            reads_fuse=True,
            sector_bytes=SECTOR_BYTES,
            overlap=0.3,
            device=spec,
        ),
    )
