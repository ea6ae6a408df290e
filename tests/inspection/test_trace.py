"""`jstitch trace`: profiles that JAX writes here, and made ones as XLA writes them on a GPU."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner, Result
from jax.profiler import ProfileData

import jstitch
from jstitch.__main__ import main
from jstitch.demo.model import ModelConfig
from jstitch.demo.training import TrainingConfig, prepare
from jstitch.device_spec import find_spec
from jstitch.frontend.jitted import Jitted
from jstitch.inspection.profile_file import find_profiles
from jstitch.inspection.profile_schema import Hlo
from jstitch.inspection.trace_summary import KernelTime, TraceSummary, summarize
from jstitch.xla.compile import compile_lowered, device_sharding
from tests.analysis.test_analyze import needs_plugin

EVERYTHING = jstitch.CompileOptions(tune="off", strict=True, without=("chains",))  # products are XLA's
CALLS = 3
X, W = np.ones((64, 96), np.float32), np.ones((96, 96), np.float32)


def layer_norm(x: Any) -> Any:
    with jax.named_scope("layer_norm"):
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def step(x: Any, w: Any) -> Any:
    with jax.named_scope("transformer"):
        y = layer_norm(x) @ w
        with jax.named_scope("act"):
            y = jax.nn.gelu(y)
        return jax.nn.softmax(layer_norm(y), -1)


def traced(folder: Path, run: Callable[[], Any]) -> TraceSummary:
    jax.block_until_ready(run())
    with jax.profiler.trace(folder):
        for _ in range(CALLS):
            jax.block_until_ready(run())
    return summarize(find_profiles(folder))


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["trace", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profile")


@pytest.fixture(scope="module")
def summary(folder: Path) -> TraceSummary:
    f = jstitch.jit(step, options=EVERYTHING)
    return traced(folder, lambda: f(X, W))


def line_of(text: str) -> str:
    """`file:line` of this file's first line with the text."""
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(n for n, line in enumerate(lines, 1) if text in line)}"


def by_scope(found: TraceSummary) -> dict[str, KernelTime]:
    return {kernel.scope: kernel for kernel in found.kernels}


def test_every_kernel_has_its_scope_lines_bytes_and_ops(summary: TraceSummary) -> None:
    first, second = (by_scope(summary)[f"jit(step)/{s}"] for s in ("transformer/layer_norm", "transformer"))
    assert len(summary.kernels) == 2
    assert first.calls == second.calls == CALLS
    assert first.nbytes == second.nbytes == 2 * X.nbytes
    assert first.lines == tuple(
        f"{line_of(text)} (layer_norm)" for text in ("centred = x", "return centred * jax")
    )
    places = [line.partition(" ")[0] for line in second.lines]
    assert places[0] == line_of("y = jax.nn.gelu(y)")
    assert {line_of("centred = x"), line_of("return jax.nn.softmax")} <= set(places)
    assert "stablehlo.rsqrt" in first.ops
    assert "stablehlo.exponential" in second.ops
    assert second.flops > first.flops > 5 * X.size
    assert all(k.seconds > 0 and k.program == "jit_step" for k in summary.kernels)


def test_programs_of_other_shapes_are_apart(tmp_path: Path) -> None:
    f = jstitch.jit(layer_norm, options=EVERYTHING)
    found = traced(tmp_path, lambda: (f(X), f(X[:32])))
    assert sorted((k.calls, k.nbytes) for k in found.kernels) == [(CALLS, X.nbytes), (CALLS, 2 * X.nbytes)]


def test_the_rest_is_xlas(summary: TraceSummary) -> None:
    assert any("dot_general" in other.scope for other in summary.others)
    assert summary.xla_seconds > 0
    assert all(other.program and other.calls == CALLS for other in summary.others)


