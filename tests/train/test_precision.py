"""Which dtype and whether to compile, over devices that this machine has not; and that autocast acts."""

import importlib.util

import pytest
import torch

from gptwright.errors import DeviceError
from gptwright.facts import Origin
from gptwright.hardware.detect import Device
from gptwright.train import precision
from gptwright.train.precision import (
    Precision,
    choose_compile,
    choose_dtype,
    choose_precision,
    device_fact,
    dtype_elsewhere,
    missing_compiler,
)


def device(type_: str, name: str, *native: str) -> Device:
    return Device(
        type=type_,
        index=0 if type_ == "cuda" else None,
        name=name,
        memory_bytes=2**34,
        native_dtypes=("float32", *native),
        detail="",
    )


T4 = device("cuda", "Tesla T4", "float16")
A100 = device("cuda", "A100", "float16", "bfloat16")
CPU = device("cpu", "old CPU")
CPU_BF16 = device("cpu", "new CPU", "bfloat16")
MPS = device("mps", "Apple GPU", "float16")

NO_OTHER = "this CPU has no other in hardware"


@pytest.mark.parametrize(
    ("request_", "where", "dtype", "reason"),
    [
        ("auto", T4, "float16", "Tesla T4 has no bfloat16 in hardware; a gradient scaler is used"),
        ("float16", T4, "float16", "asked for"),
        ("float32", T4, "float32", "asked for"),
        ("auto", A100, "bfloat16", "A100 multiplies it in hardware, and it needs no scaler"),
        ("bfloat16", A100, "bfloat16", "asked for"),
        ("float16", A100, "float16", "asked for"),
        ("float32", A100, "float32", "asked for"),
        ("auto", CPU, "float32", NO_OTHER),
        ("float32", CPU, "float32", "asked for"),
        (
            "bfloat16",
            CPU,
            "float32",
            "bfloat16 is not in this CPU's hardware (nanoGPT ignores dtype on a CPU too)",
        ),
        (
            "float16",
            CPU,
            "float32",
            "float16 is not in this CPU's hardware (nanoGPT ignores dtype on a CPU too)",
        ),
        (
            "auto",
            CPU_BF16,
            "float32",
            "unless a run finds at its start that bfloat16 is quicker for its model",
        ),
        ("bfloat16", CPU_BF16, "bfloat16", "asked for"),
        (
            "float16",
            CPU_BF16,
            "float32",
            "float16 is not in this CPU's hardware (nanoGPT ignores dtype on a CPU too)",
        ),
        ("auto", MPS, "float32", "the safe choice; lower precision has not been tried on Apple GPUs"),
        ("float16", MPS, "float16", "asked for"),
        ("float32", MPS, "float32", "asked for"),
    ],
)
def test_the_dtype_is_what_the_device_has(request_: str, where: Device, dtype: str, reason: str) -> None:
    assert choose_dtype(request_, where) == (dtype, reason)


@pytest.mark.parametrize(("where", "name"), [(T4, "Tesla T4"), (MPS, "Apple GPU")])
def test_bfloat16_that_would_be_emulated_is_refused(where: Device, name: str) -> None:
    with pytest.raises(DeviceError) as caught:
        choose_dtype("bfloat16", where)
    assert str(caught.value) == (
        f"dtype = 'bfloat16' is not in {name}'s hardware\n"
        "  why: it would be emulated, several times slower than float16\n"
        "  fix: --dtype=float16, or --dtype=auto"
    )


@pytest.mark.parametrize(
    ("request_", "where", "dtype"),
    [
        ("bfloat16", A100, "bfloat16"),
        ("bfloat16", T4, "float16"),
        ("bfloat16", MPS, "float32"),
        ("bfloat16", CPU, "float32"),
        ("float16", T4, "float16"),
        ("float32", A100, "float32"),
        ("auto", T4, "float16"),
    ],
)
def test_a_run_is_scored_on_a_device_without_its_dtype(request_: str, where: Device, dtype: str) -> None:
    assert dtype_elsewhere(request_, where) == dtype


