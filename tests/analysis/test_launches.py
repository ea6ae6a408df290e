"""Counting launches of a small program written by hand: loops, branches, fusions that hold a copy."""

from __future__ import annotations

import dataclasses

import pytest

from jstitch.device_spec import find_spec
from jstitch.xla.hlo import parse_module
from jstitch.xla.launches import Program, launches, merged, seconds
from jstitch.xla.thunks import Thunk, parse_thunks
from jstitch.xla.traffic import Traffic

MODULE = """HloModule m

%neg (p: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0} parameter(0)
  ROOT %n = f32[1024]{0} negate(%p)
}

%mm (p: f32[32,32]) -> f32[32,32] {
  %p = f32[32,32]{1,0} parameter(0)
  ROOT %d = f32[32,32]{1,0} dot(%p, %p)
}

%inner (t: f32[1024]) -> f32[1024] {
  %t = f32[1024]{0} parameter(0)
  ROOT %neg.3 = f32[1024]{0} fusion(%t), kind=kLoop, calls=%neg
}

%outer (t: f32[1024]) -> f32[1024] {
  %t = f32[1024]{0} parameter(0)
  %update = f32[1024]{0} fusion(%t), kind=kCustom, calls=%neg
  ROOT %while.2 = f32[1024]{0} while(%update), condition=%test, body=%inner, \
backend_config={"known_trip_count":{"n":"5"}}
}

%test (t: f32[1024]) -> pred[] {
  %t = f32[1024]{0} parameter(0)
  ROOT %compare = pred[] fusion(%t), kind=kLoop, calls=%neg
}

%small (t: f32[1024]) -> f32[1024] {
  ROOT %t = f32[1024]{0} parameter(0)
}

ENTRY %main (x: f32[1024], s: s32[], m: f32[32,32]) -> f32[1024] {
  %x = f32[1024]{0} parameter(0)
  %s = s32[] parameter(1)
  %m = f32[32,32]{1,0} parameter(2)
  %gemm = f32[32,32]{1,0} fusion(%m), kind=kCustom, calls=%mm
  %ours = f32[1024]{0} custom-call(%x), custom_call_target="__gpu$xla.gpu.ptx"
  %while.1 = f32[1024]{0} while(%ours), condition=%test, body=%outer, \
backend_config={"known_trip_count":{"n":"3"}}
  ROOT %cond = f32[1024]{0} conditional(%s, %while.1, %while.1), branch_computations={%small, %inner}
}
"""

SEQUENCE = """001: kCustomKernel [source       | next=002 (1)] gemm_fusion grid: [8, 2, 1] \
threads: [64, 1, 1]  shared_memory: 1024 bytes
002: kCustomKernel [source | sink] k_phase0 grid: [16, 1, 1] threads: [256, 1, 1]  shared_memory: 64 bytes
003: kWhile        [prev=002 (1) | sink        ]   \n\
condition:
    004: kCustomKernel [source | sink] compare grid: [1, 1, 1] threads: [1, 1, 1]  shared_memory: 0 bytes
  body:
    005: kDynamicSliceFusion [source | sink] params=1, results=1
        006: kCopy [source | sink] kCopy
    007: kWhile [source | sink]   \n\
      body:
        008: kCustomKernel [source | sink] neg_3 grid: [8, 1, 1] threads: [128, 1, 1]  shared_memory: 0 bytes
009: kConditional [source | sink]
"""

NAMES = {
    1: "gemm",
    2: "ours",
    3: "while.1",
    4: "compare",
    5: "update",
    6: "copy.of.nothing",
    7: "while.2",
    8: "neg.3",
    9: "cond",
}
METADATA = "\n".join(
    f'thunk_metadata {{\n  thunk_info {{\n    profile_annotation: "{name}"\n    thunk_id: {number}\n  }}\n}}'
    for number, name in NAMES.items()
)


@pytest.fixture
def program() -> Program:
    return Program(parse_module(MODULE), parse_thunks(SEQUENCE, METADATA), find_spec("h200"))


def test_thunks_belong_to_instructions() -> None:
    thunks = parse_thunks(SEQUENCE, METADATA)
    assert thunks["gemm"] == (Thunk(1, "kCustomKernel", "gemm_fusion", 16, 64, 1024),)
    assert [thunk.kind for thunk in thunks["update"]] == ["kDynamicSliceFusion", "kCopy"]
    assert sum(map(len, thunks.values())) == len(NAMES)


def test_loop_bodies_count_as_often_as_they_run(program: Program) -> None:
    found, unknown = launches(program)
    counted = {(launch.name, launch.kind): launch.times for launch in merged(found)}
    # 3 turns of the outer loop, 5 of the inner in each; the dearer branch runs %inner once more.
    assert counted == {
        ("gemm", "gemm"): 1,
        ("ours", "memory"): 1,
        ("update", "copy"): 3,
        ("neg.3", "memory"): 16,
    }
    assert unknown == ()


def test_a_loop_of_unknown_length_counts_once_with_its_condition(program: Program) -> None:
    endless = MODULE.replace('"known_trip_count":{"n":"3"}', "")
    found, unknown = launches(dataclasses.replace(program, module=parse_module(endless)))
    counted = {launch.name: launch.times for launch in merged(found)}
    assert unknown == ("while.1",)
    assert (counted["compare"], counted["update"], counted["neg.3"]) == (1, 1, 6)


def test_bytes_of_our_kernels_come_from_their_report(program: Program) -> None:
    def moved(program: Program) -> Traffic:
        return next(launch.traffic for launch in launches(program)[0] if launch.entry == "k_phase0")

    assert moved(program) == Traffic(4096, 4096)
    known = {"k_phase0": Traffic(8192, 4096), "neg_3": Traffic(1, 1)}
    reported = dataclasses.replace(program, known=known)
    assert moved(reported) == Traffic(8192, 4096)
    assert not any(launch.traffic == Traffic(1, 1) for launch in launches(reported)[0])


def test_modelled_time_is_bytes_over_bandwidth_plus_launches(program: Program) -> None:
    found, _ = launches(program)
    spec = find_spec("h200")
    count = sum(launch.times for launch in found)
    total = sum(launch.traffic.total * launch.times for launch in found)
    assert seconds(found) == pytest.approx(total / spec.bandwidth + count * spec.launch_seconds)