def test_the_command(folder: Path, summary: TraceSummary) -> None:
    text = command(folder)
    assert text.exit_code == 0
    assert text.output.strip() == str(summary).strip()
    kernel = by_scope(summary)["jit(step)/transformer/layer_norm"].kernel
    assert f"{kernel}: jit(step)/transformer/layer_norm, test_trace.py:" in text.output
    found = json.loads(command(folder, "--json").output)
    assert found == json.loads(json.dumps(summary.to_json()))
    assert {k["kernel"] for k in found["kernels"]} == {k.kernel for k in summary.kernels}
    (file,) = found["files"]
    assert json.loads(command(file, "--json").output) == found


def test_backward_passes_and_loops_have_identities_too(tmp_path: Path) -> None:
    def loss(x: Any, w: Any) -> Any:
        def turn(state: Any, _: Any) -> Any:
            with jax.named_scope("cell"):
                return jax.nn.softmax(jnp.tanh(state @ w), -1), state.sum()

        state, sums = jax.lax.scan(turn, x, None, length=12)
        return (state**2).sum() + sums.sum()

    f = jstitch.jit(jax.grad(loss, (0, 1)), options=EVERYTHING.replace(without=("recurrences",)))
    found = traced(tmp_path, lambda: f(X, W))
    assert any("cell" in kernel.scope and kernel.calls == 12 * CALLS for kernel in found.kernels)
    assert all(k.scope and k.lines and k.nbytes > 0 and k.ops for k in found.kernels)
    assert all(line.startswith(f"{__file__}:") for k in found.kernels for line in k.lines)
    # A loop counts without what it runs.
    holders = [other for other in found.others if other.opcode == "while"]
    inner = sum(k.seconds for k in found.kernels if "cell" in k.scope)
    assert holders
    assert sum(other.seconds for other in holders) < inner + found.xla_seconds


def test_every_kernel_of_the_demo(tmp_path: Path) -> None:
    model = ModelConfig(vocabulary=64, length=16, width=16, heads=2, layers=1)
    config = TrainingConfig(model=model, batch=2)
    jit = functools.partial(jstitch.jit, options=jstitch.CompileOptions(verify=False))
    since = jstitch.record_count()
    side, key = prepare("jstitch.jit", jit, config), jax.random.key(0)
    tokens = jnp.zeros((config.batch, model.length + 1), jnp.int32)

    def run() -> Any:
        side.advance(tokens, key)
        return side.state

    found = traced(tmp_path, run)
    assert len(found.kernels) == jstitch.stitch_count(since) > 5
    assert [k.kernel for k in found.kernels if not (k.scope and k.lines and k.nbytes and k.ops)] == []


def test_programs_do_not_depend_on_lines() -> None:
    """JAX's compilation cache keys on them; it leaves locations out."""
    source = "def f(x):\n    return jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True)\n"
    texts = []
    for above in (0, 40):
        names: dict[str, Any] = {"jnp": jnp}
        exec(compile("\n" * above + source, f"/home/user/{above}.py", "exec"), names)
        lowered = jstitch.jit(names["f"], options=EVERYTHING).lower(X)
        texts.append(lowered.as_text())
        assert f'"/home/user/{above}.py":{above + 2}' in lowered.as_text(debug_info=True)
    assert texts[0] == texts[1]
    assert "jstitch.bytes" in texts[0]


