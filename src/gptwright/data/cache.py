"""Where downloads are kept: `GPTWRIGHT_CACHE`, else the folder that the platform has for caches."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The cache folder; it need not exist yet."""
    chosen = os.environ.get("GPTWRIGHT_CACHE")
    if chosen:
        return Path(chosen)
    home = Path.home()
    bases = {
        "win32": Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local"),
        "darwin": home / "Library" / "Caches",
    }
    linux = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return bases.get(sys.platform, linux) / "gptwright"
