"""GPUs as numbers: limits of a compute capability, sizes and speeds of a device, and how many CTAs fit.

find_spec("H200") == find_spec("h200", "NVIDIA H200")     find_spec("sm_80").name == "a100"
occupancy(find_spec("h200"), threads=256, registers=64, shared_bytes=0) == 4

Sources: the CUDA programming guide's tables of limits, NVIDIA's data sheets, and what the devices report.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from jstitch.errors import OptionError

_WARP = 32
_REGISTER_UNIT = 256  # registers are given to warps in units of this many
_SUB_PARTITIONS = 4  # each has a quarter of an SM's registers
MAX_REGISTERS = 255
"""Most registers of one thread, on every device since sm_35."""


ENOUGH_REGISTERS = 64  # of a thread, with which most kernels spill nothing


@dataclass(frozen=True)
class DeviceSpec:
    """One GPU. Sizes in bytes, bandwidth in bytes per second, times in seconds, clock in hertz.

    capability: (major, minor). shared_per_block: without opting in; shared_optin: at most.
    shared_reserved: what the driver takes from each CTA's share; shared_unit: granularity of shares.
    ptx_version: the `.version` to emit, the oldest that has what the kernels need.
    tf32: whether products of f32 may be of tf32, as XLA's are: not where NVIDIA_TF32_OVERRIDE=0 forbids it.
    launch_seconds: what one more kernel costs in a stream. An estimate; CUDA graphs halve it, roughly.
    tensor_macs: products of 16-bit floats that an SM adds up in f32 in a cycle; warp_macs: by instructions of
    one warp (mma.sync), which newer architectures are not fastest with.
    """

    name: str
    title: str
    capability: tuple[int, int]
    sms: int
    fpus_per_sm: int
    memory_bytes: int
    bandwidth: float
    l2_bytes: int
    clock: float
    shared_per_sm: int
    shared_optin: int
    shared_reserved: int
    shared_unit: int
    threads_per_sm: int
    blocks_per_sm: int
    ptx_version: str
    tensor_macs: int
    warp_macs: int
    threads_per_block: int = 1024
    registers_per_sm: int = 65536
    registers_per_block: int = 65536
    shared_per_block: int = 49152
    launch_seconds: float = 2.0e-6
    tf32: bool = True

    @property
    def arch(self) -> str:
        """The compiler's name of the architecture, such as sm_90."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    @property
    def warps_per_sm(self) -> int:
        return self.threads_per_sm // _WARP


@dataclass(frozen=True)
class _Limits:
    """What all devices of one compute capability share."""

    shared_per_sm: int
    shared_optin: int
    shared_reserved: int
    shared_unit: int
    threads_per_sm: int
    blocks_per_sm: int
    fpus_per_sm: int
    ptx_version: str
    tensor_macs: int
    warp_macs: int


_LIMITS = {
    (7, 0): _Limits(98304, 98304, 0, 256, 2048, 32, 64, "8.0", 512, 512),
    (7, 5): _Limits(65536, 65536, 0, 256, 1024, 16, 64, "8.0", 512, 512),
    (8, 0): _Limits(167936, 166912, 1024, 128, 2048, 32, 64, "8.0", 1024, 1024),
    (8, 6): _Limits(102400, 101376, 1024, 128, 1536, 16, 128, "8.0", 512, 512),
    (8, 9): _Limits(102400, 101376, 1024, 128, 1536, 24, 128, "8.0", 512, 512),
    (9, 0): _Limits(233472, 232448, 1024, 128, 2048, 32, 128, "8.0", 2048, 1024),
    (10, 0): _Limits(233472, 232448, 1024, 128, 2048, 32, 128, "8.6", 4096, 1024),
    (12, 0): _Limits(102400, 101376, 1024, 128, 1536, 24, 128, "8.7", 512, 512),
}

_TOOLKIT = "13.0.0"  # that `jax[cuda13]` brings: XLA captures loops' bodies from 12.9 on
_OLDEST = (7, 5)  # that it compiles for
_LAST_TOOLKIT = "12.9.0"  # for what is older

_MIB = 1 << 20


def _spec(
    name: str,
    title: str,
    capability: tuple[int, int],
    sms: int,
    memory: int,
    gigabytes: float,
    l2: int,
    clock: float,
) -> DeviceSpec:
    """memory and l2 in MiB, gigabytes per second, clock in GHz."""
    return DeviceSpec(
        name=name,
        title=title,
        capability=capability,
        sms=sms,
        memory_bytes=memory * _MIB,
        bandwidth=gigabytes * 1e9,
        l2_bytes=l2 * _MIB,
        clock=clock * 1e9,
        **vars(_LIMITS[capability]),
    )


# The first of a capability is what `find_spec("sm_...")` gives.
SPECS: dict[str, DeviceSpec] = {
    spec.name: spec
    for spec in (
        _spec("v100", "Tesla V100-SXM2-16GB", (7, 0), 80, 16151, 898, 6, 1.53),
        _spec("t4", "Tesla T4", (7, 5), 40, 15102, 320, 4, 1.59),
        _spec("a100", "NVIDIA A100-SXM4-80GB", (8, 0), 108, 81158, 2039, 40, 1.41),
        _spec("rtx3090", "NVIDIA GeForce RTX 3090", (8, 6), 82, 24268, 936, 6, 1.695),
        _spec("rtx4090", "NVIDIA GeForce RTX 4090", (8, 9), 128, 24217, 1008, 72, 2.52),
        _spec("h100", "NVIDIA H100 80GB HBM3", (9, 0), 132, 81008, 3352, 50, 1.98),
        _spec("h200", "NVIDIA H200 141GB HBM3e", (9, 0), 132, 144384, 4800, 50, 1.98),
        _spec("b200", "NVIDIA B200", (10, 0), 148, 182642, 7672, 126, 1.965),
        _spec("rtx5090", "NVIDIA GeForce RTX 5090", (12, 0), 170, 32122, 1792, 96, 2.407),
    )
}


