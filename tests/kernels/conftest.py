"""The kernels of this machine; what needs them is skipped where no gcc is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gptwright.hardware.cpu import has_matrix_registers
from gptwright.kernels import library
from gptwright.kernels.library import BUILDS, Kernels, Missing, load_kernels


@pytest.fixture(scope="session", params=BUILDS, ids=str)
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """Built by this machine's gcc."""
    found = load_kernels(request.param)
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    return found


# Dtypes, and what a build of them is told not to use.
WITHOUT = {
    "bfloat16": (torch.bfloat16, ()),
    "bfloat16, no matrix registers": (torch.bfloat16, ("-U__AMX_BF16__",)),
    "bfloat16, any CPU's instructions": (torch.bfloat16, ("-U__AMX_BF16__", "-U__AVX512BF16__")),
    "float32": (torch.float32, ()),
    "float32, vectors of eight": (torch.float32, ("-U__AVX512F__",)),
}


@pytest.fixture(scope="session", params=WITHOUT)
def multiplying(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """The same, and built as for CPUs that have fewer instructions for products."""
    dtype, without = WITHOUT[request.param]
    if isinstance(whole := load_kernels(dtype), Missing):
        pytest.skip(whole.reason)
    if not without:
        return whole
    if request.param == "bfloat16, no matrix registers" and not has_matrix_registers():
        pytest.skip("this CPU has none")
    if request.param == "bfloat16, any CPU's instructions" and not whole.multiplies:
        pytest.skip("this CPU has no others")
    if dtype == torch.float32 and b"avx512f" not in Path("/proc/cpuinfo").read_bytes():
        pytest.skip("this CPU has no longer ones")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPTWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(library, "FLAGS", (*library.FLAGS, *without))
        built = load_kernels(dtype)
    assert isinstance(built, Kernels), built
    assert built.multiplies == (whole.multiplies and "any CPU" not in request.param)
    return built


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many torch has, and so the kernels."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
