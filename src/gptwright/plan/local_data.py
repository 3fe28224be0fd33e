"""What the dataset of a config says about itself, where it is on this machine."""

from pathlib import Path

from gptwright.config.schema import TrainConfig
from gptwright.facts import Fact, Origin


def local_facts(config: TrainConfig) -> dict[str, Fact]:
    """Tokens and vocabulary of the config's dataset; empty where it is not here, or not prepared yet.

    Raises:
        DataError: it is here and damaged.
        ConfigError: the config's vocabulary is smaller than the dataset's.
    """
    name = Path(config.dataset)
    folders = [folder for folder in (name, "data" / name) if folder.is_dir()]
    if not folders:
        return {}
    # numpy, which the data room needs, costs a fifth of the time that a plan may take.
    from gptwright.data.dataset import open_dataset
    from gptwright.data.locate import is_dataset
    from gptwright.data.vocabulary import choose_vocab_size

    # A checkout of nanoGPT has data/shakespeare_char with its prepare.py from the start.
    if not any(map(is_dataset, folders)):
        return {}
    dataset = open_dataset(config.dataset)
    facts = {
        f"{split}_tokens": _measured(f"{split}_tokens", tokens.tokens, str(dataset.folder), "tokens")
        for split, tokens in dataset.splits.items()
    }
    vocabulary, origin, reason = choose_vocab_size(config, dataset)
    facts["vocab_size"] = Fact(
        name="vocab_size",
        value=vocabulary,
        text=f"{vocabulary:,}",
        origin=origin,
        reason=reason,
        source="fact:vocab_size",
    )
    return facts


def _measured(name: str, value: int, reason: str, unit: str) -> Fact:
    return Fact(
        name=name,
        value=value,
        text=f"{value:,}",
        origin=Origin.MEASURED,
        reason=reason,
        unit=unit,
        source=f"fact:{name}",
    )
