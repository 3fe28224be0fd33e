"""Tortures a run: kills, full disks, flipped bits, cut records, a second process, a clock gone wrong.

    python torture.py FOLDER SEED PART=COUNT… -- OPTION…

torch is imported once, and computes nothing before a fork, which would not be safe. Every attempt is a forked
child that starts or resumes a run as the command line does; only what measures the machine is replaced, so
that a child begins within milliseconds. Each part ends with the run finished, and its weights and record are
compared with those of a run that nothing happened to. Prints one JSON line.

Parts: `kill` (SIGKILL from outside at random moments), `write_kill` (the child kills itself at a random
operation on a file, which falls into every stage of a write), `disk` (such an operation, and all after it,
find no space), `quota` (a real file system of a random size, as root on Linux), `bit` (one bit of one file of
the newest checkpoint), `record` (the metrics file is cut), `two` (a second process), `clock` (the clock goes
backwards all the time, with kills).
"""

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from gptwright.config.load import load_config
from gptwright.errors import GptwrightError
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.run import prepare_new, prepare_resume, train_prepared
from gptwright.train.seal import TENSOR_FILES, damage_of

# What two runs that made the same steps may differ in.
CLOCK_FIELDS = {"time", "seconds", "tokens_per_second", "mfu", "peak_flops"}
# What a child's exit status says: refused with a message, or lost.
REFUSED, LOST = 3, 4
# Operations on files that are counted: whatever changes a folder or opens a file to write. Only some of them
# need space.
CHANGING = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"})
NEEDING_SPACE = frozenset({"os.mkdir"})
# A run that ends within seconds, for the part that begins anew each time.
SHORT = {"max_iters": "60", "lr_decay_iters": "60"}


class Deaf:
    """A listener that shows nothing."""

    def recorded(self, record: dict[str, object]) -> None:
        pass

    def stepped(self, step: int) -> None:
        pass


def attempt(out: Path, options: dict[str, str]) -> None:
    """What a child does: `train`, or `resume` if the folder holds a run that has not finished."""
    run = RunFolder(out)
    if run.config_path.exists():
        prepared = prepare_resume(run, run.load_config())
        if prepared.resumed and prepared.resumed.state.step >= prepared.session.config.max_iters:
            return
    else:
        prepared = prepare_new(load_config([], options | {"out_dir": str(out)}))
    train_prepared(prepared, Deaf())


