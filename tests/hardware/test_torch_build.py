"""Whether the build of torch is known without importing it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gptwright.hardware.torch_build import has_gpu_libraries


def test_of_the_torch_that_is_installed() -> None:
    assert has_gpu_libraries() == (torch.version.cuda is not None or torch.version.hip is not None)


@pytest.mark.parametrize(
    ("library", "there"), [("libtorch_cuda.so", True), ("torch_hip.dll", True), ("libtorch_cpu.so", False)]
)
def test_of_a_torch_that_is_not_imported(tmp_path: Path, library: str, *, there: bool) -> None:
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported')", "utf-8")
    (tmp_path / "torch" / "lib" / library).touch()
    program = "from gptwright.hardware.torch_build import has_gpu_libraries; print(has_gpu_libraries())"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, str(there)), done.stderr
