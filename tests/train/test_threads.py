"""Threads of a CPU run: all on a quiet machine, fewer where they are quicker, the same after a resume."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.load import load_config
from gptwright.config.schema import TrainConfig
from gptwright.facts import Fact, Origin
from gptwright.hardware import probe
from gptwright.hardware.detect import find_device
from gptwright.model.gpt import GPT
from gptwright.record.run import RunFolder
from gptwright.train import threads
from gptwright.train.precision import Precision
from gptwright.train.run import prepare_new, prepare_resume
from gptwright.train.score import score_run
from gptwright.train.speak import Speaker
from gptwright.train.threads import OthersLoad, Pass, available_threads, choose_threads, seconds_of
from tests.train.conftest import Train

TRAINING = Pass(rows=2, context=8, learns=True)


class Load(OthersLoad):
    """Others that use a given number of cores."""

    def __init__(self, used: float) -> None:
        super().__init__()
        self.used = used

    def cores(self) -> float:
        return self.used


@pytest.fixture(autouse=True)
def eight_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    available_threads.cache_clear()
    yield
    torch.set_num_threads(before)
    available_threads.cache_clear()


@pytest.fixture(scope="module")
def model() -> GPT:
    config = TrainConfig(n_layer=1, n_head=1, n_embd=8, block_size=8, dropout=0.5)
    return GPT(ModelShape.of(config, 16))


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """What a pass takes with each number of threads; asking for another is an error."""
    seconds: dict[int, float] = {}
    monkeypatch.setattr(threads, "seconds_of", lambda model, precision, count, work: seconds[count])
    return seconds


def choose(model: GPT, used: float | None, *, asked: int = 0, before: int | None = None) -> Fact:
    precision = Precision(find_device("cpu"), "float32")
    load = None if used is None else Load(used)
    fact = choose_threads(model, precision, load, TRAINING, asked=asked, before=before)
    assert fact is not None
    assert fact.value == torch.get_num_threads()
    return fact


@pytest.mark.usefixtures("timed")
@pytest.mark.parametrize("used", [None, 0.0, 0.1, 0.24])
def test_a_quiet_machine_is_taken_whole_and_not_timed(model: GPT, used: float | None) -> None:
    assert choose(model, used).value == 8


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({8: 0.9, 6: 0.3, 4: 0.35}, 6),
        ({8: 0.9, 6: 0.5, 4: 0.35}, 4),
        ({8: 0.30, 6: 0.27, 4: 0.4}, 8),
    ],
)
def test_beside_others_the_quickest_is_taken_if_it_is_worth_it(
    model: GPT, timed: dict[int, float], seconds: Mapping[int, float], chosen: int
) -> None:
    timed.update(seconds)
    fact = choose(model, 1.4)
    assert fact.value == chosen
    assert fact.origin is Origin.MEASURED
    assert "others use 1.4 cores" in fact.reason
    assert f"{seconds[8] * 1000:.0f} ms with 8" in fact.reason


def test_a_choice_does_not_limit_the_next_run_of_this_process(model: GPT, timed: dict[int, float]) -> None:
    timed.update({8: 0.9, 6: 0.5, 4: 0.35})
    assert choose(model, 1.4).value == 4
    assert choose(model, 0.0).value == 8


@pytest.mark.usefixtures("timed")
def test_what_is_asked_for_and_what_was_before_are_kept(model: GPT) -> None:
    assert choose(model, 5.0, asked=3, before=2).value == 3
    assert choose(model, 5.0, before=2).value == 2


def test_more_threads_than_this_process_may_use_are_not_kept(model: GPT, timed: dict[int, float]) -> None:
    timed.update({8: 0.1, 6: 0.1, 4: 0.1})
    assert choose(model, 1.4, before=64).value == 8


@pytest.mark.parametrize("work", [TRAINING, Pass(rows=1, context=1, learns=False)])
def test_a_pass_is_timed_without_a_trace(model: GPT, work: Pass) -> None:
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    draws = torch.get_rng_state()
    assert seconds_of(model, Precision(find_device("cpu"), "float32"), 2, work) > 0
    assert torch.equal(torch.get_rng_state(), draws)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.get_num_threads() == 8


def test_another_process_is_seen_and_this_one_is_not() -> None:
    load = OthersLoad()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        end = time.process_time() + 0.5
        while time.process_time() < end:
            pass
        used = load.cores()
        other.kill()
    # It gets half a core at least where one core is shared by the two.
    assert used > 0.25


def test_a_run_goes_on_with_the_threads_that_it_had(tiny: Mapping[str, str], tmp_path: Path) -> None:
    options = dict(tiny) | {"out_dir": str(tmp_path / "run"), "threads": "3"}
    prepare_new(load_config([], options)).let_go()
    run = RunFolder(tmp_path / "run")
    assert run.threads_on(find_device("cpu").name) == 3
    assert run.threads_on("another machine's CPU") is None
    torch.set_num_threads(8)
    prepared = prepare_resume(run, load_config([], options | {"threads": "0"}))
    prepared.let_go()
    assert torch.get_num_threads() == 3
    fact = next(fact for fact in prepared.session.facts if fact.name == "threads used")
    assert (fact.value, fact.origin) == (3, Origin.LOGGED)


def test_the_peak_and_the_promise_are_of_the_threads_in_use(
    tiny: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "matmul_peak_now", lambda *_, **__: 1e10 * torch.get_num_threads())
    probe.measure_matmul_peak.cache_clear()
    promised = {}
    for count in (1, 3):
        options = tiny | {"out_dir": str(tmp_path / str(count)), "threads": str(count)}
        prepared = prepare_new(load_config([], options))
        prepared.let_go()
        peak = prepared.session.promise.device.peak
        assert peak is not None
        assert peak.number == prepared.session.peak_flops == 1e10 * count
        speed = prepared.session.promise.speed
        assert speed is not None
        promised[count] = speed.likely
    probe.measure_matmul_peak.cache_clear()
    # What is not products takes no less with more threads' peak, so it is less than thrice.
    assert 1.5 < promised[3] / promised[1] <= 3


def test_who_speaks_or_scores_beside_others_times_what_it_does(
    tiny: dict[str, str], tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny | {"max_iters": "1", "threads": "1"}, tmp_path / "run")
    timed: list[Pass] = []

    def seconds(model: GPT, precision: Precision, count: int, work: Pass) -> float:
        timed.append(work)
        return {8: 0.9, 6: 0.3, 4: 0.5}[count]

    monkeypatch.setattr(OthersLoad, "cores", lambda _: 1.4)
    monkeypatch.setattr(threads, "seconds_of", seconds)
    Speaker.of(tmp_path / "run", device="cpu")
    assert torch.get_num_threads() == 6
    assert timed == [Pass(rows=1, context=1, learns=False)] * 3
    torch.set_num_threads(8)
    scored = score_run(RunFolder(tmp_path / "run"), device="cpu", max_windows=5)
    assert torch.get_num_threads() == 6
    assert timed[3:] == [Pass(rows=scored["windows"], context=16, learns=False)] * 3
