"""Hugging Face Trainer: the dicts that it prints, and `trainer_state.json`.

A printed dict has no step; the progress bar before it has. Where that still shows the step of the dict
before, the bar behind it has, if this log draws its bar anew behind each dict; otherwise the dict has no
step. Newer releases print numbers as strings, and bars and dicts share lines. `loss` is the mean over the
steps since the dict before, in training mode; evaluation dicts have `eval_loss`; `train_loss` at the end is
the mean of the whole run and no point of a curve. In trainer_state.json each dict has its step, and lies over
several lines: its line is that of its loss.

Without any bar no dict says its step: steps are epochs where all of them are whole, else the dicts are
numbered in order, and the evidence says which. So it is where bars and passes contradict each other: output
into a file keeps dicts back, and they come many at once behind a bar of a later step. What the passes and the
head tell of the steps is found later, when config and facts are known too. Unsloth prints its own head.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from gptwright.facts import logged
from gptwright.record.arrays import Floats
from gptwright.record.evidence import IN_EPOCHS, NUMBERED, OF_REWARDS, LogFormat, TrainLoss
from gptwright.record.readers.build import Builder
from gptwright.record.readers.fields import LOSS
from gptwright.record.readers.headers import Header
from gptwright.record.readers.reader import Reader
from gptwright.record.readers.shapes import Columns
from gptwright.record.readers.tables import Rows, note_tokens

TRAIN = Columns("train", "step", "loss", "learning_rate", "grad_norm", "epoch", "of_bar", "tokens_seen")
WITHOUT_LOSS = Columns("train", "step", "learning_rate", "grad_norm", "epoch", "of_bar", "tokens_seen")
EVAL = Columns("eval", "step", "val_loss", "epoch")

DICT = re.compile(r"\{[^{}]{8,3000}\}")
ITEM = re.compile(rf"[\"']([a-z_]{{2,40}})[\"']: ?[\"']?({LOSS})[\"']?(?=[,}}\s])", re.ASCII)
# ms-swift says where it is in the dict itself.
OF_ALL_STEPS = re.compile(r"[\"']global_step/max_steps[\"']: ?[\"'](\d{1,12})/(\d{1,12})[\"']", re.ASCII)
# Of GRPO, DPO and their kin.
REWARDS = re.compile(r"[\"'](?:eval_)?rewards?[\"'/]")
# What TRL and the Trainer count, over all processes.
TOKENS = "num_tokens", "num_input_tokens_seen"
BAR = re.compile(r"(?<!\d)(\d{1,12})/(\d{1,12}) \[[\d:?]{4,10}<", re.ASCII)
# An entry of trainer_state.json has a line for each value, some twenty with memory and tokens.
LONGEST_DICT = 30
BEHIND_A_BAR = 60
# A bar that is drawn ten times a second lags a few steps behind its dict, or less than this share of the
# distance between two.
FEW_STEPS, MOST_LAG = 3.0, 0.5
# What the last of two decimals may hide.
ROUNDING = 0.005


class Dicts:
    """Reads dicts, wherever they stand.

    Args:
        build: where rows go.
    """

    def __init__(self, build: Builder) -> None:
        self._build = build
        self._open: list[str] = []
        self._open_line = 0
        self._bars: dict[int, int] = {}
        self._total: int | None = None
        self._last_total: int | None = None
        self._last_step: float | None = None
        self._last_said: dict[str, float] = {}
        self._awaits_bar = False
        self._is_first_behind = False
        self._redraws = False
        self._columns = TRAIN

    def take(self, text: str, line: int) -> bool:
        """Takes the bars and dicts of a line, or a line of a dict that lies over several."""
        if self._open or text.strip() == "{":
            return self._part_of_dict(text, line)
        at, taken = 0, False
        if "{" in text:
            for found in DICT.finditer(text):
                self._see_bars(text[at : found.start()], line)
                taken |= self._dict(found[0], line)
                at = found.end()
        end = self._see_bars(text[at:], line)
        # Behind a bar stand its times and its speed; more is a line of its own, glued to the bar.
        return taken or (end > 0 and len(text) - at - end < BEHIND_A_BAR)

    def _part_of_dict(self, text: str, line: int) -> bool:
        if text.strip() == "{":
            self._open, self._open_line = [], line
        self._open.append(text)
        if re.search(r"\"(?:eval_)?loss\":", text):
            self._open_line = line
        if "}" in text or len(self._open) > LONGEST_DICT:
            whole, self._open = "".join(self._open), []
            self._dict(whole, self._open_line)
        return not text.strip().startswith('"') or bool(self._open)

    def _see_bars(self, text: str, line: int) -> int:
        """Notes the bars of a text; returns where the last one ends, 0 if there is none."""
        if "[" not in text:
            return 0
        end = 0
        for bar in BAR.finditer(text):
            end = bar.end()
            done, total = int(bar[1]), int(bar[2])
            self._bars[total] = done
            self._last_total = total
            if self._is_resumed(done, total):
                self._total = total
            if total == self._total:
                self._see_bar_behind(done)
                if done == total:
                    self._build.header["steps_made"] = logged("steps_made", total, line)
        return end

    def _is_resumed(self, done: int, total: int) -> bool:
        """Whether a bar is of a longer run that goes on where the last dict was."""
        if self._total is None or self._last_step is None or total <= self._total:
            return False
        return done >= self._last_step

    def _see_bar_behind(self, done: int) -> None:
        if done == self._last_step:
            self._redraws |= not self._awaits_bar and self._is_first_behind
        elif self._awaits_bar and self._redraws:
            self._build.amend(self._columns, done)
            self._last_step, self._awaits_bar = float(done), False
        self._is_first_behind = False

    def _dict(self, text: str, line: int) -> bool:
        said = {name: float(value) for name, value in ITEM.findall(text)}
        if (told := OF_ALL_STEPS.search(text)) is not None:
            said["step"] = float(told[1])
            # It stands in every line, and is no process's head.
            self._build.header["planned_steps"] = logged("planned_steps", int(told[2]), line)
        if "loss" in said and said.keys() & {"epoch", "step", "learning_rate"}:
            self._training(text, said, line)
        elif "eval_loss" in said and not REWARDS.search(text):
            step = self._step(said)
            self._build.row(EVAL, line, (step, said["eval_loss"], said.get("epoch", math.nan)))
        elif "train_runtime" in said:
            self._build.fact("training_seconds", said["train_runtime"], line)
            if said.get("train_steps_per_second", 0.0) > 0:
                self._build.fact("steps_per_second", said["train_steps_per_second"], line)
        else:
            return False
        if said.get("epoch", 0.0) > 0:
            self._build.header["epochs"] = logged("epochs", said["epoch"], line)
        return True

    def _training(self, text: str, said: dict[str, float], line: int) -> None:
        """Takes a dict of training."""
        if self._total is None and self._last_total is not None:
            self._total = self._last_total
        step = self._fresh_step(said)
        rate, norm = said.get("learning_rate", math.nan), said.get("grad_norm", math.nan)
        epoch, of_bar = said.get("epoch", math.nan), float("step" not in said)
        tokens = next((said[name] for name in TOKENS if name in said), math.nan)
        more = rate, norm, epoch, of_bar, tokens
        self._columns = WITHOUT_LOSS if REWARDS.search(text) else TRAIN
        if self._columns is WITHOUT_LOSS:
            self._build.hazards[OF_REWARDS] += 1
            self._build.row(WITHOUT_LOSS, line, (step, *more))
            return
        # Losses that are no numbers are left out of the printed mean; where all were, it is 0.
        is_bad = said["loss"] == 0 and math.isnan(norm) and "grad_norm" in said
        self._build.row(TRAIN, line, (step, math.nan if is_bad else said["loss"], *more))

    def _fresh_step(self, said: dict[str, float]) -> float:
        """The step of a training dict; NaN where the last bar is that of the dict before."""
        step = self._step(said)
        self._awaits_bar = step == self._last_step and "step" not in said and said != self._last_said
        self._last_said, self._is_first_behind = said, True
        if self._awaits_bar:
            return math.nan
        self._last_step = step
        return step

    def _step(self, said: dict[str, float]) -> float:
        """The step that a dict or the bar before it shows; NaN where nothing does."""
        if "step" in said:
            return said["step"]
        # Before anything tells which bar is the run's, the first that was seen.
        total = self._total if self._total is not None else next(iter(self._bars), None)
        return float(self._bars[total]) if total is not None else math.nan


def _dicts(build: Builder) -> Callable[[str, int], bool]:
    return Dicts(build).take


def _finish(build: Builder, train: Rows, evals: Rows) -> None:
    """Takes epochs for steps where dicts show whole ones and no step; else numbers them in order, from the
    last one where epochs go down.
    """
    if (np.isfinite(train["step"]).any() or np.isfinite(evals["step"]).any()) and not _bars_are_late(train):
        note_tokens(build, train)
        return
    epochs = np.concatenate([train["epoch"], evals["epoch"]])
    if len(epochs) and np.isfinite(epochs).all() and not (epochs % 1).any():
        train["step"], evals["step"] = train["epoch"], evals["epoch"]
        build.hazards[IN_EPOCHS] = len(epochs)
        return
    build.hazards[NUMBERED] = len(train) + len(evals)
    before = np.searchsorted(train.line, evals.line)
    passed = np.diff(train["epoch"])
    if not len(passed) or not (passed <= 0).all() or not passed.any():
        train["step"] = _in_order(train["epoch"])
        evals["step"] = np.concatenate([[0.0], train["step"]])[before]
        return
    train["step"], evals["step"] = np.arange(len(train), 0.0, -1.0), len(train) - before.astype(np.float64)
    build.header["epochs"] = logged("epochs", float(train["epoch"][0]), int(train.line[0]))


def _in_order(epochs: Floats) -> Floats:
    """Numbers of dicts; where passes go back, a run goes on from an earlier dict, or another run begins."""
    numbers, passed = np.zeros(len(epochs)), list[float]()
    for at, epoch in enumerate(epochs.tolist()):
        if passed and epoch < passed[-1]:
            del passed[bisect_left(passed, epoch) :]
        passed.append(epoch)
        numbers[at] = len(passed)
    return numbers


def _bars_are_late(train: Rows) -> bool:
    """Whether the steps of the bars contradict the passes of the dicts: both grow alike from nothing."""
    step, epoch = train["step"], train["epoch"]
    known = np.isfinite(step) & (epoch > 2 * ROUNDING) & (train["of_bar"] > 0)
    if known.sum() < 2 or not np.isfinite(epoch).all():
        return False
    step, epoch = step[known], epoch[known]
    lag = max(FEW_STEPS, MOST_LAG * float(np.median(np.diff(step))))
    return bool(np.max(step / (epoch + ROUNDING)) > np.min((step + lag) / (epoch - ROUNDING)))


HUGGING_FACE = Reader(
    format=LogFormat(
        name="Hugging Face Trainer",
        train_loss=TrainLoss.INTERVAL,
        has_dropout=True,
        evaluates_train=False,
        time_includes_evaluation=False,
        counts_passes=True,
    ),
    begins=re.compile(r"\{[\"'](?:eval_)?loss[\"']: "),
    headers=(
        Header(r"Num examples = {examples}"),
        Header(r"Num Epochs = {planned_epochs}"),
        Header(r"Total steps = {planned_steps}"),
        Header(
            r"Batch size per device = {micro_batch} \| Gradient [Aa]ccumulation steps ="
            r" {gradient_accumulation_steps}"
        ),
        Header(r"Total batch size (?:\(\d{1,6} x \d{1,6} x \d{1,6}\) )?= {global_batch}"),
        Header(r"Trainable parameters = {trained_parameters}(?:/| of ){parameters_total}"),
        Header(r"\| +(?:GPU: )?{device}\. (?:Num GPUs = \d{1,3}\. )?Max memory: "),
        Header(r"Instantaneous batch size per device = {micro_batch}"),
        Header(r"Gradient Accumulation steps = {gradient_accumulation_steps}"),
        Header(r"Total train batch size \(w\. parallel, distributed & accumulation\) = {global_batch}"),
        Header(r"Total optimization steps = {planned_steps}", weight=0.1),
        Header(r"Number of trainable parameters = {trained_parameters}"),
        # PEFT's print_trainable_parameters.
        Header(r"trainable params: {trained_parameters} \|\| all params: {parameters_total}"),
        Header(r"\"max_steps\": {planned_steps},"),
        Header(r"\"train_batch_size\": {micro_batch},"),
    ),
    whole=re.compile(r"\{[\"'](?:eval_)?loss[\"']: [^{}]{8,3000}\}"),
    special=_dicts,
    finish=_finish,
    signs=(
        (re.compile(r"\{[\"'](?:eval_)?loss[\"']: [\"']?\d"), 1.0),
        (re.compile(r"^ *\"log_history\": \["), 5.0),
        # The bar alone is drawn by others too; it decides where nothing else does.
        (re.compile(r"\d{1,3}%\|.{0,80}\| \d{1,12}/\d{1,12} \[[\d:?]+<"), 0.001),
    ),
)
