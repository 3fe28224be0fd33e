"""What no main memory can hold is refused before a tensor is made, and not left to the kernel."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.schema import TrainConfig
from gptwright.errors import ConfigError
from gptwright.hardware.limits import MemoryLimit
from gptwright.train import room
from gptwright.train.room import require_room
from gptwright.train.world import World
from tests.conftest import Answer, as_arguments

SHAPE = ModelShape.of(TrainConfig(n_layer=1, n_head=1, n_embd=8, block_size=16), 65)
WEIGHTS = 4 * SHAPE.count_parameters().total


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how many bytes there are."""

    def limit(value: int) -> None:
        monkeypatch.setattr(room, "memory_limit", lambda: MemoryLimit(value, "control group, /sys/x"))

    return limit


def test_weights_and_a_batch_must_fit(limited: Callable[[int], None]) -> None:
    needed = WEIGHTS + 32 * 12 * 16
    limited(needed)
    require_room(SHAPE, 12, World())
    limited(needed - 1)
    with pytest.raises(
        ConfigError, match=r"the batch of a step 6.0 KiB, .*\(control group, /sys/x\)"
    ) as caught:
        require_room(SHAPE, 12, World())
    assert "a smaller --batch_size or --gradient_accumulation_steps" in str(caught.value)
    with pytest.raises(ConfigError, match="a smaller --n_embd, --n_layer or --vocab_size"):
        require_room(replace(SHAPE, n_embd=4096), 12, World())


def test_every_process_of_a_machine_draws_the_weights_and_its_share_of_the_batch(
    limited: Callable[[int], None],
) -> None:
    limited(2 * WEIGHTS + 2 * 32 * 3 * 16)
    require_room(SHAPE, 12, World(size=4, local_size=2))
    with pytest.raises(ConfigError, match="the weights of this model take"):
        require_room(SHAPE, 13, World(size=4, local_size=2))


@pytest.mark.parametrize(
    "absurd",
    [{"n_layer": "1000000000"}, {"n_embd": "100000000000"}, {"gradient_accumulation_steps": "1000000000000"}],
)
def test_a_size_beyond_any_machine_is_answered_at_once(
    gptwright: Callable[..., Answer], tiny: dict[str, str], absurd: dict[str, str]
) -> None:
    begin = time.monotonic()
    answer = gptwright("train", *as_arguments(tiny | {"n_head": "1"} | absurd))
    assert (answer.status, "are there (" in answer.err) == (2, True)
    assert time.monotonic() - begin < 20
