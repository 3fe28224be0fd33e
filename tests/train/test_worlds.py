"""Several processes against one: the same losses, evaluations, checkpoints, however the step is cut.

Gloo worlds that are trained once for all these tests, and one launch of real `torchrun`, in which ranks
fail, are killed and are started again. `benchmarks/ranks.py` is that launch's full form: twenty kills, and
two hosts with a cut cable.
"""

from pathlib import Path

import numpy as np
import pytest

from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.seal import verified_payload
from gptwright.train.speak import Speaker
from tests.conftest import as_arguments
from tests.processes import wait_until
from tests.train.conftest import assert_same_weights, story
from tests.train.torchrun import length_of, ranks_of, said, torchrun
from tests.train.worlds import STEPS, Worlds, guard_lines, long_run

pytestmark = pytest.mark.slow

SETTINGS = ["--standalone", "--nproc_per_node=2", "--max-restarts=2"]


@pytest.mark.parametrize("name", ["ddp-2", "fsdp-2", "ddp-3", "fsdp-3"])
def test_several_processes_have_the_losses_of_one(worlds: Worlds, name: str) -> None:
    """Three processes share eight sequences unevenly: 2, 3 and 3, one of them with a pass for company.

    They make each block's forward pass twice and the loss in chunks.
    """
    one, several = worlds.losses("one"), worlds.losses(name)
    assert len(several) == (5 if name.endswith("3") else STEPS)
    assert one[-1] < one[0] - 0.4
    np.testing.assert_allclose(several, one[: len(several)], rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["ddp-2", "fsdp-2", "ddp-3", "fsdp-3"])
def test_evaluations_are_split_and_every_window_keeps_its_loss(worlds: Worlds, name: str) -> None:
    for step in (0,) if name.endswith("3") else (0, 25, 50):
        one, several = worlds.windows("one", step), worlds.windows(name, step)
        assert len(one) == 8
        np.testing.assert_allclose(several, one, rtol=2e-6, atol=0)


@pytest.mark.parametrize("name", ["ddp-chain", "fsdp-chain"])
def test_a_run_goes_on_with_two_one_and_three_processes_and_another_division(
    worlds: Worlds, name: str
) -> None:
    """Copies → one → parts, and parts → one → copies."""
    assert len(worlds.losses(name)) == STEPS
    np.testing.assert_allclose(worlds.losses(name), worlds.losses("one"), rtol=1e-6, atol=0)
    records = read_metrics(worlds.folder / name / "metrics.jsonl")
    assert [r["step"] for r in records if r["kind"] == "resume"] == [20, 35]


def test_all_stop_at_the_same_step_though_one_was_asked(worlds: Worlds) -> None:
    """Rank 1 alone got the signal, after step 18; the vote is counted a step later."""
    ends = worlds.worlds[1]["ends"]
    assert ends[0] == ends[1] == [120, STEPS, STEPS, 20, 20, STEPS, 31, 12, 12]


@pytest.mark.parametrize("name", ["ddp-troubled", "fsdp-troubled"])
def test_what_is_wrong_in_one_process_is_skipped_and_rolled_back_in_all(worlds: Worlds, name: str) -> None:
    """As one process does it, with its losses; the guard's deeds and the hook's calls come from one."""
    one = guard_lines(worlds.folder / "one-troubled")
    assert [line["what"] for line in one] == ["rollback"]
    assert (one[0]["from_step"], one[0]["step"], one[0]["batches_passed_over"]) == (7, 2, 6)
    several = guard_lines(worlds.folder / name)
    assert several[0] == one[0]
    alone = worlds.losses("one-troubled")[:10]
    np.testing.assert_allclose(worlds.losses(name)[:10], alone, rtol=1e-6, atol=0)
    calls = [line.split()[2] for line in (worlds.folder / name / "hook.log").read_text().splitlines()]
    assert sorted(calls) == ["finished:", "non-finite:", "non-finite:"]


@pytest.mark.parametrize("name", ["ddp-troubled", "fsdp-troubled"])
def test_a_damaged_checkpoint_is_passed_over_by_all(worlds: Worlds, name: str) -> None:
    assert worlds.worlds[4]["ends"] == [[STEPS, 14, 14]] * 2
    records = read_metrics(worlds.folder / name / "metrics.jsonl")
    assert [r["step"] for r in records if r["kind"] == "resume"] == [10]
    assert [line["what"] for line in guard_lines(worlds.folder / name)] == ["rollback", "fallback"]


