"""GPUs by name, and how many CTAs fit: compared with CUDA's occupancy calculator and the device tables."""

from __future__ import annotations

import dataclasses

import pytest

from jstitch.device_spec import (
    MAX_REGISTERS,
    SPECS,
    DeviceSpec,
    find_spec,
    held_by_shared,
    occupancy,
    spec_of_device,
    to_target_config,
)
from jstitch.errors import OptionError

WANTED = ("v100", "a100", "h100", "h200", "b200", "rtx4090", "rtx5090")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("h200", "h200"),
        ("H200", "h200"),
        ("NVIDIA H200", "h200"),
        ("rtx 5090", "rtx5090"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("sm_90", "h100"),
        ("sm_90a", "h100"),
        ("sm80", "a100"),
        ("8.9", "rtx4090"),
        ("sm_100", "b200"),
        ("12.0", "rtx5090"),
    ],
)
def test_names_of_devices_and_architectures_are_found(name: str, found: str) -> None:
    assert find_spec(name).name == found


def test_every_promised_device_is_known_and_finds_itself() -> None:
    assert set(WANTED) <= set(SPECS)
    for name, spec in SPECS.items():
        assert spec.name == name
        assert find_spec(name) is find_spec(spec.title) is find_spec(spec) is spec
        assert find_spec(spec.arch).capability == spec.capability


@pytest.mark.parametrize("name", ["mi300", "sm_30", "", "gpu", "sm_", "9"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(OptionError, match=r"h200.*sm_90.*found") as error:
        find_spec(name)
    assert repr(name) in str(error.value)


def test_specs_are_values() -> None:
    spec = find_spec("h200")
    assert hash(spec) == hash(dataclasses.replace(spec))
    assert dataclasses.replace(spec, sms=1) != spec
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.sms = 1  # type: ignore[misc]


def test_an_unknown_device_borrows_from_an_older_relative() -> None:
    spec = spec_of_device("NVIDIA B300", (10, 3))
    assert (spec.title, spec.arch, spec.sms) == ("NVIDIA B300", "sm_103", find_spec("b200").sms)
    assert spec_of_device("NVIDIA A40", (8, 6)).shared_optin == find_spec("sm_86").shared_optin
    assert spec_of_device("NVIDIA H200", (9, 0)) is find_spec("h200")
    with pytest.raises(OptionError, match="sm_61"):
        spec_of_device("Tesla P40", (6, 1))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_numbers_of_a_spec_agree_with_each_other(spec: DeviceSpec) -> None:
    assert spec.shared_per_block <= spec.shared_optin <= spec.shared_per_sm - spec.shared_reserved
    assert spec.threads_per_sm % spec.threads_per_block == 0 or spec.threads_per_sm == 1536
    assert spec.l2_bytes < spec.memory_bytes
    assert 1e11 < spec.bandwidth < 1e13
    assert 1e9 < spec.clock < 3e9


# Device, threads, registers, shared bytes -> CTAs per SM, by NVIDIA's occupancy calculator.
CALCULATOR = [
    ("a100", 256, 64, 0, 4),
    ("a100", 256, 32, 0, 8),
    ("a100", 1024, 32, 0, 2),
    ("a100", 128, 40, 0, 12),
    ("a100", 32, 16, 0, 32),
    ("a100", 256, 255, 0, 1),
    ("a100", 256, 16, 166912, 1),
    ("v100", 256, 32, 49152, 2),
    ("v100", 256, 32, 98304, 1),
    ("t4", 256, 32, 0, 4),
    ("rtx3090", 1024, 32, 0, 1),
    ("rtx3090", 32, 16, 0, 16),
    ("rtx4090", 32, 16, 0, 24),
    ("rtx4090", 256, 40, 0, 6),
    ("h200", 256, 65, 0, 3),
    ("h200", 256, 32, 49152, 4),
    ("h200", 256, 32, 232448, 1),
    ("h200", 33, 32, 0, 32),
    ("rtx5090", 512, 40, 101376, 1),
]


@pytest.mark.parametrize(("name", "threads", "registers", "shared", "ctas"), CALCULATOR)
def test_occupancy_is_the_calculators(
    name: str, threads: int, registers: int, shared: int, ctas: int
) -> None:
    assert occupancy(find_spec(name), threads, registers, shared) == ctas


def test_what_cannot_be_launched_has_no_occupancy() -> None:
    spec = find_spec("h200")
    assert occupancy(spec, 1025, 32, 0) == 0
    assert occupancy(spec, 0, 32, 0) == 0
    assert occupancy(spec, 1024, 65, 0) == 0
    assert occupancy(spec, 32, MAX_REGISTERS + 1, 0) == 0
    assert occupancy(spec, 32, 32, spec.shared_optin + 1) == 0


def test_occupancy_never_grows_with_what_is_asked_for() -> None:
    spec = find_spec("h100")
    by_registers = [occupancy(spec, 256, r, 0) for r in range(1, MAX_REGISTERS + 1)]
    by_shared = [occupancy(spec, 256, 32, s) for s in range(0, spec.shared_optin, 512)]
    assert by_registers == sorted(by_registers, reverse=True)
    assert by_shared == sorted(by_shared, reverse=True)


@pytest.mark.parametrize("name", SPECS)
def test_every_target_config_is_of_the_toolkit_that_jax_brings(name: str) -> None:
    """What XLA does with loops depends on it. Volta is no target of CUDA 13."""
    toolkit = "12.9.0" if name == "v100" else "13.0.0"
    text = to_target_config(find_spec(name))
    assert f'runtime_version: "{toolkit}" compile_time_toolkit_version: "{toolkit}"' in text
    assert 'driver_version: "13.0.0"' in text


def test_the_target_config_says_what_xla_needs() -> None:
    text = to_target_config(find_spec("rtx4090"))
    for part in (
        "major: 8 minor: 9",
        "core_count: 128",
        "memory_bandwidth: 1008000000000",
        "shared_memory_per_block_optin: 101376",
        'name: "NVIDIA GeForce RTX 4090"',
        'platform_name: "CUDA"',
    ):
        assert part in text
    assert text.count("{") == text.count("}")


def test_shared_memory_may_let_few_ctas_be_there() -> None:
    hopper, unknown = (9, 0), (6, 1)
    assert held_by_shared(hopper, 256, 200_000) == 1
    assert held_by_shared(hopper, 256, 54_000) == 4
    assert held_by_shared(hopper, 256, 8192) == 0  # as many as may be
    assert held_by_shared(hopper, 1024, 120_000) == 1
    assert held_by_shared(hopper, 1024, 54_000) == 0
    assert held_by_shared(unknown, 256, 200_000) == 0
