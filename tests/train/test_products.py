"""Which dtype a CPU with bfloat16 multiplies in: the quickest by measurement, and the same after a resume."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.load import load_config
from gptwright.config.schema import TrainConfig
from gptwright.errors import DeviceError
from gptwright.facts import Origin
from gptwright.hardware import probe
from gptwright.hardware.detect import Device, find_device
from gptwright.kernels.library import Missing, load_kernels
from gptwright.plan import device as planning
from gptwright.plan.plan import make_plan
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train import checks, measure, products
from gptwright.train.products import BFLOAT16, FLOAT32, KERNELS, MIXED, Way, choose_way, seconds_of_ways
from gptwright.train.run import prepare_new, prepare_resume, train_prepared
from tests.conftest import as_arguments
from tests.train.conftest import Train, Watcher, weights

NARROW, WIDE = KERNELS["bfloat16"], KERNELS["float32"]
CONFIG = TrainConfig(n_layer=3, n_head=2, n_embd=32, block_size=16, batch_size=2)
SHAPE = ModelShape.of(CONFIG, 50)
FASTEST_MIXED = {FLOAT32: 3e-6, BFLOAT16: 4e-6, MIXED: 2e-6}


@pytest.fixture
def cpu() -> Device:
    """This CPU, said to have bfloat16; torch emulates it where it has not."""
    return replace(find_device("cpu"), native_dtypes=("float32", "bfloat16"))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> dict[Way, float]:
    """Seconds that each way is said to take, where there are no kernels; another way is an error."""
    seconds = dict(FASTEST_MIXED)
    monkeypatch.setattr(products, "load_kernels", lambda dtype: Missing("no gcc is installed"))
    monkeypatch.setattr(
        products, "seconds_of_ways", lambda ways, shape, device, rows: {way: seconds[way] for way in ways}
    )
    return seconds


@pytest.fixture
def everywhere(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs and measurements find that CPU; emulated, its products have to be small to take no time."""
    for module in (checks, measure):
        monkeypatch.setattr(module, "find_device", lambda request: cpu)
    monkeypatch.setattr(probe, "SIDES", {"cpu": (64,)})
    monkeypatch.setattr(measure, "SECONDS_A_TRIAL", 0.1)
    probe.measure_matmul_peak.cache_clear()
    yield
    probe.measure_matmul_peak.cache_clear()


def test_the_quickest_is_taken_with_all_times_in_its_reason(cpu: Device, taken: dict[Way, float]) -> None:
    choice = choose_way(CONFIG, SHAPE, cpu, before={})
    assert choice is not None
    assert choice.way == MIXED
    assert {(fact.name, fact.value, fact.origin) for fact in choice.facts()} == {
        ("dtype", "bfloat16", Origin.MEASURED),
        ("attention_dtype", "float32", Origin.MEASURED),
        ("kernels", False, Origin.MEASURED),
    }
    assert choice.reason == (
        "forward and backward of a token took 3.0 µs in float32, 4.0 µs in bfloat16,"
        " 2.0 µs in bfloat16 with attention in float32"
    )
    # Its rounding is worth a tenth.
    taken[MIXED] = 2.8e-6
    choice = choose_way(CONFIG, SHAPE, cpu, before={})
    assert choice is not None
    assert choice.way == FLOAT32


@pytest.mark.parametrize(
    ("asked", "way"),
    [
        ({"dtype": "bfloat16"}, MIXED),
        ({"attention_dtype": "dtype"}, FLOAT32),
        ({"attention_dtype": "float32"}, MIXED),
        ({"dtype": "float32"}, None),
        ({"dtype": "bfloat16", "attention_dtype": "dtype"}, None),
    ],
)
@pytest.mark.usefixtures("taken")
def test_what_is_asked_for_is_not_open(cpu: Device, asked: Mapping[str, str], way: Way | None) -> None:
    choice = choose_way(replace(CONFIG, **asked), SHAPE, cpu, before={})  # type: ignore[arg-type]
    assert (choice.way if choice else None) == way


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("device", [{"native_dtypes": ("float32",)}, {"type": "cuda", "index": 0}])
def test_other_devices_are_not_timed(cpu: Device, device: Mapping[str, object]) -> None:
    assert choose_way(CONFIG, SHAPE, replace(cpu, **device), before={}) is None  # type: ignore[arg-type]


