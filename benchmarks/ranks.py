"""Many processes under real `torchrun`, hurt on purpose; the full form of tests/train/test_worlds.py.

    python benchmarks/ranks.py kills [--kills 20] [--parallel ddp|fsdp] [--out FILE]
    python benchmarks/ranks.py network [--delay 0.005] [--out FILE]      # Linux, as root

`kills`: two ranks under `--max-restarts`; one of them gets SIGKILL again and again, in turns at a random
moment of the start and soon after one to three checkpoints. The run must end with the weights of an
undisturbed one, bit for bit.

`network`: two hosts are two network namespaces with a cable between them that delays (`benchmarks/cable.py`).
It is taken out for less than `rank_timeout` (the run waits and goes on) and for longer (both sides give
up, each host's loop starts `torchrun` again, and the run goes on from the last checkpoint once the cable is
back). Each must end with the weights of an undisturbed run, bit for bit.
"""

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cable import DEVICE, Cable, two_hosts

from gptwright.data.prepare import prepare
from gptwright.hardware.cpu import cpu_name
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.tensors import saved_tensors
from tests.processes import wait_until
from tests.train.torchrun import length_of, ranks_of, said, torchrun

SETTINGS = {
    "n_layer": "2", "n_head": "2", "n_embd": "32", "block_size": "16", "batch_size": "4",
    "gradient_accumulation_steps": "4", "learning_rate": "1e-2", "min_lr": "1e-3", "warmup_iters": "4",
    "eval_iters": "2", "dropout": "0.1", "device": "cpu", "log_interval": "5", "checkpoint_interval": "5",
    "sampling": "epoch",
}  # fmt: skip
ADDRESSES = ("10.77.0.1", "10.77.0.2")


def options(folder: Path, **more: str) -> list[str]:
    given = SETTINGS | {"dataset": str(folder / "words")} | more
    return [f"--{name}={value}" for name, value in given.items()]


