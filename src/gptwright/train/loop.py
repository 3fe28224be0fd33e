"""The training loop: one optimizer step after another, with evaluations, metrics and checkpoints.

Step s evaluates if it is due, saves if it is due, then makes update s; a run of `max_iters` ends with an
evaluation and a checkpoint at step `max_iters`. The loss of a step is the mean over all its micro-batches
(nanoGPT prints the last one's). Losses stay on the device between two log lines, so that a GPU is never
made to wait for a number that nobody reads yet. Every update is judged before it touches the weights
(`guards`), and what is refused is dealt with where the losses are read.

Several processes make the same steps, each on its share of the batch; loss, gradient norm and evaluations are
those of all of them, in each, so that each decides the same: to skip, to go back, to stop. The first one
writes and speaks.
"""

import contextlib
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import torch
from torch import Tensor

from gptwright.arithmetic.flops import mfu
from gptwright.errors import GptwrightError, PeerFailedError
from gptwright.optim.optimizers import set_learning_rate, set_momentum
from gptwright.optim.schedule import learning_rate, muon_momentum
from gptwright.record.metrics import MetricsFile
from gptwright.record.run import RunFolder
from gptwright.train.checkpoint import CheckpointInfo, take_snapshot
from gptwright.train.evaluate import Evaluator, save_window_losses, summarized
from gptwright.train.fitting import Fitting
from gptwright.train.guards import LEAST_SCALE, UpdateGuard, decide, trouble_began
from gptwright.train.hook import Hook
from gptwright.train.pending import PendingLosses
from gptwright.train.prefetch import Prefetcher
from gptwright.train.promise import peak_memory_bytes
from gptwright.train.reporter import PATIENCE, Listener, Reporter
from gptwright.train.retention import before_trouble, to_stay
from gptwright.train.rollback import no_way_on, roll_back
from gptwright.train.session import Session
from gptwright.train.state import TrainState, dropout_seed
from gptwright.train.stop import StopRequest
from gptwright.train.stuck import StuckLoss
from gptwright.train.together import checkpointed, save_parts
from gptwright.train.update import finish_step
from gptwright.train.watchdog import Watchdog
from gptwright.train.world import StopVote
from gptwright.train.writer import CheckpointWriter

