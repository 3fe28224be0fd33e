"""Whether our own kernels can be expected, told without torch: the settings, and a compiler on the path."""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gptwright.config.schema import TrainConfig
from gptwright.hardware.kernels import (
    dtype_of_kernels,
    find_kernel_compiler,
    missing_for_kernels,
    setting_against_kernels,
)


@pytest.mark.parametrize(
    ("settings", "bfloat16", "dtype"),
    [
        ({}, True, "bfloat16"),
        ({}, False, "float32"),
        ({"dtype": "bfloat16", "dropout": 0.2}, True, "bfloat16"),
        ({"dtype": "float32", "attention_dtype": "float32"}, True, "float32"),
        ({"kernels": True, "attention_dtype": "dtype"}, True, "bfloat16"),
        ({"attention_dtype": "float32"}, False, "float32"),
    ],
)
def test_these_settings_leave_room_for_kernels(settings: dict[str, Any], bfloat16: bool, dtype: str) -> None:
    config = TrainConfig(**settings)
    assert dtype_of_kernels(config, bfloat16=bfloat16) == dtype
    assert setting_against_kernels(config, dtype) is None


@pytest.mark.parametrize(
    ("settings", "bfloat16", "reason"),
    [
        ({"kernels": False}, True, "kernels = False"),
        ({"dtype": "float16"}, True, "they compute in float32 here, and dtype = float16 is asked for"),
        ({"dtype": "bfloat16"}, False, "they compute in float32 here, and dtype = bfloat16 is asked for"),
        ({"attention_dtype": "float32"}, True, "in bfloat16 they compute attention in it too"),
        ({"compile": True}, False, "compile = True leaves it to torch's compiler"),
    ],
)
def test_these_rule_them_out(settings: dict[str, Any], bfloat16: bool, reason: str) -> None:
    config = TrainConfig(**settings)
    assert setting_against_kernels(config, dtype_of_kernels(config, bfloat16=bfloat16)) == reason


def test_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert missing_for_kernels() == "no gcc is installed, which our own kernels are built with"
    (tmp_path / "gcc").write_text("")
    (tmp_path / "gcc").chmod(0o755)
    assert missing_for_kernels() is None
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert missing_for_kernels() == "our own kernels are for Linux, and this is Darwin"


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
