"""Whether what a person asks for can be trained here, before anything is built.

All that can be wrong with the input is found in the order in which a person would mend it: device, dataset,
vocabulary, memory, how a step is cut, and whether all processes mean the same run.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gptwright.arithmetic.cut import Cut, cut_step
from gptwright.arithmetic.shape import ModelShape
from gptwright.config.schema import TrainConfig
from gptwright.data.dataset import TokenDataset, check_ids, open_dataset, reopen_dataset, require_windows
from gptwright.data.vocabulary import choose_vocab_size, largest_vocabulary
from gptwright.facts import Fact
from gptwright.hardware.detect import Device, find_device, use_device
from gptwright.hardware.heap import give_back_freed_memory
from gptwright.train.precision import Precision, allow_tf32, choose_precision
from gptwright.train.room import require_room
from gptwright.train.world import World


@dataclass(frozen=True, slots=True)
class Data:
    """A dataset that fits a config.

    Attributes:
        dataset: its tokens.
        vocab_size: rows of the token embedding over it.
        vocabulary: the same as a fact.
        id_limit: every id of the data is below it.
    """

    dataset: TokenDataset
    vocab_size: int
    vocabulary: Fact
    id_limit: int


@dataclass(frozen=True, slots=True)
class Checked:
    """Input that this machine can train.

    Attributes:
        device: where.
        precision: device and dtype.
        compiled: whether to compile.
        choices: both with their reasons.
        data: the dataset.
        shape: the model's, as the settings have it.
        cut: this process's part of a step.
    """

    device: Device
    precision: Precision
    compiled: bool
    choices: list[Fact]
    data: Data
    shape: ModelShape
    cut: Cut


def check(config: TrainConfig, dataset_folder: Path | None, world: World) -> Checked:
    """Checks settings against device, dataset, memory and the other processes.

    Args:
        config: the settings.
        dataset_folder: where a resumed run found its dataset, used if the name no longer leads there.
        world: the processes that train it, each of which calls this.

    Raises:
        GptwrightError: of the kind of whatever is wrong.
    """
    world.set_timeout(config.rank_timeout)
    device = find_device(world.device_request(config.device))
    use_device(device)
    precision, compiled, choices = choose_precision(
        dtype=config.dtype, compile_model=config.compile, device=device
    )
    allow_tf32(device)
    data = _checked_data(config, dataset_folder)
    shape = ModelShape.of(config, data.vocab_size)
    if device.type == "cpu" and shape.saves_memory:
        give_back_freed_memory()
    require_room(shape, config.sequences_per_step, world)
    cut = cut_step(config.sequences_per_step, batch_size=config.batch_size, rank=world.rank, size=world.size)
    world.require_same("the configuration", json.dumps(asdict(config), sort_keys=True))
    world.require_same(f"the dataset {data.dataset.name}", data.dataset.fingerprint)
    return Checked(device, precision, compiled, choices, data, shape, cut)


def _checked_data(config: TrainConfig, folder: Path | None) -> Data:
    dataset = _open(config, folder)
    vocab_size, origin, reason = choose_vocab_size(config, dataset)
    vocabulary = Fact(
        name="vocabulary", value=vocab_size, text=f"{vocab_size:,}", origin=origin, reason=reason
    )
    id_limit = min(vocab_size, largest_vocabulary(config, dataset))
    for split in dataset.splits.values():
        require_windows(split, config.block_size)
        check_ids(split, id_limit)
    return Data(dataset, vocab_size, vocabulary, id_limit)


def _open(config: TrainConfig, dataset_folder: Path | None) -> TokenDataset:
    name = config.dataset
    if dataset_folder is not None and not (Path(name).exists() or (Path("data") / name).exists()):
        name = str(dataset_folder)
    return open_dataset(name) if dataset_folder is None else reopen_dataset(name)