def child(out: Path, options: dict[str, str], before: Callable[[], None] = lambda: None) -> int:
    """Forks an attempt; returns the child's process id."""
    pid = os.fork()
    if pid:
        return pid
    status = LOST
    try:
        os.dup2(os.open(out.with_name("child.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        before()
        attempt(out, options)
        status = 0
    except GptwrightError as error:
        os.write(2, f"{error}\n".encode())
        status = REFUSED
    except BaseException:
        sys.excepthook(*sys.exc_info())
    os._exit(status)


def ended(pid: int) -> int:
    """Waits for a child; its exit status, negative if a signal killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def at_operation(
    number: int, folder: Path, act: Callable[[], None], events: frozenset[str] = CHANGING
) -> Callable[[], None]:
    """Before an attempt: acts at the n-th operation that changes a file in a folder, and at all after it."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        writing = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if not (writing or event in events):
            return
        path = arguments[0]
        if isinstance(path, int) or str(folder) not in os.fsdecode(path):
            return
        seen += 1
        if seen >= number:
            act()

    return lambda: sys.addaudithook(hook)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def find_no_space() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def backwards() -> None:
    """Every look at the clock is an hour before the last one."""
    now = time.time()

    def earlier() -> float:
        nonlocal now
        now -= 3600.0
        return now

    time.time = earlier


@dataclass
class Torture:
    """One run being tortured.

    Attributes:
        out: its folder.
        options: its settings.
        draw: where chance comes from.
        tally: what happened, counted.
        problems: what should not have.
    """

    out: Path
    options: dict[str, str]
    draw: random.Random
    tally: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def finish(self) -> None:
        """Lets the run go on to its end."""
        status = ended(child(self.out, self.options))
        if status:
            self.problems.append(f"{self.out.name}: the last attempt ended with {status}")

    def look(self) -> None:
        """After a kill: every checkpoint that has its name is whole."""
        run = RunFolder(self.out)
        if run.checkpoints.is_dir():
            # Half-written, half-removed or set aside: what a kill inside a write leaves.
            self.tally["inside a write"] += any(run.checkpoints.glob(".*"))
        for name in run.checkpoint_names():
            damage = damage_of(run.checkpoints / name)
            if damage:
                self.problems.append(f"{self.out.name}: {name}: {damage}")

    def killed(self, pid: int) -> None:
        """Counts how a child ended that was to be killed."""
        status = ended(pid)
        self.tally["killed" if status == -signal.SIGKILL else f"ended with {status}"] += 1
        if status == LOST:
            self.problems.append(f"{self.out.name}: an attempt ended in an error of ours")
        self.look()

    def kill(self) -> None:
        """SIGKILL from outside: half at a random moment, half after the record has grown."""
        record = self.out / "metrics.jsonl"
        before = length_of(record)
        pid = child(self.out, self.options)
        if self.draw.random() < 0.5:
            wait_for_growth(record, before)
        time.sleep(self.draw.uniform(0.0, 0.25))
        os.kill(pid, signal.SIGKILL)
        self.killed(pid)

    def write_kill(self) -> None:
        """The child kills itself at an operation on a file of its checkpoints."""
        number = self.draw.randrange(1, 60)
        self.killed(child(self.out, self.options, at_operation(number, self.out / "checkpoints", die)))

    def disk(self) -> None:
        """From some operation on there is no space; the run stops with a message and can be gone on with."""
        number = self.draw.randrange(1, 120)
        before = at_operation(number, self.out, find_no_space, NEEDING_SPACE)
        status = ended(child(self.out, self.options, before))
        self.tally["refused" if status == REFUSED else f"ended with {status}"] += 1
        if status == LOST:
            self.problems.append(f"{self.out.name}: no space at operation {number} ended in an error of ours")
        self.look()

    def bit(self) -> None:
        """One bit of one file of the newest checkpoint, after some more steps."""
        self._some_steps()
        names = RunFolder(self.out).checkpoint_names()
        if not names:
            return
        file = self.draw.choice([*TENSOR_FILES, "state.json"])
        path = self.out / "checkpoints" / names[-1] / file
        content = bytearray(path.read_bytes())
        content[self.draw.randrange(len(content))] ^= 1 << self.draw.randrange(8)
        path.write_bytes(content)
        self.tally[f"bit of {file}"] += 1

    def record(self) -> None:
        """The metrics file is cut somewhere after what the oldest checkpoint remembers."""
        self._some_steps()
        path = self.out / "metrics.jsonl"
        run = RunFolder(self.out)
        if not run.checkpoint_names():
            return
        text = (run.checkpoints / run.checkpoint_names()[0] / "state.json").read_text("utf-8")
        least = int(json.loads(text)["checkpoint"]["metrics_bytes"])
        os.truncate(path, self.draw.randrange(least, length_of(path) + 1))
        self.tally["records cut"] += 1

    def clock(self) -> None:
        """Kills while the clock goes backwards."""
        pid = child(self.out, self.options, backwards)
        time.sleep(self.draw.uniform(0.1, 0.5))
        os.kill(pid, signal.SIGKILL)
        self.killed(pid)

    def two(self) -> None:
        """A second process while one trains is refused, and the first is not disturbed."""
        record = self.out / "metrics.jsonl"
        before = length_of(record)
        pid = child(self.out, self.options)
        wait_for_growth(record, before)
        second = ended(child(self.out, self.options))
        self.tally["second refused" if second == REFUSED else f"second ended with {second}"] += 1
        if second != REFUSED:
            self.problems.append(f"{self.out.name}: a second process ended with {second}")
        os.kill(pid, signal.SIGKILL)
        self.killed(pid)

    def _some_steps(self) -> None:
        record = self.out / "metrics.jsonl"
        before = length_of(record)
        pid = child(self.out, self.options)
        wait_for_growth(record, before + 3000)
        os.kill(pid, signal.SIGKILL)
        ended(pid)


def quota(folder: Path, options: dict[str, str], draw: random.Random, whole: str) -> dict[str, Any]:
    """A run on a real file system that is too small somewhere; what it left goes on on a larger one."""
    size = draw.randrange(150_000, 2_500_000)
    small = folder / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(small)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        return {"skipped": True}
    try:
        status = ended(child(small / "run", options))
        moved = folder / "moved"
        if (small / "run").exists():
            shutil.copytree(small / "run", moved)
    finally:
        subprocess.run(["umount", str(small)], check=True)
    last = ended(child(moved, options))
    same = last == 0 and identity(moved) == whole
    shutil.rmtree(moved)
    small.rmdir()
    return {"size": size, "status": status, "problem": None if same and status in (0, REFUSED) else str(last)}


def wait_for_growth(path: Path, length: int, patience: float = 30.0) -> None:
    """Waits until a file is longer; a run that has ended never is, so patience has an end."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and length_of(path) <= length:
        time.sleep(0.002)


def length_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def identity(out: Path) -> str:
    """A hash of a run's last weights and moments, and of its record without clocks."""
    run = RunFolder(out)
    digest = hashlib.sha256()
    for file in TENSOR_FILES:
        digest.update((run.checkpoints / run.checkpoint_names()[-1] / file).read_bytes())
    story = [
        {name: value for name, value in record.items() if name not in CLOCK_FIELDS}
        for record in read_metrics(run.metrics_path)
        if record["kind"] in ("train", "eval", "start")
    ]
    digest.update(json.dumps(story).encode())
    return digest.hexdigest()


def main() -> None:
    """Tortures one run for each part, and compares each with the undisturbed one."""
    split = sys.argv.index("--")
    folder, seed = Path(sys.argv[1]).absolute(), int(sys.argv[2])
    parts = {name: int(count) for name, count in (part.split("=") for part in sys.argv[3:split])}
    options = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[split + 1 :])
    # Numbers about the machine, which no part of this looks at and which take a child half a second.
    mock.patch("gptwright.train.session.measure_matmul_peak", return_value=1e11).start()
    mock.patch("gptwright.plan.device.measure_cpu_peak", return_value=1e11).start()
    # What a process wrote outlives its kill without a flush, which is for power cuts.
    mock.patch("os.fsync", return_value=None).start()
    folder.mkdir(parents=True, exist_ok=True)
    whole = Torture(folder / "whole", options, random.Random(seed))
    whole.finish()
    wanted = identity(whole.out)
    report: dict[str, Any] = {}
    problems = list(whole.problems)
    for name, count in parts.items():
        begin = time.monotonic()
        draw = random.Random(f"{seed} {name}")
        if name == "quota":
            short = Torture(folder / "short", options | SHORT, draw)
            short.finish()
            wanted_short = identity(short.out)
            found = [quota(folder, short.options, draw, wanted_short) for _ in range(count)]
            report[name] = {"tortures": count, "ends": Counter(str(run.get("status")) for run in found)}
            problems += [f"quota: {run}" for run in found if run.get("problem")]
            continue
        torture = Torture(folder / name, options, draw)
        for _ in range(count):
            getattr(torture, name)()
        torture.finish()
        same = not torture.problems and identity(torture.out) == wanted
        report[name] = {
            "tortures": count,
            "seconds": round(time.monotonic() - begin, 1),
            "same_weights_and_record": same,
            **dict(sorted(torture.tally.items())),
        }
        problems += torture.problems + ([] if same else [f"{name}: not the undisturbed run's end"])
    print(json.dumps({"parts": report, "problems": problems}))


if __name__ == "__main__":
    main()
