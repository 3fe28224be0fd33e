"""A run that fits itself into the memory there is: what `memory` knows, done while training.

Several processes try a step as one does, and shrink nothing: where one of them runs out of memory, the others
wait for it inside an exchange, and cannot be told.
"""

from collections.abc import Callable
from typing import TypeVar

from gptwright.arithmetic.cut import cut_step
from gptwright.config.schema import TrainConfig
from gptwright.config.write import to_toml
from gptwright.errors import RunFailedError
from gptwright.files import replace_text
from gptwright.hardware.heap import give_back_freed_memory
from gptwright.hardware.limits import has_address_limit, memory_limit
from gptwright.record.run import RunFolder
from gptwright.train import memory
from gptwright.train.evaluate import Evaluator
from gptwright.train.numerics import wrong_numbers
from gptwright.train.reporter import Reporter
from gptwright.train.session import Session

Result = TypeVar("Result")


class Fitting:
    """How a step is cut at the moment, and finer where memory asks for it.

    Args:
        session: what trains.
        run: its settings follow the cut, so that a resume begins with it.
        evaluator: its batches become smaller too.
        reporter: is told.

    Attributes:
        config: the settings with the cut that is in use.
        cut: this process's part of a step by those settings.
    """

    def __init__(self, session: Session, run: RunFolder, evaluator: Evaluator, reporter: Reporter) -> None:
        self.config: TrainConfig = session.config
        self.cut = session.cut
        self._session = session
        self._run = run
        self._evaluator = evaluator
        self._reporter = reporter

    def find(self, step: int) -> None:
        """Finds a cut that fits before the first step, in seconds.

        Raises:
            RunFailedError: none does, or the settings forbid it; or the device computes wrong numbers.
        """
        if self._session.precision.device.type == "cpu":
            if self._session.world.size == 1:
                self._foresee(step)
            if not has_address_limit():
                return
            # A heap that keeps what a failed step took leaves no addresses for what does not come from it,
            # such as code that is made for a shape.
            give_back_freed_memory()
        self.attempt(step, lambda: memory.try_step(self._session, self.cut))
        self.evaluate(step, self._evaluator.try_batch)
        if self._session.precision.device.type == "mps":
            self._require_right_numbers(step)

    def _require_right_numbers(self, step: int) -> None:
        wrong = wrong_numbers(self._session, self.config)
        if wrong is None:
            return
        self._reporter.record("end", {"step": step, "state": "failed", "reason": wrong})
        raise RunFailedError(
            wrong,
            why="torch's kernels for Apple GPUs have had such faults, some at certain sizes only",
            fix="a smaller --batch_size with more accumulation, a newer torch or macOS, or --device=cpu",
        )

    def attempt(self, step: int, update: Callable[[], Result]) -> Result:
        """Makes a step, cut finer as often as memory asks for it; one that fails has changed no weights."""
        while True:
            try:
                return update()
            except (RuntimeError, MemoryError) as error:
                if not memory.is_out_of_memory(error):
                    raise
                shape, dtype = self._session.model.shape, self._session.precision.dtype
                said = memory.explained(error, shape, self.config, dtype)
            # Here the error's traceback is gone, and with it what the failed step held.
            self._shrink(step, said)

    def evaluate(self, step: int, evaluate: Callable[[], Result]) -> Result:
        """Evaluates, in smaller batches as often as memory asks for it."""
        while True:
            try:
                return evaluate()
            except (RuntimeError, MemoryError) as error:
                alone = self._session.world.size == 1
                if not memory.is_out_of_memory(error) or not alone or not self._evaluator.shrink():
                    raise
            memory.free_what_is_left(self._session)
            text = f"an evaluation did not fit; going on with {self._evaluator.batch_size} windows at a time"
            self._reporter.acted("out-of-memory", step, text)

    def _foresee(self, step: int) -> None:
        """On a CPU, whoever passes the limit is killed, so it is computed and not tried."""
        limit = memory_limit()
        while limit is not None:
            needed = memory.predicted_bytes(self._session, self.config)
            if needed <= limit.limit_bytes:
                return
            said = memory.foreseen(needed, limit)
            if self.config.batch_size == 1 or self.config.out_of_memory == "stop":
                self._reporter.acted("out-of-memory", step, f"{said}; it is tried all the same")
                return
            self._shrink(step, said)

    def _shrink(self, step: int, said: str) -> None:
        memory.free_what_is_left(self._session)
        several = self._session.world.size > 1
        may = self.config.out_of_memory == "shrink" and not several
        smaller = memory.shrunk(self.config) if may else None
        if smaller is None:
            self._reporter.record("end", {"step": step, "state": "failed", "reason": said})
            raise memory.too_little_memory(said, self.config, several=several)
        self.config = smaller
        self.cut = cut_step(smaller.sequences_per_step, batch_size=smaller.batch_size)
        self._evaluator.batch_size = min(self._evaluator.batch_size, smaller.batch_size)
        replace_text(self._run.config_path, to_toml(smaller))
        tokens = smaller.sequences_per_step * smaller.block_size
        self._reporter.acted(
            "out-of-memory",
            step,
            f"{said}; going on with micro-batches of {smaller.batch_size} × accumulation"
            f" {smaller.gradient_accumulation_steps}, the same {tokens:,} tokens per step",
            batch_size=smaller.batch_size,
            gradient_accumulation_steps=smaller.gradient_accumulation_steps,
        )
