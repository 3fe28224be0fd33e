"""OpenAI's GPT-2 from the Hugging Face hub, by name.

The transport is that of `data/sources/hub.py`: it says what it fetches and how big that is, goes on with what
broke off, verifies, and obeys HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE.
"""

from collections.abc import Callable
from pathlib import Path

from gptwright.data.sources.hub import fetch_model
from gptwright.errors import DataError
from gptwright.interop.gpt2_folder import CONFIG_NAME, WEIGHTS_NAME

OWNER = "openai-community"


def fetch_gpt2(name: str, say: Callable[[str], None]) -> Path:
    """The folder of one of OpenAI's GPT-2 models, downloaded if it is not in the cache.

    Raises:
        DataError: it cannot be had.
        DiskFullError: there is no room for it.
    """

    def needed(names: list[str]) -> list[str]:
        missing = [file for file in (CONFIG_NAME, WEIGHTS_NAME) if file not in names]
        if missing:
            raise DataError(
                f"{OWNER}/{name} has no {' and no '.join(missing)}",
                fix="check HF_ENDPOINT; in the cache of HF_HOME the download may have been stopped",
            )
        return [CONFIG_NAME, WEIGHTS_NAME]

    return fetch_model(f"{OWNER}/{name}", needed, say).root
