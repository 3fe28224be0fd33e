"""How good a run is on a text: loss with its error, perplexity, bits a byte.

Every token is scored once. Without a stride, windows of `block_size` lie end to end, and a token sees what
came before it in its own window alone, as in the evaluations of training. With a stride S, windows begin S
tokens apart, and all but the first score only their last S tokens, so each sees at least block_size - S; it
costs block_size / S times as much and gives a lower, fairer loss for long texts.

Bits a byte is the whole loss in bits over the UTF-8 bytes of what was scored, so that different tokenizers
can be compared. The loss of separators counts and their bytes do not: where documents end is information.

The standard error is that of a ratio (all losses over all tokens) whose windows may differ in length.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from gptwright.data.dataset import TokenDataset, check_ids, open_dataset, reopen_dataset
from gptwright.data.sampling import evaluation_starts
from gptwright.data.splits import TokenSplit
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.errors import ConfigError, DataError, typed
from gptwright.hardware.detect import find_device, use_device
from gptwright.model.gpt import GPT
from gptwright.record.metrics import MetricsFile
from gptwright.record.run import RunFolder
from gptwright.train.load import chosen_checkpoint, load_checkpointed, tokenizer_of_run
from gptwright.train.precision import Precision, dtype_elsewhere
from gptwright.train.start import require_same_tokenizer
from gptwright.train.threads import OthersLoad, Pass, choose_threads

# Logits in one forward pass: 256 MB in float32, well below what a step of training needs.
_LOGITS_AT_ONCE = 2**26


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens to read, of which the last `scored` are predicted; a view, so that many cost no memory."""

    ids: npt.NDArray[Any]
    scored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A run measured on a text.

    Attributes:
        loss: mean over all scored tokens, nats.
        loss_standard_error: None where there is one window.
        windows: how many.
        tokens: how many were scored.
        text_bytes: UTF-8 bytes of them; None without a tokenizer.
    """

    loss: float
    loss_standard_error: float | None
    windows: int
    tokens: int
    text_bytes: int | None

    def document(self) -> dict[str, Any]:
        """The figures by name."""
        bits = None
        if self.text_bytes:
            bits = self.loss * self.tokens / math.log(2) / self.text_bytes
        return {
            "loss": self.loss,
            "loss_standard_error": self.loss_standard_error,
            "perplexity": math.exp(min(self.loss, 700.0)),
            "bits_per_byte": bits,
            "windows": self.windows,
            "tokens": self.tokens,
            "bytes": self.text_bytes,
        }


def score_run(
    run: RunFolder,
    *,
    text: Path | None = None,
    stride: int | None = None,
    max_windows: int | None = None,
    checkpoint: str | None = None,
    dataset: str | None = None,
    device: str = "auto",
    progress: Callable[[int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Scores a run's checkpoint and writes the result into its record; returns what `eval --json` prints.

    Args:
        run: an existing run.
        text: a UTF-8 file; None takes the validation split of the run's dataset.
        stride: tokens between windows; None lays them end to end.
        max_windows: score only so many windows, drawn by the run's seed; None scores all.
        checkpoint: a name, `last` or `best`; None takes the best, else the last.
        dataset: another dataset whose validation split is taken.
        device: where it runs.
        progress: told how many windows of how many are done.

    Raises:
        GptwrightError: of the kind of whatever is wrong; nothing is recorded then.
    """
    load = OthersLoad()
    name = chosen_checkpoint(run, checkpoint)
    place = find_device(device)
    use_device(place)
    config = run.load_config().config
    model = load_checkpointed(run, name, place)
    tokenizer = tokenizer_of_run(run)
    block_size = model.shape.block_size
    _require_overlap(stride, block_size)
    if text is not None:
        ids, label = _ids_of(text, run, tokenizer), str(text)
        windows = list(windows_of(ids, block_size, stride or block_size))
    else:
        data = _dataset(run, config.dataset, dataset)
        require_same_tokenizer(tokenizer, str(run.path), data)
        split, label = data.splits["val"], _label(run, data, another=dataset is not None)
        check_ids(split, model.shape.vocab_size)
        windows = _windows_of_split(split, block_size, stride)
    chosen = windows if max_windows is None else _drawn(windows, max_windows, config.seed)
    dtype = dtype_elsewhere(config.dtype, place)
    precision = Precision(place, dtype)
    choose_threads(model, precision, load, Pass(rows=len(chosen), context=block_size, learns=False))
    score = score_windows(model, chosen, precision, tokenizer, progress)
    found = {
        "step": int(name.removeprefix("step-")),
        "checkpoint": name,
        "text": label,
        **score.document(),
        "context": _context(block_size, stride, len(chosen), len(windows)),
        "device": place.name,
        "dtype": dtype,
    }
    _record(run, found)
    return {"schema": "gptwright.eval/1", "run": str(run.path), **found}


