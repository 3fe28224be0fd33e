"""The kernels of this machine; what needs them is skipped where no gcc is."""

from collections.abc import Iterator

import pytest
import torch

from gptwright.kernels import library
from gptwright.kernels.library import Kernels, Missing, load_kernels


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    """Built by this machine's gcc."""
    found = load_kernels()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    return found


@pytest.fixture(scope="session", params=["this CPU's instructions", "any CPU's"])
def multiplying(
    request: pytest.FixtureRequest, kernels: Kernels, tmp_path_factory: pytest.TempPathFactory
) -> Kernels:
    """The same, and built as for a CPU that has no instruction for products of bfloat16."""
    if request.param == "this CPU's instructions":
        return kernels
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPTWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(library, "FLAGS", (*library.FLAGS, "-U__AVX512BF16__"))
        built = load_kernels()
    assert isinstance(built, Kernels)
    assert not built.multiplies
    return built


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many torch has, and so the kernels."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
