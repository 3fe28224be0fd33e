"""What `env` says of this machine."""

import platform

import pytest
import torch

from gptwright.facts import Origin
from gptwright.hardware import describe
from gptwright.hardware.detect import Device


def test_each_device_has_a_peak_for_each_dtype_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Device(
        type="cuda",
        index=1,
        name="T4",
        memory_bytes=16 * 2**30,
        native_dtypes=("float32", "float16"),
        detail="compute capability 7.5",
    )
    peaks = {torch.float32: 8.1e12, torch.float16: 65e12}
    monkeypatch.setattr(describe, "detect_devices", lambda: [card])
    monkeypatch.setattr(describe, "measure_matmul_peak", lambda device, dtype: peaks[dtype])
    facts = describe.machine_facts()
    texts = {fact.name: fact.text for fact in facts}
    assert texts["python"] == platform.python_version()
    assert texts["torch"] == torch.__version__
    assert texts["threads"] == str(torch.get_num_threads())
    assert texts["cuda:1"] == "T4"
    assert texts["cuda:1 memory"] == "16.0 GiB"
    assert texts["cuda:1 float32 peak"] == "8.1 TFLOP/s"
    assert texts["cuda:1 float16 peak"] == "65.0 TFLOP/s"
    assert {fact.value for fact in facts if fact.name.endswith("peak")} == {8.1e12, 65e12}
    assert {fact.origin for fact in facts} == {Origin.MEASURED}