@pytest.fixture
def with_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "try_compiler", lambda: (True, "g++ compiled"))
    monkeypatch.setattr(precision, "try_gpu_compiler", lambda _: (True, "a kernel"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.fixture
def without_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "try_compiler", lambda: (False, NO_HEADERS))
    monkeypatch.setattr(precision, "try_gpu_compiler", lambda _: (False, NO_KERNEL))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


NO_TRITON = "the package triton is not installed"
NO_HEADERS = "g++ fails: 1:10: fatal error: Python.h: No such file"
NO_KERNEL = "torch.compile fails: RuntimeError: Failed to find C compiler"


@pytest.mark.usefixtures("with_compilers")
@pytest.mark.parametrize(
    ("request_", "where", "chosen", "reason"),
    [
        ("auto", A100, True, "nanoGPT's choice on a GPU"),
        (
            "auto",
            CPU,
            False,
            "it takes up to a minute, and only small models' steps get shorter, by a tenth at most",
        ),
        ("auto", MPS, False, "it has not been tried on Apple GPUs"),
        (True, A100, True, "asked for"),
        (True, CPU, True, "asked for"),
        (True, MPS, True, "asked for"),
        (False, A100, False, "asked for"),
        (False, CPU, False, "asked for"),
    ],
)
def test_compilation_where_it_pays(request_: bool | str, where: Device, chosen: bool, reason: str) -> None:
    assert choose_compile(request_, where) == (chosen, reason)


@pytest.mark.usefixtures("without_compilers")
@pytest.mark.parametrize(("where", "missing"), [(A100, NO_TRITON), (CPU, NO_HEADERS)])
def test_compilation_that_cannot_be_done_is_refused_only_when_asked_for(where: Device, missing: str) -> None:
    assert missing_compiler(where) == missing
    assert choose_compile(False, where) == (False, "asked for")
    assert choose_compile("auto", where)[0] is False
    with pytest.raises(DeviceError) as caught:
        choose_compile(True, where)
    assert str(caught.value) == (
        f"compile = True cannot be done here: {missing}\n"
        "  why: torch.compile generates code and compiles it on this machine\n"
        "  fix: --compile=False, or install what is missing"
    )


def test_a_card_older_than_triton_is_not_compiled_for() -> None:
    chosen, reason = choose_compile("auto", device("cuda", "Tesla P100-PCIE-16GB"))
    assert chosen is False
    assert "compute capability 7.0" in reason


@pytest.mark.usefixtures("without_compilers")
def test_triton_that_makes_no_kernel_is_missing_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert choose_compile("auto", A100) == (False, NO_KERNEL)


@pytest.mark.usefixtures("without_compilers")
def test_auto_on_a_gpu_without_triton_says_what_is_missing() -> None:
    assert choose_compile("auto", A100) == (False, NO_TRITON)


def test_the_choices_are_facts_with_their_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "missing_compiler", lambda device: NO_TRITON)
    chosen, compiled, facts = choose_precision(dtype="auto", compile_model="auto", device=T4)
    assert (chosen, compiled) == (Precision(T4, "float16"), False)
    assert [(fact.name, fact.value, fact.text, fact.reason) for fact in facts] == [
        (
            "dtype",
            "float16",
            "float16",
            "Tesla T4 has no bfloat16 in hardware; a gradient scaler is used",
        ),
        ("compile", False, "False", NO_TRITON),
    ]
    assert {fact.origin for fact in facts} == {Origin.DERIVED}
    assert device_fact(T4).text == "cuda:0: Tesla T4"


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float16)],
)
def test_autocast_lowers_products_and_leaves_weights(dtype: str, wanted: torch.dtype) -> None:
    chosen = Precision(CPU, dtype)
    layer = torch.nn.Linear(4, 4)
    x = torch.randn(4, 4)
    assert chosen.torch_dtype == wanted
    with chosen.autocast():
        y = layer(x)
        product = x @ x
    assert (y.dtype, product.dtype, layer.weight.dtype) == (wanted, wanted, torch.float32)
    assert (x @ x).dtype == torch.float32
    y.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize(("dtype", "enabled"), [("float32", False), ("bfloat16", False), ("float16", True)])
def test_only_float16_is_scaled(dtype: str, *, enabled: bool) -> None:
    scaler = Precision(CPU, dtype).scaler()
    assert scaler.is_enabled() == enabled
    assert scaler.scale(torch.tensor(1.0)).item() == (65536.0 if enabled else 1.0)