def test_a_run_that_another_process_writes_is_refused_once(worlds: Worlds) -> None:
    assert worlds.worlds[5]["statuses"] == [1, 1]
    assert worlds.said.count("gptwright.errors.RunError: ") == 1
    assert "one is being written by process" in worlds.said


def test_several_processes_shrink_no_micro_batch_and_say_why(worlds: Worlds) -> None:
    assert worlds.worlds[6]["statuses"] == [1, 1]
    assert "out of memory with a micro-batch of 4" in worlds.said
    assert "several processes would have to shrink it at the same step" in worlds.said
    facts = {f["name"]: f for f in RunFolder(worlds.folder / "no-memory").read_facts()["facts"]}
    assert facts["out of memory"]["value"] == "stop"


def test_dropout_is_the_same_for_the_same_cut_and_another_draw_for_another(worlds: Worlds) -> None:
    assert_same_weights(worlds.folder / "dropping", worlds.folder / "dropping-stopped")
    assert story(worlds.folder / "dropping") == story(worlds.folder / "dropping-stopped")
    one, two = worlds.losses("one-dropping"), worlds.losses("dropping")
    assert (one != two).all()
    # Two draws of the same noise: no step is far off, and on average nothing is.
    assert abs(one - two).max() < 0.2
    assert abs((one - two).mean()) < 0.03


def test_one_process_writes_one_record(worlds: Worlds) -> None:
    for name in ("ddp-2", "fsdp-2"):
        records = read_metrics(worlds.folder / name / "metrics.jsonl")
        kinds = [r["kind"] for r in records]
        assert (kinds.count("start"), kinds.count("eval"), kinds.count("end")) == (1, 3, 1)
        assert [r["step"] for r in records if r["kind"] == "train"] == list(range(STEPS))
        assert records[0]["world_size"] == 2
        assert [r["tokens"] for r in records if r["kind"] == "train"][-1] == STEPS * 8 * 16
        facts = {f["name"]: f for f in RunFolder(worlds.folder / name).read_facts()["facts"]}
        assert facts["processes"]["text"] == "2 on 1 host, over gloo"
        assert facts["parallel used"]["value"] == name.removesuffix("-2")


def test_a_sharded_checkpoint_is_one_file_a_process_without_code_and_speaks(worlds: Worlds) -> None:
    run = RunFolder(worlds.folder / "fsdp-2")
    folder = run.checkpoints / "step-00000050"
    shards = [f"shard-{number:05d}-model-00001-of-00001.safetensors" for number in range(1, 3)]
    assert sorted(file.name for file in folder.iterdir()) == [*shards, "state.json"]
    assert set(verified_payload(run, folder.name)["files"]) == set(shards)
    assert len("".join(Speaker.of(run.path).speak(start="to be", max_new_tokens=20))) == 20


def test_failures_are_told_once_and_the_run_ends_in_the_right_weights(
    tmp_path: Path, worlds: Worlds, dataset: Path
) -> None:
    """Both ranks miss the dataset; it appears, and one is killed while it trains; the third start goes on."""
    arguments = as_arguments(long_run(dataset) | {"dataset": "later", "out_dir": "killed"})
    agent = torchrun("train", *arguments, cwd=tmp_path, settings=SETTINGS)
    wait_until(lambda: "error:" in said(tmp_path))
    (tmp_path / "later").symlink_to(dataset)
    record = tmp_path / "killed" / "metrics.jsonl"
    wait_until(lambda: length_of(record) > 2500)
    missing = said(tmp_path)
    assert missing.count("error:") == missing.count("error: rank ") == 1
    assert "of 2 on " in missing
    ranks_of(agent)[1].kill()
    assert agent.wait(timeout=120) == 0, said(tmp_path)[-3000:]
    then = said(tmp_path)[len(missing) :]
    assert then.count("error:") == 1
    assert "error: rank 1 of 2 on " in then
    assert "ended without a word" in then
    assert "Traceback" not in then
    assert [r["kind"] for r in read_metrics(record)].count("resume") == 1
    assert_same_weights(tmp_path / "killed", worlds.folder / "whole")
    assert story(tmp_path / "killed") == story(worlds.folder / "whole")