def _require_overlap(stride: int | None, block_size: int) -> None:
    if stride is not None and not 1 <= stride <= block_size:
        raise ConfigError(
            f"--stride {stride} is not from 1 to block_size = {block_size}",
            why="windows further apart than they are long would leave tokens out",
            fix=f"--stride {block_size // 2}",
        )


def _record(run: RunFolder, found: dict[str, Any]) -> None:
    length = run.metrics_path.stat().st_size if run.metrics_path.exists() else 0
    metrics = MetricsFile(run.metrics_path, keep_bytes=length)
    try:
        metrics.append("score", found)
    finally:
        metrics.close()


def _context(block_size: int, stride: int | None, windows: int, all_windows: int) -> str:
    some = "" if windows == all_windows else f"; {windows:,} of {all_windows:,}, drawn by the seed"
    if stride is None or stride == block_size:
        return f"end to end, {block_size} tokens each: a token sees its own window{some}"
    return f"{stride} tokens apart: a token sees at least {block_size - stride} before it{some}"


def _ids_of(path: Path, run: RunFolder, tokenizer: Tokenizer | None) -> npt.NDArray[np.int64]:
    """A text's ids; a separator before them, where there is one, so that the first token is scored too."""
    if tokenizer is None:
        raise DataError(
            f"{run.path} has no tokenizer.json, so no text can be encoded",
            fix=f"`gptwright eval {typed(run.path)}` scores the validation split of its dataset",
        )
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: byte {error.start}", fix="give the text as UTF-8") from None
    ids = tokenizer.encode(text).astype(np.int64)
    if tokenizer.separator_id is not None:
        ids = np.concatenate([np.array([tokenizer.separator_id]), ids])
    if len(ids) < 2:
        raise DataError(f"{path} has no token that could be scored", fix="give a longer text")
    return ids


def _dataset(run: RunFolder, configured: str, other: str | None) -> TokenDataset:
    if other is not None:
        return open_dataset(other)
    recorded = run.read_facts().get("dataset", {}).get("folder")
    try:
        return open_dataset(configured)
    except DataError:
        if recorded is None:
            raise
        return reopen_dataset(recorded)


def _label(run: RunFolder, dataset: TokenDataset, *, another: bool) -> str:
    """What was measured on; of the run's own dataset also whether it still is what the run was trained on."""
    trained_on = run.read_facts().get("dataset", {}).get("fingerprint")
    changed = not another and trained_on not in (None, dataset.fingerprint)
    return f"validation split of {dataset.name}" + (
        ", which has changed since the run began" if changed else ""
    )


def windows_of(ids: npt.NDArray[Any], block_size: int, stride: int) -> Iterator[Window]:
    """Windows that score each token of a text but the first once; the last reaches back to be whole."""
    end = min(block_size, len(ids) - 1)
    yield Window(ids[: end + 1], end)
    while end < len(ids) - 1:
        scored = min(stride, len(ids) - 1 - end)
        end += scored
        begin = max(0, end - block_size)
        yield Window(ids[begin : end + 1], scored)