def test_bad_input(tmp_path: Path) -> None:
    noise = tmp_path / "noise.xplane.pb"
    noise.write_bytes(b"\x0a\xff\xff\xff no profile")
    (tmp_path / "empty").mkdir()
    said = {
        noise: "found 15 bytes that are none",
        tmp_path / "empty": "which holds none",
        Path("no"): "no no",
    }
    for path, what in said.items():
        found = command(path)
        assert found.exit_code == 2
        assert found.output.count("\n") == 1
        assert what in found.output


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/profiling.md's program has the kernels, scopes and lines that the page shows."""
    page = (Path(__file__).parents[2] / "docs" / "profiling.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "block.py", "exec"), {"__name__": "block"})
    found = summarize(find_profiles(Path("trace")))
    assert all(note in page for note in found.notes())
    assert {k.calls for k in found.kernels} == {100}


# -- made profiles ----------------------------------------------------------------------------------------

NUMBER = 7
IDENTITY = {"kernel": "norm_row_0", "launches": "2", "flops": "100", "ops": "stablehlo.add, stablehlo.reduce"}


def hlo() -> bytes:
    """A program of two launches of one kernel, a fusion, and a loop around the fusion."""
    made = Hlo()
    made.module.name, made.module.id = "jit_f", NUMBER
    made.module.frames.files.append("model.py")
    made.module.frames.functions.append("norm")
    made.module.frames.locations.add(file_id=1, function_id=1, line=12)
    made.module.frames.frames.add(location_id=1)
    instructions = made.module.computations.add().instructions
    for n in range(2):
        call = instructions.add(name=f"norm_row_0.{n}", opcode="custom-call")
        call.metadata.op_name, call.metadata.stack_frame_id = "jit(f)/mlp/norm_row_0", 1
        for key, value in {**IDENTITY, "bytes": str(1000 + n), "entry": f"norm_row_0_phase{n}"}.items():
            call.frontend_attributes.map.add(key=f"jstitch.{key}", value=value)
    instructions.add(name="fusion.1", opcode="fusion").metadata.op_name = "jit(f)/add"
    instructions.add(name="while.1", opcode="while")
    return bytes(made.SerializeToString())


def written(path: Path, *planes: str) -> Path:
    """A profile with the program, in XLA's own format."""
    program = "".join(f"\\{byte:03o}" for byte in hlo())
    metadata = f"""planes {{ name: "/host:metadata"
        event_metadata {{ key: 1 value {{ id: 1 name: "jit_f(7)"
          stats {{ metadata_id: 1 bytes_value: "{program}" }} }} }}
        stat_metadata {{ key: 1 value {{ id: 1 name: "Hlo Proto" }} }} }}"""
    path.write_bytes(ProfileData.text_proto_to_serialized_xspace(metadata + "".join(planes)))
    return path


def plane(name: str, lines: dict[str, list[tuple[str, int, int, str]]], number: int = NUMBER) -> str:
    """lines: of events, each with its name, start and duration in us, and HLO instruction ("": says none).

    number: of the program that they say.
    """
    names = sorted({event[0] for events in lines.values() for event in events})
    ops = sorted({event[3] for events in lines.values() for event in events})
    text = f'planes {{ name: "{name}"'
    for n, entry in enumerate(names, 1):
        text += f' event_metadata {{ key: {n} value {{ id: {n} name: "{entry}" }} }}'
    for n, stat in enumerate(("hlo_op", "program_id", "hlo_module", "jit_f", *ops), 1):
        text += f' stat_metadata {{ key: {n} value {{ id: {n} name: "{stat}" }} }}'
    for title, events in lines.items():
        text += f' lines {{ name: "{title}"'
        for entry, start, length, op in events:
            said = f"stats {{ metadata_id: 1 ref_value: {ops.index(op) + 5} }}"
            said += (
                f" stats {{ metadata_id: 2 int64_value: {number} }} stats {{ metadata_id: 3 ref_value: 4 }}"
            )
            text += f" events {{ metadata_id: {names.index(entry) + 1} offset_ps: {start}000000"
            text += f" duration_ps: {length}000000 {said if op else ''} }}"
        text += " }"
    return text + " }"


def test_a_gpus_streams(tmp_path: Path) -> None:
    """Launches of one kernel are one call; in a CUDA graph they have nothing but their names."""
    launches = [("norm_row_0_phase0", 0, 10, "norm_row_0.0"), ("norm_row_0_phase1", 10, 20, "norm_row_0.1")]
    graph = [("norm_row_0_phase0", 50, 30, ""), ("norm_row_0_phase1", 80, 40, "")]
    others = [("loop_add_fusion", 40, 5, "fusion.1"), ("MemcpyD2H", 130, 2, "")]
    device = {"Stream #7(Compute)": launches + graph + others, "XLA Ops": [("fusion.1", 0, 900, "fusion.1")]}
    host = {"python": [("norm_row_0.0", 0, 700, "norm_row_0.0"), ("a function", 0, 5, "")]}
    found = summarize(
        [written(tmp_path / "gpu.xplane.pb", plane("/device:GPU:0", device), plane("/host:CPU", host))]
    )
    (kernel,) = found.kernels
    assert (kernel.kernel, kernel.calls, kernel.launches, kernel.nbytes) == ("norm_row_0", 2, 2, 2001)
    assert kernel.seconds == pytest.approx(100e-6)
    assert kernel.rate(kernel.flops) == pytest.approx(2e6)
    assert (kernel.scope, kernel.lines) == ("jit(f)/mlp", ("model.py:12 (norm)",))
    assert [(o.name, o.program, o.opcode) for o in found.others] == [
        ("fusion.1", "jit_f", "fusion"),
        ("MemcpyD2H", "", ""),
    ]
    assert "programs that the profile does not hold" in str(found)


def test_a_loop_counts_without_its_turns(tmp_path: Path) -> None:
    """On whatever threads those run."""
    threads = {
        "one": [("while.1", 0, 100, "while.1"), ("norm_row_0.0", 10, 30, "norm_row_0.0")],
        "other": [("norm_row_0.1", 30, 20, "norm_row_0.1"), ("fusion.1", 90, 20, "fusion.1")],
    }
    found = summarize([written(tmp_path / "cpu.xplane.pb", plane("/host:CPU", threads))])
    assert {o.name: round(o.seconds * 1e6) for o in found.others} == {"while.1": 50, "fusion.1": 20}
    assert found.stitched_seconds == pytest.approx(50e-6)


def test_programs_of_jaxs_compilation_cache(tmp_path: Path) -> None:
    """Their numbers in events are smaller than those in HLO."""
    events = [("norm_row_0.0", 0, 10, "norm_row_0.0"), ("norm_row_0.1", 10, 10, "norm_row_0.1")]
    early = written(tmp_path / "early.xplane.pb", plane("/host:CPU", {"one": events}, NUMBER - 2))
    assert [k.nbytes for k in summarize([early]).kernels] == [2001]
    late = written(tmp_path / "late.xplane.pb", plane("/host:CPU", {"one": events}, NUMBER + 1))
    assert not summarize([late]).kernels


def test_the_newest_profile_of_a_folder(tmp_path: Path) -> None:
    for name in ("2026_01_01", "2026_01_02"):
        (tmp_path / name).mkdir()
        for host in "ab":
            written(tmp_path / name / f"{host}.xplane.pb")
    assert [file.parent.name for file in find_profiles(tmp_path)] == ["2026_01_02"] * 2


@needs_plugin
def test_xla_gpu_keeps_what_calls_say() -> None:
    spec = find_spec("h200")
    options = jstitch.CompileOptions(tune="off", strict=True, target="h200")
    jitted = Jitted.of(jstitch.jit(layer_norm, options=options), device_sharding(spec))
    lowered = jitted.lower(functools.partial(jstitch.jit, options=options), (X,), {}, "cuda")
    module = compile_lowered(lowered, spec, library_gemms=False).module
    ((name, call),) = (
        (i.name, i.rest) for c in module.computations.values() for i in c.instructions.values() if i.target
    )
    kernel = name.partition(".")[0]
    assert f'jstitch.kernel="{kernel}"' in call
    assert f'jstitch.entry="{kernel}_phase0"' in call
    assert f'jstitch.bytes="{2 * X.nbytes}"' in call
    assert f'op_name="jit(layer_norm)/layer_norm/{kernel}"' in call
    assert "stack_frame_id=" in call
