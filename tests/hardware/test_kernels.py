"""Whether our own kernels can be expected, told without torch: the settings, and a compiler on the path."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gptwright.config.schema import TrainConfig
from gptwright.hardware.kernels import find_kernel_compiler, setting_against_kernels


@pytest.mark.parametrize(
    "settings", [{}, {"dropout": 0.2}, {"dtype": "bfloat16"}, {"kernels": True, "attention_dtype": "dtype"}]
)
def test_these_settings_leave_room_for_kernels(settings: dict[str, Any]) -> None:
    assert setting_against_kernels(TrainConfig(**settings)) is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"kernels": False}, "kernels = False"),
        ({"dtype": "float32"}, "they compute in bfloat16, attention included"),
        ({"attention_dtype": "float32"}, "they compute in bfloat16, attention included"),
        ({"compile": True}, "compile = True leaves it to torch's compiler"),
    ],
)
def test_these_rule_them_out(settings: dict[str, Any], reason: str) -> None:
    assert setting_against_kernels(TrainConfig(**settings)) == reason


def test_the_compiler_is_cc_else_gcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert find_kernel_compiler() is None
    for name in ("gcc", "gcc-99"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    assert find_kernel_compiler() == str(tmp_path / "gcc")
    monkeypatch.setenv("CC", "gcc-99")
    assert find_kernel_compiler() == str(tmp_path / "gcc-99")
    monkeypatch.setenv("CC", "not-there")
    assert find_kernel_compiler() == str(tmp_path / "gcc")


def test_it_answers_without_torch_or_numpy() -> None:
    code = (
        "import sys, gptwright.hardware.kernels;"
        "print([name for name in ('torch', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
