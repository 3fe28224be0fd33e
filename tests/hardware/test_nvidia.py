"""Which card a plan is for where several are: what CUDA calls 0, not what a driver lists first."""

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gptwright.config.schema import TrainConfig
from gptwright.hardware import nvidia
from gptwright.hardware.nvidia import visible_cards
from gptwright.plan.device import plan_device

CARDS = "NVIDIA GeForce RTX 3060, GPU-aaaa-1\nNVIDIA GeForce RTX 4090, GPU-bbbb-2\nNVIDIA T1000, GPU-cccc-3\n"
SMALL, LARGE, UNKNOWN = "NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 4090", "NVIDIA T1000"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a script stands in for nvidia-smi")


@pytest.fixture(autouse=True)
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A command that answers as nvidia-smi does on a machine with three cards."""
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n[ \"$1\" = --query-gpu=name,uuid ] || exit 2\nprintf '{CARDS}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    nvidia._cards.cache_clear()
    yield path
    nvidia._cards.cache_clear()


def test_the_fastest_is_the_first_unless_the_bus_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert visible_cards() == (LARGE, SMALL, UNKNOWN)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert visible_cards() == (SMALL, LARGE, UNKNOWN)


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        ("1", (SMALL,)),
        ("1, 0", (SMALL, LARGE)),
        ("GPU-bbbb", (LARGE,)),
        ("0,7,1", (LARGE,)),
        ("", ()),
        ("-1", ()),
        ("MIG-0123", ("MIG-0123",)),
    ],
)
def test_what_is_hidden_is_not_planned_for(
    monkeypatch: pytest.MonkeyPatch, asked: str, seen: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", asked)
    assert visible_cards() == seen


def test_a_plan_is_for_the_card_that_a_run_would_take() -> None:
    first = plan_device(TrainConfig(), name=None, count=1)
    assert (first.name.value, first.name.reason) == (LARGE, "nvidia-smi; cuda:0 of 3")
    assert plan_device(TrainConfig(device="cuda:1"), name=None, count=1).name.value == SMALL
    missing = plan_device(TrainConfig(device="cuda:3"), name=None, count=1)
    assert missing.peak is None
    assert "no such GPU" in str(missing.remark)


def test_a_driver_that_does_not_answer_is_no_card(driver: Path) -> None:
    driver.write_text("#!/bin/sh\nexit 9\n")
    assert visible_cards() == ()
