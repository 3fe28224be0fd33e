"""The kernels of this machine; what needs them is skipped where no gcc is."""

import pytest

from gptwright.kernels.library import Kernels, Missing, load_kernels


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    """Built by this machine's gcc."""
    found = load_kernels()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    return found
