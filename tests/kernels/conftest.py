"""The kernels of this machine; what needs them is skipped where no gcc is."""

from collections.abc import Iterator

import pytest
import torch

from gptwright.hardware.cpu import has_matrix_registers
from gptwright.kernels import library
from gptwright.kernels.library import Kernels, Missing, load_kernels


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    """Built by this machine's gcc."""
    found = load_kernels()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    return found


# What a build is told not to use.
WITHOUT = {
    "this CPU's instructions": (),
    "no matrix registers": ("-U__AMX_BF16__",),
    "any CPU's": ("-U__AMX_BF16__", "-U__AVX512BF16__"),
}


@pytest.fixture(scope="session", params=WITHOUT)
def multiplying(
    request: pytest.FixtureRequest, kernels: Kernels, tmp_path_factory: pytest.TempPathFactory
) -> Kernels:
    """The same, and built as for CPUs that have fewer instructions for products of bfloat16."""
    if not WITHOUT[request.param]:
        return kernels
    if request.param == "no matrix registers" and not has_matrix_registers():
        pytest.skip("this CPU has none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPTWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(library, "FLAGS", (*library.FLAGS, *WITHOUT[request.param]))
        built = load_kernels()
    assert isinstance(built, Kernels), built
    assert built.multiplies == (kernels.multiplies and request.param != "any CPU's")
    return built


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many torch has, and so the kernels."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