def _windows_of_split(split: TokenSplit, block_size: int, stride: int | None) -> list[Window]:
    """A split's windows: those of training's evaluations, or a stride over each shard."""
    if stride is not None and stride < block_size:
        shards = [shard.ids for shard in split.shards if len(shard.ids) > 1]
        return [window for ids in shards for window in windows_of(ids, block_size, stride)]
    starts = evaluation_starts(split, block_size=block_size, windows=2**62, seed=0)
    offsets = np.array(split.offsets)
    places = np.searchsorted(offsets, starts, side="right") - 1
    return [
        Window(split.shards[p].ids[s - offsets[p] :][: block_size + 1], block_size)
        for s, p in zip(starts, places, strict=True)
    ]


def _drawn(windows: list[Window], number: int, seed: int) -> list[Window]:
    if number >= len(windows):
        return windows
    order = np.random.Generator(np.random.Philox(key=seed)).permutation(len(windows))
    return [windows[index] for index in np.sort(order[:number])]


def score_windows(
    model: GPT,
    windows: list[Window],
    precision: Precision,
    tokenizer: Tokenizer | None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Score:
    """The loss over windows; those of one length go through the model together.

    Raises:
        DataError: an id is outside the model's vocabulary.
    """
    lengths = sorted({len(window.ids) for window in windows})
    sums, counts, done, text_bytes = [], [], 0, 0
    table = None if tokenizer is None else _bytes_of_ids(tokenizer, model.shape.vocab_size)
    for length in lengths:
        alike = [window for window in windows if len(window.ids) == length]
        at_once = max(1, _LOGITS_AT_ONCE // (length * model.shape.vocab_size))
        for begin in range(0, len(alike), at_once):
            batch = alike[begin : begin + at_once]
            ids = np.stack([window.ids for window in batch]).astype(np.int64)
            if int(ids.max()) >= model.shape.vocab_size:
                raise DataError(
                    f"the text has id {int(ids.max())}, and the model {model.shape.vocab_size} rows",
                    fix="give the dataset that the model was trained on",
                )
            losses_BT = token_losses(model, torch.from_numpy(ids), precision)
            for window, ids_T, loss_T in zip(batch, ids, losses_BT, strict=True):
                sums.append(float(loss_T[-window.scored :].sum()))
                counts.append(window.scored)
                if table is not None:
                    text_bytes += int(table[ids_T[-window.scored :]].sum())
            done += len(batch)
            progress(done, len(windows))
    return _score(np.array(sums), np.array(counts), text_bytes if table is not None else None)


def token_losses(model: GPT, ids_BT: torch.Tensor, precision: Precision) -> npt.NDArray[np.float64]:
    """The loss in nats of each token but the first, `[B, T-1]`."""
    ids_BT = ids_BT.to(model.device)
    with torch.inference_mode(), precision.autocast():
        logits_BTV = model.logits(ids_BT[:, :-1])
    losses = F.cross_entropy(logits_BTV.flatten(0, 1).float(), ids_BT[:, 1:].flatten(), reduction="none")
    result: npt.NDArray[np.float64] = losses.view(ids_BT.shape[0], -1).cpu().double().numpy()
    return result


def _score(sums: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], text_bytes: int | None) -> Score:
    windows, tokens = len(sums), int(counts.sum())
    loss = float(sums.sum() / tokens)
    error = None
    if windows > 1:
        # Linearized variance of a ratio estimator (Cochran 1977, 2.39), without a finite-population term.
        residuals = sums - loss * counts
        error = float(np.sqrt((residuals**2).sum() / (windows - 1) / windows) / counts.mean())
    return Score(loss=loss, loss_standard_error=error, windows=windows, tokens=tokens, text_bytes=text_bytes)


def _bytes_of_ids(tokenizer: Tokenizer, rows: int) -> npt.NDArray[np.int64]:
    """UTF-8 bytes that each id stands for: none for separators and for rows that pad the vocabulary."""
    table = np.zeros(max(rows, tokenizer.vocab_size), dtype=np.int64)
    for number in range(tokenizer.vocab_size):
        if number != tokenizer.separator_id:
            table[number] = len(tokenizer.decode_bytes([number]))
    return table