@pytest.fixture
def built(taken: dict[Way, float], monkeypatch: pytest.MonkeyPatch) -> dict[Way, float]:
    """The same where there are kernels, which are the quickest."""
    if isinstance(load_kernels(torch.float32), Missing):
        pytest.skip("no gcc")
    monkeypatch.setattr(products, "load_kernels", load_kernels)
    taken[NARROW] = 1e-6
    taken[WIDE] = 2.5e-6
    return taken


@pytest.mark.usefixtures("built")
def test_our_own_kernels_are_one_of_the_ways(cpu: Device) -> None:
    choice = choose_way(CONFIG, SHAPE, cpu, before={})
    assert choice is not None
    assert choice.way == NARROW
    assert choice.reason == (
        "forward and backward of a token took 3.0 µs in float32, 1.0 µs in bfloat16 with our own kernels"
    )
    assert ("kernels", True) in {(fact.name, fact.value) for fact in choice.facts()}
    assert choice.way.applied(CONFIG).kernels is True
    without = choose_way(replace(CONFIG, kernels=False), SHAPE, cpu, before={})
    assert without is not None
    assert without.way == MIXED
    compiled = choose_way(replace(CONFIG, compile=True), SHAPE, cpu, before={})
    assert compiled is not None
    assert compiled.way == MIXED


@pytest.mark.usefixtures("built")
def test_kernels_that_are_asked_for_are_not_timed(cpu: Device) -> None:
    choice = choose_way(replace(CONFIG, kernels=True), SHAPE, cpu, before={})
    assert choice is not None
    assert (choice.way, choice.origin, choice.reason) == (NARROW, Origin.CONFIGURED, "asked for")


@pytest.fixture
def old(cpu: Device) -> Device:
    """The same without bfloat16."""
    return replace(cpu, native_dtypes=("float32",))


def test_a_cpu_without_bfloat16_has_them_in_float32(old: Device, built: dict[Way, float]) -> None:
    choice = choose_way(CONFIG, SHAPE, old, before={})
    assert choice is not None
    assert choice.way == WIDE
    assert choice.reason == (
        "forward and backward of a token took 3.0 µs in float32, 2.5 µs in float32 with our own kernels"
    )
    # About as quick, they are taken too: a clock that errs a little makes no other run.
    built[WIDE] = 3.2e-6
    as_quick = choose_way(CONFIG, SHAPE, old, before={})
    assert as_quick is not None
    assert as_quick.way == WIDE
    built[WIDE] = 3.4e-6
    slower = choose_way(CONFIG, SHAPE, old, before={})
    assert slower is not None
    assert slower.way == FLOAT32


@pytest.mark.usefixtures("built")
def test_float32_that_is_asked_for_has_them_too(cpu: Device) -> None:
    choice = choose_way(replace(CONFIG, dtype="float32", attention_dtype="float32"), SHAPE, cpu, before={})
    assert choice is not None
    assert choice.way == WIDE
    asked = choose_way(replace(CONFIG, dtype="float32", kernels=True), SHAPE, cpu, before={})
    assert asked is not None
    assert (asked.way, asked.origin) == (WIDE, Origin.CONFIGURED)
    assert choose_way(replace(CONFIG, dtype="float32", kernels=False), SHAPE, cpu, before={}) is None


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("asked", "device", "why"),
    [
        ({"dtype": "float16"}, {}, "they compute in float32 here, and dtype = float16 is asked for"),
        ({"attention_dtype": "float32"}, {}, "in bfloat16 they compute attention in it too"),
        ({"compile": True}, {}, "compile = True leaves it to torch's compiler"),
        (
            {"dtype": "bfloat16"},
            {"native_dtypes": ("float32",)},
            "they compute in float32 here, and dtype = bfloat16 is asked for",
        ),
        ({}, {"type": "cuda", "index": 0}, "they are for a CPU, and a CPU is none"),
    ],
)
def test_kernels_that_cannot_be_had_are_refused_with_the_reason(
    cpu: Device, asked: Mapping[str, object], device: Mapping[str, object], why: str
) -> None:
    here = replace(cpu, name="a CPU", **device)  # type: ignore[arg-type]
    with pytest.raises(DeviceError) as refused:
        choose_way(replace(CONFIG, kernels=True, **asked), SHAPE, here, before={})  # type: ignore[arg-type]
    assert refused.value.why == why
    assert "--kernels=auto" in str(refused.value)


