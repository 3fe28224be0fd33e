"""The training loop: one optimizer step after another, with evaluations, metrics and checkpoints.

Step s evaluates if it is due, saves if it is due, then makes update s; a run of `max_iters` ends with an
evaluation and a checkpoint at step `max_iters`. The loss of a step is the mean over all its micro-batches
(nanoGPT prints the last one's). Losses stay on the device between two log lines, so that a GPU is never
made to wait for a number that nobody reads yet.

Several processes make the same steps, each on its share of the batch; loss, gradient norm and evaluations are
those of all of them, in each, so that each decides the same. The first one writes and speaks.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from gptwright.arithmetic.flops import mfu
from gptwright.errors import RunFailedError
from gptwright.hardware.probe import synchronize
from gptwright.optim.optimizers import set_learning_rate, set_momentum
from gptwright.optim.schedule import learning_rate, muon_momentum
from gptwright.record.log_text import append_log
from gptwright.record.metrics import MetricsFile, Record
from gptwright.record.run import RunFolder
from gptwright.train.checkpoint import TrainState, prune_checkpoints
from gptwright.train.distributed import StopVote
from gptwright.train.evaluate import Evaluator, save_window_losses, summarized
from gptwright.train.prefetch import Prefetcher
from gptwright.train.promise import peak_memory_bytes
from gptwright.train.replica import clip_gradients
from gptwright.train.session import Session
from gptwright.train.stop import StopRequest
from gptwright.train.together import save_together


class Listener(Protocol):
    """Whoever shows a run while it trains."""

    def recorded(self, record: Record) -> None:
        """A line of metrics was written."""

    def stepped(self, step: int) -> None:
        """Update `step` was made."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: `finished` or `stopped`, and its state then."""

    ending: str
    state: TrainState


