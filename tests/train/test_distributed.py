"""Joining, asking and failing of several processes, seen from one; `test_worlds.py` trains with several."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from gptwright.errors import ConfigError, DataError, PeerFailedError, PeerLostError
from gptwright.record.metrics import read_metrics
from gptwright.train import failures
from gptwright.train.distributed import joined_world, meet
from gptwright.train.failures import Register
from gptwright.train.settle import require_same_command
from gptwright.train.state import dropout_seed
from gptwright.train.stop import ECHO_SECONDS, StopRequest
from gptwright.train.world import StopVote, World, launch_name, require_one_process, was_restarted
from tests.conftest import Answer, as_arguments
from tests.processes import PATIENCE_SECONDS


def test_every_process_has_its_own_dropout() -> None:
    seeds = {dropout_seed(seed, step, rank) for seed in range(5) for step in range(50) for rank in range(16)}
    assert len(seeds) == 5 * 50 * 16


def test_a_world_of_one_costs_nothing_and_decides_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined_world() as world:
        assert world == World()
        assert world.from_first(lambda: "mine") == "mine"
        assert world.all_gather(3) == [3]
        assert world.device_request("cuda:1") == "cuda:1"
        vote = StopVote(world)
        assert [vote(False), vote(True)] == [False, True]


def test_processes_that_were_asked_for_different_settings_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = {"n_embd": 16, "max_iters": 20, "out_dir": "a"}

    def beside(other: dict[str, object]) -> None:
        without = {name: value for name, value in other.items() if name != "out_dir"}
        monkeypatch.setattr(World, "all_gather", lambda _, own: [own, [without, "node7"]])
        require_same_command(mine, world=World(rank=0, size=2))

    beside(mine | {"out_dir": "b"})
    with pytest.raises(
        ConfigError, match=r"rank 1 on node7 was asked for n_embd = 32; rank 0 on .* for n_embd = 16"
    ):
        beside(mine | {"n_embd": 32})
    with pytest.raises(ConfigError, match=r"for no max_iters; .* for max_iters = 20[\s\S]*the same command"):
        beside({"n_embd": 16})


def test_an_environment_that_joins_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with (
        pytest.raises(ConfigError, match=r"WORLD_SIZE is 2, without RANK[\s\S]*with torchrun"),
        joined_world(),
    ):
        pass


@pytest.mark.parametrize("request_", ["cuda:1", "mps"])
def test_one_device_for_several_processes_is_refused(request_: str) -> None:
    with pytest.raises(ConfigError, match=rf"device = '{request_}' with 2 processes"):
        World(rank=1, size=2, local_rank=1, local_size=2).device_request(request_)


def test_each_process_takes_the_device_of_its_local_rank() -> None:
    world = World(rank=5, size=8, local_rank=1, local_size=4)
    assert world.device_request("cuda") == "cuda:1"
    assert world.device_request("cpu") == "cpu"
    assert (world.hosts, world.is_first) == (2, False)


def test_a_verb_for_one_process_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="4 processes were started, and demo runs in one"):
        require_one_process("demo")


def test_a_launch_is_known_again_after_its_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")
    assert launch_name() == "job-7"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert str(os.getppid()) in str(launch_name())
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    assert not was_restarted()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert was_restarted()


def test_an_echo_of_ctrl_c_is_no_second_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun passes a signal on that a terminal has given to all processes already."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")
    request = StopRequest()
    request.receive(signal.SIGINT, None)
    request.receive(signal.SIGTERM, None)
    assert request
    request.received_at -= 2 * ECHO_SECONDS
    with pytest.raises(KeyboardInterrupt):
        request.receive(signal.SIGINT, None)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    request = StopRequest()
    request.receive(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        request.receive(signal.SIGINT, None)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_a_closed_terminal_is_said_by_many_and_never_a_second_wish() -> None:
    """The kernel and the shell send SIGHUP; systemd sends SIGTERM before or after it."""
    request = StopRequest()
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
        request.receive(number, None)
    assert request
    request.received_at -= 2 * ECHO_SECONDS
    request.receive(signal.SIGHUP, None)
    request.received_at -= 2 * ECHO_SECONDS
    with pytest.raises(KeyboardInterrupt):
        request.receive(signal.SIGTERM, None)


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Register]:
    """Of a process that nobody can hear, started by hand and not by torchrun."""
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setattr(failures, "PATIENCE_SECONDS", 0.1)
    before = signal.getsignal(signal.SIGTERM)
    yield Register(World(rank=1, size=2, local_rank=1, local_size=2))
    signal.signal(signal.SIGTERM, before)


def test_an_error_keeps_its_kind_and_gets_its_rank(register: Register) -> None:
    told = register.told_once(DataError("no such corpus", fix="another one"))
    assert isinstance(told, DataError)
    assert told.problem.startswith("rank 1 of 2 on ")
    assert told.problem.endswith(": no such corpus")
    assert told.fix == "another one"


def test_a_bug_keeps_its_traceback_and_a_silent_error_its_silence(register: Register) -> None:
    bug, silent = ZeroDivisionError("x"), PeerFailedError("rank 0 failed")
    assert register.told_once(bug) is bug
    assert "rank 1 of 2" in bug.__notes__[0]
    assert register.told_once(silent) is silent


@pytest.mark.parametrize(
    "text",
    [
        "[gloo/transport/tcp/pair.cc:553] Connection closed by peer",
        "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation to complete",
        "Application timeout caused pair closure",
    ],
)
def test_a_broken_connection_becomes_a_message_with_what_to_do(register: Register, text: str) -> None:
    """Each is what gloo said when a process was killed or a cable was out."""
    told = register.told_once(RuntimeError(f"{text}\nmore"))
    assert isinstance(told, PeerLostError)
    assert "cannot reach the other processes" in told.problem
    assert told.why == text
    assert "--max-restarts" in str(told.fix)


def test_the_same_command_with_auto_starts_and_then_goes_on(
    tmp_path: Path, tiny: dict[str, str], gptwright: Callable[..., Answer]
) -> None:
    arguments = as_arguments(tiny | {"out_dir": str(tmp_path / "run"), "init_from": "auto"})
    assert gptwright("train", *arguments).status == 0
    again = gptwright("train", *arguments, "--max_iters=30")
    assert again.status == 0, again.err
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [r["step"] for r in records if r["kind"] == "resume"] == [24]
    # Nothing left to do is no mistake of a command that a loop gives again.
    assert gptwright("train", *arguments, "--max_iters=30").status == 0


def test_a_restart_goes_on_with_its_own_run_and_no_other(
    tmp_path: Path, tiny: dict[str, str], gptwright: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = as_arguments(tiny | {"out_dir": str(tmp_path / "run")})
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    assert gptwright("train", *arguments).status == 0
    refused = gptwright("train", *arguments)
    assert (refused.status, "already holds a run" in refused.err) == (2, True)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert gptwright("train", *arguments).status == 0
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-8")
    refused = gptwright("train", *arguments)
    assert (refused.status, "already holds a run" in refused.err) == (2, True)


def test_processes_of_a_new_start_do_not_believe_what_those_before_left_in_the_store() -> None:
    """What torchrun's store holds after a kill: the next start must agree on a name of its own."""
    store = HashStore()
    first, second = World(rank=0, size=2), World(rank=1, size=2)
    names = []
    for early, late in ((second, first), (first, second), (second, first)):
        with ThreadPoolExecutor(2) as pool:
            before = pool.submit(meet, store, early)
            time.sleep(0.1)
            assert not before.done()
            names.append(
                {pool.submit(meet, store, late).result(PATIENCE_SECONDS), before.result(PATIENCE_SECONDS)}
            )
    assert [len(name) for name in names] == [1, 1, 1]
    assert len(set.union(*names)) == 3