def test_a_run_that_had_kernels_where_there_are_none_now_takes_the_quickest_of_the_rest(
    cpu: Device, taken: dict[Way, float]
) -> None:
    before = {"dtype": "bfloat16", "float32_attention": False, "kernels": True}
    choice = choose_way(CONFIG, SHAPE, cpu, before=before)
    assert choice is not None
    assert (choice.way, choice.origin) == (MIXED, Origin.MEASURED)
    assert NARROW not in taken


@pytest.mark.usefixtures("taken")
def test_one_that_had_them_in_float32_says_that_it_goes_on_without(old: Device) -> None:
    before = {"dtype": "float32", "float32_attention": False, "kernels": True}
    choice = choose_way(CONFIG, SHAPE, old, before=before)
    assert choice is not None
    assert (choice.way, choice.origin) == (FLOAT32, Origin.DERIVED)
    assert choice.reason == "not as this run had: no gcc is installed"


@pytest.mark.usefixtures("everywhere", "built")
@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_a_run_with_kernels_learns_and_goes_on_to_the_same_bits(
    tmp_path: Path, tiny: dict[str, str], train: Train, dtype: str
) -> None:
    options = tiny | {"dtype": dtype, "kernels": "auto"}
    in_float32 = train(options | {"dtype": "float32", "kernels": "False"}, tmp_path / "float32")
    whole = train(options, tmp_path / "whole")
    assert whole.state.best_val_loss == pytest.approx(in_float32.state.best_val_loss, abs=0.02)
    assert RunFolder(tmp_path / "whole").read_facts()["machine"]["kernels"] is True
    half = int(tiny["max_iters"]) // 2
    train(options, tmp_path / "halves", stop_at=half)
    run = RunFolder(tmp_path / "halves")
    resumed = prepare_resume(run, run.load_config({}))
    assert resumed.session.model.shape.kernels
    train_prepared(resumed, Watcher())
    first, second = weights(tmp_path / "whole"), weights(tmp_path / "halves")
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize(
    ("before", "way"),
    [
        ({"dtype": "bfloat16", "float32_attention": False}, BFLOAT16),
        ({"dtype": "bfloat16", "float32_attention": True, "kernels": False}, MIXED),
        ({"dtype": "float32", "float32_attention": False}, FLOAT32),
        ({"device": "this", "threads": 2}, FLOAT32),  # of a version that did not choose
    ],
)
def test_a_run_goes_on_as_it_was(cpu: Device, before: Mapping[str, object], way: Way) -> None:
    choice = choose_way(CONFIG, SHAPE, cpu, before=before)
    assert choice is not None
    assert (choice.way, choice.origin) == (way, Origin.LOGGED)


def test_each_way_is_really_timed_and_leaves_no_trace(cpu: Device) -> None:
    draws = torch.get_rng_state()
    # Large enough for products to count: emulated, bfloat16 takes many times as long.
    shape = ModelShape.of(replace(CONFIG, n_embd=256, block_size=64), 500)
    ways = [FLOAT32, BFLOAT16, MIXED]
    if not isinstance(load_kernels(torch.float32), Missing):
        ways.extend(KERNELS.values())
    seconds = seconds_of_ways(ways, shape, cpu, rows=2, budget=1.0)
    assert list(seconds) == ways
    assert all(taken > 0 for taken in seconds.values())
    assert torch.equal(torch.get_rng_state(), draws)
    if "bfloat16" not in find_device("cpu").native_dtypes:
        assert min(seconds, key=lambda way: seconds[way]).dtype == "float32"