__all__ = ["Listener", "Outcome", "Trainer"]


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
        hook: is told of troubles.
    """

    def __init__(
        self,
        session: Session,
        run: RunFolder,
        *,
        state: TrainState,
        metrics: MetricsFile | None,
        listener: Listener,
        hook: Hook,
    ) -> None:
        self.session = session
        self.config = session.config
        self.run_folder = run
        self.state = state
        self.metrics = metrics
        self.listener = listener
        self.reporter = Reporter(run, metrics, listener, hook)
        self.evaluator = Evaluator(session)
        self.fitting = Fitting(session, run, self.evaluator, self.reporter)
        device = session.precision.device
        self.batches = Prefetcher(session.sampler, device, last_step=self.config.max_iters)
        self.guard = UpdateGuard(
            spike_z=self.config.spike_z,
            scaled=session.scaler.is_enabled(),
            device=device.torch_device,
            state=state,
        )
        self.vote = StopVote(session.world)
        self.stuck = StuckLoss(self.config, session.dataset.splits["train"])
        beside = self.config.async_checkpoints
        self.writer = CheckpointWriter(
            run,
            newest=self.config.keep_checkpoints,
            beside=device.type != "cpu" if beside == "auto" else beside,
        )
        # The others wait for the first one in every step, so it notices what stalls them.
        self.watchdog = Watchdog(
            self.config.stall_seconds if session.world.is_first else 0.0,
            stacks=run.path / "stalls.txt",
            stalled=self._stalled,
        )
        self.tokens_per_step = self.config.sequences_per_step * self.config.block_size
        self.flops_per_token = session.model.shape.flops_per_token()
        self.pending = PendingLosses(device.torch_device, state)
        self._val_loss: float | None = None
        self._saved_at = state.step
        self._clock = time.monotonic()

    def train(self, stop: StopRequest) -> Outcome:
        """Trains until `max_iters` or until asked to stop; saves in both cases.

        Raises:
            RunFailedError: the loss is NaN or infinite and no rollback helps, or memory does not suffice.
            DiskFullError: there is no room for a checkpoint or a line of metrics.
        """
        with self.batches, self.writer, self.watchdog:
            self.fitting.find(self.state.step)
            return self._train(stop)

    def _train(self, stop: StopRequest) -> Outcome:
        self.session.model.train()
        if self.config.eval_only:
            return self._end("finished" if self._evaluate(stop) else "stopped")
        while True:
            while self.state.step < self.config.max_iters:
                if self._evaluation_due() and not self._evaluate(stop):
                    return self._stop()
                if self._checkpoint_due():
                    self._save()
                if self.vote(bool(stop)):
                    return self._stop()
                self._step()
            if self._settled():
                break
        if self.state.last_eval_step != self.state.step and not self._evaluate(stop):
            return self._stop()
        self.vote.count()
        self._require_finite()
        self._save()
        return self._end("finished")

    def _stop(self) -> Outcome:
        self.vote.count()
        if self.state.step != self._saved_at:
            self._save(planned=False)
        return self._end("stopped")

    def _evaluation_due(self) -> bool:
        step = self.state.step
        return step % self.config.eval_interval == 0 and self.state.last_eval_step != step

    def _checkpoint_due(self) -> bool:
        step = self.state.step
        due = step % self.config.checkpoint_every == 0 or self.state.best_step == step
        return due and step != self._saved_at

    def _step(self) -> None:
        begin = time.perf_counter()
        step = self.state.step
        rate = learning_rate(self.config, step) * self.state.rate_scale
        set_learning_rate(self.session.optimizer, rate)
        set_momentum(self.session.optimizer, muon_momentum(self.config, step))
        loss, grad_norm = self.fitting.attempt(step, lambda: self._update(step))
        logging = step % self.config.log_interval == 0
        self.pending.add(loss, time.perf_counter() - begin)
        if logging:
            self.pending.catch_up(self.session.precision.device)
        self.state.step = step + 1
        self.watchdog.alive()
        self.writer.check()
        if logging:
            if not self._settled():
                return
            self._log(step, rate, grad_norm)
        self.listener.stepped(step)

    def _update(self, step: int) -> tuple[Tensor, Tensor]:
        """One optimizer step; returns its mean loss and gradient norm, both still on the device."""
        config, session, micro_batches = self.config, self.session, self.fitting.cut.micro_batches
        if config.dropout:
            torch.manual_seed(dropout_seed(config.seed, step, session.world.rank))
        tokens_NT, targets_NT = self.batches.batch(self.state.batch_number(step))
        loss = torch.zeros((), device=session.precision.device.torch_device)
        for micro in micro_batches:
            session.replica.average_next(micro is micro_batches[-1])
            with session.precision.autocast():
                micro_loss = session.forward(tokens_NT[micro.rows], targets_NT[micro.rows])
                micro_loss = micro_loss / micro.divisor
            session.scaler.scale(micro_loss).backward()  # type: ignore[no-untyped-call]
            loss += micro_loss.detach()
        return finish_step(
            session.model,
            session.optimizer,
            session.scaler,
            self.guard,
            step=step,
            loss=loss,
            grad_clip=config.grad_clip,
            world=session.world,
        )

    def _log(self, step: int, rate: float, grad_norm: Tensor) -> None:
        line = self.pending.take()
        tokens_per_second = self.tokens_per_step / line.step_seconds
        self.reporter.record(
            "train",
            {
                "step": step,
                "loss": line.last,
                "loss_mean": line.mean,
                "lr": rate,
                "grad_norm": float(grad_norm),
                "seconds": line.step_seconds,
                "tokens_per_second": tokens_per_second,
                "mfu": mfu(
                    flops_per_token=self.flops_per_token,
                    tokens_per_second=tokens_per_second,
                    peak_flops=self.session.peak_flops,
                ),
                "tokens": (step + 1) * self.tokens_per_step,
            },
        )
        problem = self.stuck.check(step, line.mean)
        if problem is not None:
            self.reporter.acted("stuck-loss", step, problem)

    def _settled(self) -> bool:
        """Deals with the updates that were refused; False where the run went back."""
        for refused in self.guard.settle():
            action = decide(self.config, self.state, refused)
            if action != "skip":
                self._go_back(refused.step, refused.reason, may=action == "rollback", counted=True)
                return False
            self.reporter.acted(
                "skipped",
                refused.step,
                f"skipping update {refused.step}: {refused.reason}"
                f" ({len(self.state.skipped)} of {self.config.skip_budget} allowed within 1,000 steps)",
                tell=len(self.state.skipped) == 1,
                loss=refused.loss,
                grad_norm=refused.grad_norm,
            )
        scaler = self.session.scaler
        if scaler.is_enabled() and scaler.get_scale() < LEAST_SCALE:
            step, scale = self.state.step - 1, scaler.get_scale()
            self.reporter.acted("scaler-collapse", step, f"the float16 scale has fallen to {scale:g}")
            may = self.config.nonfinite != "stop" and self.state.rollbacks < self.config.rollback_budget
            self._go_back(step, f"the float16 scale is {scale:g}", may=may, counted=False)
            return False
        return True

    def _go_back(self, last: int, reason: str, *, may: bool, counted: bool) -> None:
        """Rolls the run back past a bad stretch, or ends it with what is known."""
        self.writer.wait()
        began = trouble_began(self.state.skipped) if counted else None
        first = last if began is None else began
        before = self.state.rollbacks
        back = roll_back(self.run_folder, self.session, self.state, first=first, last=last) if may else None
        if back is None:
            good = before_trouble(self.run_folder, first)
            why = "the weights are those from before that update, but going on would not help"
            self._fail(last, reason, before, why=why, good=good[-1] if good else None)
        self.state = back.state
        if self.metrics is not None:
            self.metrics.cut(back.loaded.metrics_bytes)
            self.run_folder.rebuild_log()
        self.pending.restore(self.state)
        self.guard.restore(self.state)
        self.reporter.acted(
            "rollback",
            self.state.step,
            f"{reason} at step {last}; back to {back.loaded.name}, past {back.batches_passed_over} batches"
            f" ({self.state.rollbacks} of {self.config.rollback_budget} rollbacks),"
            f" learning rate × {self.state.rate_scale:g}",
            from_step=last,
            batches_passed_over=back.batches_passed_over,
            rate_scale=self.state.rate_scale,
        )
        self._write()
        self.writer.wait()

    def _require_finite(self) -> None:
        """Ends a run as failed whose weights give NaN or infinity, however few updates were refused."""
        loss = self._val_loss
        if loss is None or math.isfinite(loss):
            return
        best = self.run_folder.pointed("best")
        self._fail(
            self.state.step,
            f"the validation loss is {loss}",
            self.state.rollbacks,
            why="the weights give NaN or infinity, so this is no model to use",
            good=best if best in self.run_folder.checkpoint_names() else None,
        )

    def _fail(self, step: int, reason: str, rollbacks: int, *, why: str, good: str | None) -> NoReturn:
        """Ends the run in an error that says what happened and how to go on from the checkpoint `good`."""
        if not self.session.world.is_first:
            raise PeerFailedError("rank 0 says why")
        self.reporter.record("end", {"step": step, "state": "failed", "reason": reason})
        raise no_way_on(
            self.run_folder.path,
            f"{reason} at step {step}",
            rollbacks=rollbacks,
            why=why,
            good=good,
            rate=self.config.learning_rate / 2,
        )

    def _stalled(self, seconds: float) -> None:
        step = self.state.step
        text = f"step {step} has been under way for {seconds:.0f} s; all stacks are in stalls.txt"
        # A full or dead disk may be what stalls the run: the hook is told all the same.
        with contextlib.suppress(OSError, GptwrightError):
            self.reporter.acted("stalled", step, text, patience=PATIENCE)

    def _evaluate(self, stop: StopRequest) -> bool:
        """False where a stop was asked for before its end; a resumed run begins with this evaluation."""
        self.pending.catch_up(self.session.precision.device)
        begin = time.perf_counter()
        between = partial(self._alive_until, stop)
        losses = self.fitting.evaluate(self.state.step, lambda: self.evaluator.evaluate(between))
        if losses is None:
            return False
        means, step = summarized(losses), self.state.step
        if self.session.world.is_first:
            save_window_losses(self.run_folder.evaluations, step, losses)
        val_loss = self._val_loss = means["val"].mean
        if self.state.is_best(val_loss):
            self.state.best_val_loss, self.state.best_step = val_loss, step
        self.state.last_eval_step = step
        self.watchdog.alive()
        self.reporter.record(
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
        return True

    def _alive_until(self, stop: StopRequest) -> bool:
        self.watchdog.alive()
        return self.vote(bool(stop))

    def _save(self, *, planned: bool = True) -> None:
        """Writes a checkpoint, unless what is settled first sends the run back to one."""
        self.pending.catch_up(self.session.precision.device)
        if self._settled():
            self._write(planned=planned)

    def _write(self, *, planned: bool = True) -> None:
        state, session = self.state, self.session
        self.pending.keep(state)
        now = time.monotonic()
        state.elapsed_seconds += now - self._clock
        self._clock = now
        self.guard.keep(state)
        metrics_bytes = 0
        if self.metrics is not None:
            self.metrics.sync()
            metrics_bytes = self.metrics.length
        info = CheckpointInfo(
            metrics_bytes=metrics_bytes, for_good=to_stay(state, self.config.keep_hours), planned=planned
        )
        if session.replica.sharded:
            # All write together, and none can go on while another one still reads its memory.
            save_parts(self.run_folder, session, state, info)
            if session.world.is_first:
                self.writer.written(state)
        elif session.world.is_first:
            copied = self.writer.beside
            self.writer.save(take_snapshot(state, checkpointed(session), info, copied=copied))
        self._saved_at = state.step
        self.watchdog.alive()

    def _end(self, ending: str) -> Outcome:
        self.writer.wait()
        peak = peak_memory_bytes(self.session.precision.device)
        self.reporter.record("end", {"step": self.state.step, "state": ending, "peak_memory_bytes": peak})
        return Outcome(ending, self.state)