def find_spec(name: str | DeviceSpec) -> DeviceSpec:
    """The spec called `name`: 'h200', 'H200', 'RTX 4090', a device's own name, or 'sm_90', 'sm_90a', '9.0'.

    A DeviceSpec is returned as it is. Raises OptionError that lists what is known.
    """
    if isinstance(name, DeviceSpec):
        return name
    found = _by_capability(name) or _by_title(name)
    if found is None:
        archs = ", ".join(sorted({spec.arch for spec in SPECS.values()}, key=lambda a: int(a[3:])))
        raise OptionError(
            f"the name of a GPU ({', '.join(SPECS)}) or of an architecture ({archs})",
            repr(name),
            hint="use one of these, or pass a jstitch.DeviceSpec of your own",
        )
    return found


def spec_of_device(kind: str, capability: tuple[int, int]) -> DeviceSpec:
    """The spec of a device that calls itself `kind`; for an unknown one, that of its nearest older relative.

    The relative has the same major capability, so code for it runs. Raises OptionError if there is none.
    """
    named = _by_title(kind)
    if named is not None and named.capability == capability:
        return named
    major, minor = capability
    older = [s for s in SPECS.values() if s.capability[0] == major and s.capability[1] <= minor]
    if not older:
        return find_spec(f"sm_{major}{minor}")
    nearest = max(older, key=lambda s: s.capability[1])
    return replace(nearest, name=f"sm_{major}{minor}", title=kind, capability=capability)


def _by_capability(name: str) -> DeviceSpec | None:
    match = re.fullmatch(r"(?:sm_?)?(\d+)\.?(\d)[af]?", name.strip().lower())
    if match is None:
        return None
    wanted = (int(match[1]), int(match[2]))
    return next((spec for spec in SPECS.values() if spec.capability == wanted), None)


def _by_title(name: str) -> DeviceSpec | None:
    """The known name that stands in `name`, spaces and punctuation aside."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((spec for key, spec in SPECS.items() if key in letters), None)


def occupancy(spec: DeviceSpec, threads: int, registers: int, shared_bytes: int) -> int:
    """CTAs of one kernel that an SM holds at once; 0 when it cannot be launched at all.

    threads: per CTA. registers: per thread. shared_bytes: per CTA, static and dynamic.
    The driver's allocation rules: registers by warp and quarter of an SM, shared memory by CTA.
    """
    if not 0 < threads <= spec.threads_per_block or registers > MAX_REGISTERS:
        return 0
    if shared_bytes > spec.shared_optin:
        return 0
    warps = -(-threads // _WARP)
    return min(
        spec.blocks_per_sm,
        spec.warps_per_sm // warps,
        _blocks_by_registers(spec, warps, registers),
        spec.shared_per_sm // _round_up(max(1, shared_bytes + spec.shared_reserved), spec.shared_unit),
    )


def held_by_shared(capability: tuple[int, int], threads: int, shared_bytes: int) -> int:
    """CTAs that an SM's shared memory has room for, where so few that registers are no matter; else 0."""
    limits = _LIMITS.get(capability)
    if limits is None:
        return 0
    share = _round_up(shared_bytes + limits.shared_reserved, limits.shared_unit)
    held = limits.shared_per_sm // max(1, share)
    return held if held * threads * ENOUGH_REGISTERS <= DeviceSpec.registers_per_sm else 0


def _blocks_by_registers(spec: DeviceSpec, warps: int, registers: int) -> int:
    per_warp = _round_up(max(1, registers) * _WARP, _REGISTER_UNIT)
    if per_warp * _round_up(warps, _SUB_PARTITIONS) > spec.registers_per_block:
        return 0
    held = spec.registers_per_sm // _SUB_PARTITIONS // per_warp * _SUB_PARTITIONS
    return held // warps


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def to_target_config(spec: DeviceSpec) -> str:
    """The text form of XLA's GpuTargetConfigProto: compiling with it needs no such device."""
    major, minor = spec.capability
    toolkit = _TOOLKIT if spec.capability >= _OLDEST else _LAST_TOOLKIT
    return f"""gpu_device_info {{
  name: "{spec.title}"
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  core_count: {spec.sms}
  fpus_per_core: {spec.fpus_per_sm}
  clock_rate_ghz: {spec.clock / 1e9:g}
  memory_bandwidth: {int(spec.bandwidth)}
  device_memory_size: {spec.memory_bytes}
  l2_cache_size: {spec.l2_bytes}
  threads_per_warp: {_WARP}
  threads_per_block_limit: {spec.threads_per_block}
  threads_per_core_limit: {spec.threads_per_sm}
  registers_per_core_limit: {spec.registers_per_sm}
  registers_per_block_limit: {spec.registers_per_block}
  shared_memory_per_core: {spec.shared_per_sm}
  shared_memory_per_block: {spec.shared_per_block}
  shared_memory_per_block_optin: {spec.shared_optin}
  block_dim_limit_x: {2**31 - 1} block_dim_limit_y: 65535 block_dim_limit_z: 65535
  driver_version: "13.0.0" runtime_version: "{toolkit}" compile_time_toolkit_version: "{toolkit}"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{spec.title}"
"""