class Trainer:
    """Trains a session into a run folder.

    Args:
        session: what to train.
        run: where the record goes.
        state: where to begin.
        metrics: the open metrics file; None in a process that does not write.
        listener: is told of every record and step.
    """

    def __init__(
        self,
        session: Session,
        run: RunFolder,
        *,
        state: TrainState,
        metrics: MetricsFile | None,
        listener: Listener,
    ) -> None:
        self.session = session
        self.config = session.config
        self.run_folder = run
        self.state = state
        self.metrics = metrics
        self.listener = listener
        self.evaluator = Evaluator(session)
        self.vote = StopVote(session.world)
        self.batches = Prefetcher(session.sampler, session.precision.device, last_step=self.config.max_iters)
        place = session.precision.device.torch_device
        self.losses: list[Tensor] = [torch.tensor(loss, device=place) for loss in state.pending_losses]
        self.seconds = state.pending_seconds
        self.tokens_per_step = self.config.sequences_per_step * self.config.block_size
        self.flops_per_token = session.model.shape.flops_per_token()

    def train(self, stop: StopRequest) -> Outcome:
        """Trains until `max_iters` or until asked to stop; saves in both cases.

        Raises:
            RunFailedError: the loss is no longer a number.
            DiskFullError: there is no room for a checkpoint or a line of metrics.
        """
        with self.batches:
            return self._train(stop)

    def _train(self, stop: StopRequest) -> Outcome:
        self.session.model.train()
        if self.config.eval_only:
            self._evaluate()
            return self._end("finished")
        first = self.state.step
        while self.state.step < self.config.max_iters:
            if self._evaluation_due():
                self._evaluate()
            if self.state.step > first and self._checkpoint_due():
                self._save()
            if self.vote(bool(stop)):
                self.vote.count()
                self._save()
                return self._end("stopped")
            self._step()
        self.vote.count()
        if self.state.last_eval_step != self.state.step:
            self._evaluate()
        self._save()
        return self._end("finished")

    def _evaluation_due(self) -> bool:
        step = self.state.step
        return step % self.config.eval_interval == 0 and self.state.last_eval_step != step

    def _checkpoint_due(self) -> bool:
        step = self.state.step
        return step % self.config.checkpoint_every == 0 or self.state.best_step == step

    def _step(self) -> None:
        begin = time.perf_counter()
        step = self.state.step
        rate = learning_rate(self.config, step)
        set_learning_rate(self.session.optimizer, rate)
        set_momentum(self.session.optimizer, muon_momentum(self.config, step))
        loss, grad_norm = self._update(step)
        self.losses.append(loss)
        logging = step % self.config.log_interval == 0
        if logging:
            synchronize(self.session.precision.device)
        self.seconds += time.perf_counter() - begin
        if logging:
            self._log(rate, grad_norm)
        self.state.step = step + 1
        self.listener.stepped(step)

    def _update(self, step: int) -> tuple[Tensor, Tensor | None]:
        """One optimizer step; returns its mean loss and gradient norm, both still on the device."""
        config, session = self.config, self.session
        if config.dropout:
            torch.manual_seed(dropout_seed(config.seed, step, session.world.rank))
        tokens_NT, targets_NT = self.batches.batch(step)
        loss = torch.zeros((), device=session.precision.device.torch_device)
        for micro in session.cut.micro_batches:
            session.replica.average_next(micro is session.cut.micro_batches[-1])
            with session.precision.autocast():
                micro_loss = session.forward(tokens_NT[micro.rows], targets_NT[micro.rows])
                micro_loss = micro_loss / micro.divisor
            session.scaler.scale(micro_loss).backward()  # type: ignore[no-untyped-call]
            loss += micro_loss.detach()
        grad_norm = None
        if config.grad_clip:
            session.scaler.unscale_(cast("torch.optim.Optimizer", session.optimizer))
            grad_norm = clip_gradients(session.model, config.grad_clip)
        session.scaler.step(cast("torch.optim.Optimizer", session.optimizer))
        session.scaler.update()
        session.optimizer.zero_grad(set_to_none=True)
        return session.world.sum(loss) / session.world.size, grad_norm

    def _log(self, rate: float, grad_norm: Tensor | None) -> None:
        step = self.state.step
        losses = torch.stack(self.losses).tolist()
        seconds = self.seconds / len(losses)
        tokens_per_second = self.tokens_per_step / seconds
        self._record(
            "train",
            {
                "step": step,
                "loss": losses[-1],
                "loss_mean": sum(losses) / len(losses),
                "lr": rate,
                "grad_norm": None if grad_norm is None else float(grad_norm),
                "seconds": seconds,
                "tokens_per_second": tokens_per_second,
                "mfu": mfu(
                    flops_per_token=self.flops_per_token,
                    tokens_per_second=tokens_per_second,
                    peak_flops=self.session.peak_flops,
                ),
                "tokens": (step + 1) * self.tokens_per_step,
            },
        )
        self.losses, self.seconds = [], 0.0
        if not all(math.isfinite(loss) for loss in losses):
            self._fail(losses[-1])

    def _fail(self, loss: float) -> None:
        step = self.state.step
        self._record("end", {"step": step, "state": "failed", "reason": f"loss is {loss}"})
        last = self.run_folder.pointed("last")
        raise RunFailedError(
            f"the loss at step {step} is {loss}",
            why="the weights hold no number any more; every further step would be lost time",
            fix=f"`gptwright resume {self.run_folder.path}"
            f" --learning_rate={self.config.learning_rate / 2:g}` goes on from {last}"
            if last
            else f"start again with a lower rate: --learning_rate={self.config.learning_rate / 2:g}",
        )

    def _evaluate(self) -> None:
        begin = time.perf_counter()
        losses = self.evaluator.evaluate()
        means = summarized(losses)
        step = self.state.step
        if self.session.world.is_first:
            save_window_losses(self.run_folder.evaluations, step, losses)
        val_loss = means["val"].mean
        if math.isfinite(val_loss) and val_loss < (self.state.best_val_loss or math.inf):
            self.state.best_val_loss, self.state.best_step = val_loss, step
        self.state.last_eval_step = step
        self._record(
            "eval",
            {
                "step": step,
                "train_loss": means["train"].mean,
                "train_loss_standard_error": means["train"].standard_error,
                "train_windows": means["train"].windows,
                "val_loss": val_loss,
                "val_loss_standard_error": means["val"].standard_error,
                "val_windows": means["val"].windows,
                "seconds": time.perf_counter() - begin,
            },
        )

    def _save(self) -> None:
        state = self.state
        state.pending_losses = [float(loss) for loss in self.losses]
        state.pending_seconds = self.seconds
        if self.metrics is not None:
            self.metrics.sync()
        written = self.metrics.length if self.metrics is not None else 0
        name = save_together(self.run_folder, self.session, state, metrics_bytes=written)
        if not self.session.world.is_first:
            return
        if state.best_step == state.step:
            self.run_folder.point("best", name)
        prune_checkpoints(self.run_folder, self.config.keep_checkpoints)

    def _end(self, ending: str) -> Outcome:
        peak = peak_memory_bytes(self.session.precision.device)
        self._record("end", {"step": self.state.step, "state": ending, "peak_memory_bytes": peak})
        return Outcome(ending, self.state)

    def _record(self, kind: str, fields: Mapping[str, Any]) -> None:
        if self.metrics is None:
            return
        record = self.metrics.append(kind, fields)
        append_log(self.run_folder.log_path, record)
        self.listener.recorded(record)


def dropout_seed(seed: int, step: int, rank: int = 0) -> int:
    """The seed of a step's dropout: the same on every resume, another at every step and in every process.

    A multiplicative hash (Knuth's 64-bit constants) spreads neighbouring steps over all 63 bits; the third
    factor, for processes, is the golden ratio's.
    """
    return (
        (seed + 1) * 6364136223846793005 + step * 1442695040888963407 + rank * 11400714819323198485
    ) % 2**63