def make_dataset(folder: Path) -> None:
    draw = random.Random(3)
    words = ["to", "be", "or", "not", "that", "is", "the", "question", "whether", "nobler"]
    lines = [" ".join(draw.choices(words, k=7)) for _ in range(1200)]
    (folder / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    prepare(str(folder / "corpus.txt"), out=folder / "words", tokenizer="char")


def tensors(run: Path) -> dict[str, torch.Tensor]:
    """All tensors of a run's last checkpoint, whole."""
    folder = RunFolder(run).checkpoints / str(RunFolder(run).pointed("last"))
    weights, moments = saved_tensors(folder)
    return weights | moments


def same(a: Path, b: Path) -> bool:
    left, right = tensors(a), tensors(b)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def steps_of(run: Path) -> list[int]:
    return [r["step"] for r in read_metrics(run / "metrics.jsonl") if r["kind"] == "train"]


def new_ranks(agent: subprocess.Popen[bytes], before: set[int]) -> list[psutil.Process]:
    """The ranks of torchrun's present attempt."""
    return [process for process in ranks_of(agent) if process.pid not in before]


def wait_for_ranks(agent: subprocess.Popen[bytes], before: set[int]) -> None:
    wait_until(lambda: len(new_ranks(agent, before)) == 2)


def wait_for_lines(record: Path, count: int) -> None:
    """Waits for a rank to go on, and then for so many training lines of its own."""
    length = length_of(record)
    wait_until(lambda: length_of(record) != length)
    before = training_lines(record)
    wait_until(lambda: training_lines(record) >= before + count)


def training_lines(record: Path) -> int:
    return record.read_bytes().count(b'"kind": "train"')


def kills(folder: Path, *, count: int, parallel: str, seed: int) -> dict[str, Any]:
    steps = "1200"
    run = options(folder, parallel=parallel, max_iters=steps, lr_decay_iters=steps, eval_interval="200")
    two = ["--standalone", "--nproc_per_node=2"]
    begin = time.monotonic()
    whole = torchrun("train", *run, "--out_dir=whole", cwd=folder, settings=two)
    assert whole.wait(timeout=900) == 0, said(folder)[-3000:]
    undisturbed = time.monotonic() - begin
    draw = random.Random(seed)
    record = folder / "killed" / "metrics.jsonl"
    begin = time.monotonic()
    agent = torchrun(
        "train", *run, "--out_dir=killed", cwd=folder, settings=[*two, f"--max-restarts={count}"]
    )
    found: list[dict[str, Any]] = []
    killed: set[int] = set()
    for number in range(count):
        wait_for_ranks(agent, killed)
        if number % 2:
            wait_for_lines(record, draw.randint(1, 3))
            time.sleep(draw.uniform(0.0, 0.3))
        else:
            time.sleep(draw.uniform(0.0, 6.0))
        ranks = new_ranks(agent, killed)
        rank = draw.randrange(len(ranks))
        killed |= {process.pid for process in ranks}
        names = RunFolder(folder / "killed").checkpoint_names()
        partial = any((folder / "killed" / "checkpoints").glob(".*.partial"))
        ranks[rank].kill()
        last = names[-1] if names else None
        found.append({"rank": rank, "last_checkpoint": last, "inside_a_write": partial})
        print(f"kill {number + 1}: {found[-1]}", flush=True)
    status = agent.wait(timeout=900)
    assert status == 0, said(folder)[-5000:]
    return {
        "parallel": parallel,
        "kills": found,
        "steps": int(steps),
        "seconds_undisturbed": round(undisturbed, 1),
        "seconds_killed": round(time.monotonic() - begin, 1),
        "same_weights": same(folder / "killed", folder / "whole"),
        "same_steps_logged": steps_of(folder / "killed") == steps_of(folder / "whole"),
    }


class Host:
    """One host's loop: `torchrun` again and again until it ends well, as a service or a shell loop does."""

    def __init__(self, name: str, address: str, folder: Path, run: list[str]) -> None:
        self.folder = folder
        self.starts = 0
        as_host = f'echo {name} > /proc/sys/kernel/hostname; exec "$@"'
        self._launcher = [
            "ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", as_host, "sh",
            "env", f"GLOO_SOCKET_IFNAME={DEVICE}",
        ]  # fmt: skip
        self._settings = [
            "--nnodes=2", "--nproc_per_node=1", "--rdzv-backend=c10d", "--rdzv-id=hosts",
            f"--rdzv-endpoint={ADDRESSES[0]}:29400", f"--local-addr={address}", "--max-restarts=3",
            f"--rdzv-conf=is_host={int(address == ADDRESSES[0])}",
        ]  # fmt: skip
        self._run = run
        self.agent = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        return torchrun(
            "train", *self._run, cwd=self.folder, launcher=self._launcher, settings=self._settings
        )

    def done(self) -> bool:
        """Whether the run has ended well; starts it again where it has not."""
        status = self.agent.poll()
        if status is None:
            return False
        if status != 0:
            time.sleep(1.0)
            self.agent = self._start()
        return status == 0


def train_on(
    hosts: list[str], cable: Cable, folder: Path, name: str, run: list[str], *, cut: float
) -> dict[str, Any]:
    """One run on both hosts; the cable is taken out for `cut` seconds once it trains."""
    out = folder / name
    both: list[Host] = []
    for side, host, address in zip("ab", hosts, ADDRESSES, strict=True):
        place = folder / f"{name}-{side}"
        place.mkdir()
        both.append(Host(host, address, place, [*run, f"--out_dir={out}", "--init_from=auto"]))
    begin = time.monotonic()
    if cut:
        wait_until(lambda: out.is_dir() and length_of(out / "metrics.jsonl") > 3000)
        cable.is_out = True
        print(f"{name}: the cable is out", flush=True)
        until = time.monotonic() + cut
        while time.monotonic() < until:
            for one in both:
                one.done()
            time.sleep(0.2)
        cable.is_out = False
        print(f"{name}: the cable is back", flush=True)
    back = time.monotonic()
    before = length_of(out / "metrics.jsonl") if cut else 0
    first_line: float | None = None
    finished = [False, False]
    while not all(finished):
        finished = [done or one.done() for done, one in zip(finished, both, strict=True)]
        if first_line is None and cut and length_of(out / "metrics.jsonl") != before:
            first_line = time.monotonic() - back
        if time.monotonic() - back > 900:
            raise TimeoutError("".join(said(one.folder)[-3000:] for one in both))
        time.sleep(0.1)
    records = read_metrics(out / "metrics.jsonl")
    messages = [line for one in both for line in said(one.folder).splitlines() if line.startswith("error: ")]
    return {
        "cut_seconds": cut,
        "seconds": round(time.monotonic() - begin, 1),
        "seconds_until_a_line_after_the_cut": round(first_line, 1) if first_line is not None else None,
        "torchrun_starts": [one.starts for one in both],
        "resumed_from": [r["step"] for r in records if r["kind"] == "resume"],
        "messages": messages,
    }


def network(folder: Path, *, delay_seconds: float) -> dict[str, Any]:
    run = options(folder, max_iters="400", lr_decay_iters="400", eval_interval="100", rank_timeout="20")
    with two_hosts(ADDRESSES, delay_seconds=delay_seconds) as (hosts, cable):
        found = {}
        for name, cut in (("whole", 0.0), ("short", 8.0), ("long", 60.0)):
            found[name] = train_on(hosts, cable, folder, name, run, cut=cut)
            found[name]["same_weights"] = same(folder / name, folder / "whole")
            found[name]["same_steps_logged"] = steps_of(folder / name) == steps_of(folder / "whole")
            print(name, found[name], flush=True)
    return {"delay_seconds_each_way": delay_seconds, "rank_timeout": 20, "steps": 400, "runs": found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["kills", "network"])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--parallel", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--delay", type=float, default=0.005, help="seconds in each direction")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.what == "network" and (os.geteuid() != 0 or not shutil.which("ip")):
        sys.exit("network needs Linux, root, and ip (Debian: apt-get install iproute2)")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_dataset(folder)
        if given.what == "kills":
            result = kills(folder, count=given.kills, parallel=given.parallel, seed=given.seed)
        else:
            result = network(folder, delay_seconds=given.delay)
    result = {
        "machine": cpu_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        **result,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
