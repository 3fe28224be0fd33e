"""How many rows the token embedding of a model needs for a dataset.

A dataset's vocabulary decides; GPT-2's 50,257 is padded to a multiple of 64, as nanoGPT does, because
matrices of such sizes multiply faster. A folder that does not tell its vocabulary is taken for GPT-2's.
"""

from gptwright.config.pretrained import GPT2_PADDED_VOCABULARY, GPT2_VOCABULARY
from gptwright.config.schema import TrainConfig
from gptwright.data.dataset import TokenDataset
from gptwright.errors import ConfigError
from gptwright.facts import Origin


def largest_vocabulary(config: TrainConfig, dataset: TokenDataset) -> int:
    """How many ids the data may use: the dataset's, unless that is a guess and the person knows better."""
    if dataset.assumed and config.vocab_size is not None:
        return config.vocab_size
    return dataset.vocab_size


def choose_vocab_size(config: TrainConfig, dataset: TokenDataset) -> tuple[int, Origin, str]:
    """Rows of the token embedding, where the number comes from, and why.

    Raises:
        ConfigError: the config's is smaller than the dataset's.
    """
    if config.vocab_size is None:
        origin = Origin.ASSUMED if dataset.assumed else Origin.DERIVED
        if dataset.vocab_size != GPT2_VOCABULARY:
            return dataset.vocab_size, origin, dataset.vocab_origin
        padded = f"GPT-2's {GPT2_VOCABULARY}, padded to a multiple of 64 as nanoGPT does"
        return GPT2_PADDED_VOCABULARY, origin, f"{padded}; {dataset.vocab_origin}"
    if config.vocab_size < largest_vocabulary(config, dataset):
        raise ConfigError(
            f"the vocabulary of {dataset.folder} has {dataset.vocab_size} ids,"
            f" and vocab_size = {config.vocab_size}",
            why="ids beyond the model's vocabulary have no embedding",
            fix=f"--vocab_size={dataset.vocab_size}, or leave it out",
        )
    return config.vocab_size, Origin.CONFIGURED, "asked for"