def test_a_first_pass_that_is_slow_decides_nothing(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen at 124M parameters: the one round that there was time for took twice what the next one did."""
    taken = {FLOAT32: iter((4.0, 4.1)), BFLOAT16: iter((9.0, 2.0))}

    class Parts:
        def __init__(self, shape: ModelShape, rows: int, *, kernels: bool) -> None:
            self.nothing = shape.n_embd == 8

        def seconds_a_token(self, way: Way, device: Device) -> float:
            return 0.0 if self.nothing else next(taken[way])

    monkeypatch.setattr(products, "_Parts", Parts)
    seconds = seconds_of_ways([FLOAT32, BFLOAT16], SHAPE, cpu, rows=2, budget=0.0)
    assert seconds == {FLOAT32: 4.0, BFLOAT16: 2.0}


@pytest.mark.usefixtures("everywhere")
def test_a_run_computes_as_chosen_and_goes_on_so(
    tmp_path: Path, tiny: dict[str, str], taken: dict[Way, float], train: Train
) -> None:
    options = tiny | {"dtype": "auto", "kernels": "auto"}
    in_float32 = train(options | {"dtype": "float32"}, tmp_path / "float32")
    out = tmp_path / "run"
    prepared = prepare_new(load_config([], options | {"out_dir": str(out)}))
    assert prepared.session.precision.dtype == "bfloat16"
    assert prepared.session.model.shape.float32_attention
    assert (prepared.session.promise.config.dtype, prepared.session.promise.device.dtype) == ("bfloat16",) * 2
    peak = prepared.session.promise.device.peak
    assert peak is not None
    assert (peak.number, peak.reason) == (
        prepared.session.peak_flops,
        "fastest bfloat16 matrix product just now",
    )
    outcome = train_prepared(prepared, Watcher())
    # A tiny model in 16 bits learns as in 32.
    assert outcome.state.best_val_loss == pytest.approx(in_float32.state.best_val_loss, abs=0.02)
    (start,) = [record for record in read_metrics(out / "metrics.jsonl") if record["kind"] == "start"]
    assert start["dtype"] == "bfloat16"
    taken[MIXED] = 1.0
    run = RunFolder(out)
    again = prepare_resume(run, run.load_config({"max_iters": "40"}))
    again.let_go()
    assert again.session.precision.dtype == "bfloat16"
    assert again.session.model.shape.float32_attention


@pytest.mark.usefixtures("everywhere", "taken")
def test_a_run_without_a_choice_promises_nothing_of_kernels(
    tmp_path: Path, tiny: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A compiler is seen that cannot build them, so that a plan by itself would count on them.
    monkeypatch.setattr(planning, "has_bfloat16", lambda: True)
    monkeypatch.setattr(planning, "missing_for_kernels", lambda: None)
    way = {"dtype": "bfloat16", "attention_dtype": "dtype", "kernels": "auto"}
    options = tiny | way | {"out_dir": str(tmp_path / "run")}
    loaded = load_config([], options)
    assert make_plan(loaded.config, {}, sources={}).device.kernels
    prepared = prepare_new(loaded)
    prepared.let_go()
    device = prepared.session.promise.device
    assert (device.dtype, device.kernels) == ("bfloat16", False)


@pytest.mark.usefixtures("everywhere", "taken")
def test_a_measured_plan_names_what_it_measured() -> None:
    config = replace(CONFIG, device="cpu", gradient_accumulation_steps=1)
    measured = measure.measure(make_plan(config, {}, sources={}))
    assert (measured.config.dtype, measured.config.attention_dtype) == ("bfloat16", "float32")


@pytest.mark.parametrize("choice", [{}, {"optimizer": "muon", "arch": "modern"}], ids=["gpt2", "modern"])
def test_a_run_that_compiles_nothing_loads_no_compiler(
    tiny: Mapping[str, str], tmp_path: Path, choice: Mapping[str, str]
) -> None:
    """torch loads its compiler and sympy where it thinks that it might need them: seconds, and 33 MiB."""
    options = {**tiny, "kernels": "auto", "max_iters": "2", "out_dir": str(tmp_path / "run"), **choice}
    code = (
        "import sys\n"
        "from gptwright.cli.main import run\n"
        f"assert run({['train', '--plain', *as_arguments(options)]}) == 0\n"
        "print([name for name in ('torch._dynamo', 'torch._inductor', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
