"""Weights that a new run begins with: what `init_from` names, if it is not `scratch`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gptwright.config.load import LoadedConfig
from gptwright.config.pretrained import settled_by_weights
from gptwright.config.schema import with_accumulation
from gptwright.data.dataset import TokenDataset
from gptwright.data.locate import locate
from gptwright.data.tokenizer_base import Tokenizer
from gptwright.errors import ConfigError, DataError
from gptwright.facts import Fact, Origin
from gptwright.interop.foreign import ForeignModel, shape_settings
from gptwright.interop.open import open_foreign
from gptwright.interop.trained import TrainedRun
from gptwright.record.run import RunFolder
from gptwright.train.load import open_trained


def starting_weights(
    loaded: LoadedConfig, say: Callable[[str], None]
) -> tuple[LoadedConfig, ForeignModel | None]:
    """The weights to begin with, and the settings with their shape; None for `scratch` and what goes on.

    Args:
        loaded: the settings as they were asked for.
        say: told what is downloaded, before that starts.

    Raises:
        GptwrightError: the weights or the dataset cannot be had, or the settings contradict them.
    """
    source = loaded.config.init_from
    if source in ("scratch", "resume", "auto"):
        return loaded, None
    # A missing dataset is said before gigabytes are fetched.
    locate(loaded.config.dataset, Path())
    if (Path(source) / "config.toml").is_file():
        foreign = as_foreign(open_trained(RunFolder.existing(Path(source)), checkpoint=None))
    else:
        foreign = open_foreign(source, say=say, with_optimizer=False)
    given = {name: getattr(loaded.config, name) for name in loaded.sources}
    settled, problems = settled_by_weights(shape_settings(foreign.shape), given, origin=foreign.origin)
    if problems:
        raise ConfigError.of(problems)
    config = replace(loaded.config, **settled)
    if config.tokens_per_step is not None:
        config = with_accumulation(config, accumulation_given=False)
    sources = dict(loaded.sources) | {
        name: f"the weights of {source}" for name in settled if name not in loaded.sources
    }
    return LoadedConfig(config, sources, loaded.without_effect), foreign


def require_same_tokenizer(theirs: Tokenizer | None, origin: str, dataset: TokenDataset) -> None:
    """Refuses weights that know the ids of a dataset as other text.

    Args:
        theirs: what the weights were trained with; None where that is not known.
        origin: whose weights they are.
        dataset: the ids they are to see.

    Raises:
        DataError: the two have different tokenizers.
    """
    if theirs is None or not dataset.tokenizer_sha256 or theirs.sha256 == dataset.tokenizer_sha256:
        return
    other = "another " if theirs.kind == dataset.tokenizer_kind else ""
    raise DataError(
        f"{dataset.folder} was prepared with the tokenizer {dataset.tokenizer_kind}, and the weights of"
        f" {origin} belong to {other}{theirs.kind}",
        why="the same ids would mean other text, and all that the weights know would be lost",
        fix=f"prepare the text with the tokenizer of the weights: gptwright prepare SOURCE --tokenizer"
        f" {'gpt2' if theirs.kind == 'gpt2' else 'FILE'} --out DIR",
    )


def weights_facts(start: ForeignModel) -> list[Fact]:
    """Where the weights come from, for the start-up table."""
    reason = "; ".join(start.notes) or f"{len(start.weights)} tensors, checked by name and size"
    return [
        Fact(name="weights", value=start.origin, text=start.origin, origin=Origin.CONFIGURED, reason=reason)
    ]


def as_foreign(run: TrainedRun) -> ForeignModel:
    """A run of ours as weights to begin another one with."""
    return ForeignModel(
        origin=f"{run.path}, {run.checkpoint}",
        shape=run.shape,
        weights=run.weights,
        tokenizer=run.tokenizer,
    )
