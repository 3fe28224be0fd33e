"""What a plan expects of this machine's CPU: its dtype, our own kernels, and where its peak comes from."""

from dataclasses import replace
from typing import Any

import pytest

from gptwright.arithmetic.memory import training_memory
from gptwright.arithmetic.step import Step
from gptwright.config.schema import TrainConfig
from gptwright.facts import Fact, Origin, stated
from gptwright.hardware.efficiency import CPU_BASIS, FLOAT32_KERNELS_BASIS, KERNELS_BASIS, MATRIX_BASIS
from gptwright.hardware.torch_build import has_gpu_libraries
from gptwright.plan import device as planning
from gptwright.plan.plan import Plan, make_plan
from gptwright.report.plan_document import plan_document
from gptwright.report.planned import plan_facts

NO_GCC = "no gcc is installed, which our own kernels are built with"
# No more than a tenth of a second of measuring, and the same on every machine.
FLOAT32_PEAK = 1e11


class Machine:
    """This CPU as a test wants it.

    Args:
        monkeypatch: pytest's.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.has(bfloat16=True, compiler="/usr/bin/gcc")
        self.multiplies_by_matrix_registers(False)
        monkeypatch.setattr(planning, "measure_cpu_peak", lambda: FLOAT32_PEAK)

    def has(self, *, bfloat16: bool, compiler: str | None) -> None:
        """Says what is here."""
        self.monkeypatch.setattr(planning, "has_bfloat16", lambda: bfloat16)
        self.monkeypatch.setattr(planning, "missing_for_kernels", lambda: None if compiler else NO_GCC)

    def multiplies_by_matrix_registers(self, it_does: bool, /) -> None:
        """Says whether it has AMX."""
        self.monkeypatch.setattr(planning, "has_matrix_registers", lambda: it_does)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def planned(facts: dict[str, Fact] | None = None, **settings: Any) -> Plan:
    return make_plan(TrainConfig(device="cpu", vocab_size=65, **settings), facts or {}, sources={})


def said(plan: Plan, name: str) -> Fact:
    return next(fact for fact in plan_facts(plan) if fact.name == name)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("settings", [{}, {"dtype": "bfloat16"}, {"kernels": True}, {"dropout": 0.2}])
def test_a_cpu_with_bfloat16_and_a_compiler_uses_our_own_kernels(settings: dict[str, Any]) -> None:
    plan = planned(**settings)
    assert (plan.device.dtype, plan.device.kernels) == ("bfloat16", True)
    assert said(plan, "dtype").text == "bfloat16 with our own kernels"
    peak = said(plan, "peak")
    assert (peak.number, peak.text, peak.origin) == (2 * FLOAT32_PEAK, "200.0 GFLOP/s", Origin.DERIVED)
    assert peak.reason.startswith("2 × 100.0 GFLOP/s, the fastest float32 matrix product just now: an instr")
    throughput = plan_document(plan, (), ())["throughput"]
    assert (throughput["dtype"], throughput["kernels"]) == ("bfloat16", True)
    assert throughput["peak_tflops"] == pytest.approx(0.2)
    assert throughput["peak_basis"] == peak.reason
    assert throughput["basis"] == KERNELS_BASIS
    in_float32 = planned(dtype="float32")
    assert plan.speed is not None
    assert in_float32.speed is not None
    assert plan.speed.likely > 1.5 * in_float32.speed.likely
    step = Step(
        shape=replace(plan.shape, kernels=True),
        micro_batch=plan.config.batch_size,
        dtype="bfloat16",
        compiled=False,
        accumulation=plan.config.gradient_accumulation_steps,
        device_kind="cpu",
        gpu_libraries=has_gpu_libraries(),
    )
    assert plan.memory == training_memory(step)


def test_matrix_registers_make_products_many_times_and_all_else_no_quicker(machine: Machine) -> None:
    by_vectors = planned(n_layer=4, n_head=4, n_embd=128)
    machine.multiplies_by_matrix_registers(True)
    plan = planned(n_layer=4, n_head=4, n_embd=128)
    peak = said(plan, "peak")
    assert (peak.number, peak.origin) == (planning.MATRIX_RATE * FLOAT32_PEAK, Origin.DERIVED)
    assert "on the one CPU with AMX that was measured" in peak.reason
    assert plan.device.vector_peak == 2 * FLOAT32_PEAK
    assert plan.speed is not None
    assert by_vectors.speed is not None
    assert plan.speed.basis == MATRIX_BASIS
    assert by_vectors.speed.likely < plan.speed.likely < 2 * by_vectors.speed.likely
    # Float32 knows nothing of them.
    assert planned(dtype="float32").device.vector_peak is None


def test_fewer_threads_than_cores_have_their_share_of_the_peak(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "usable_cores", lambda: 4)
    peak = said(planned(threads=1), "peak")
    assert (peak.number, peak.origin) == (2 * FLOAT32_PEAK / 4, Origin.DERIVED)
    assert peak.reason.startswith(
        "0.5 × 100.0 GFLOP/s, the fastest float32 matrix product just now, on 1 of 4"
    )
    in_float32 = said(planned(threads=3, dtype="float32"), "peak")
    assert (in_float32.number, in_float32.text) == (0.75 * FLOAT32_PEAK, "75.0 GFLOP/s")
    assert in_float32.origin == Origin.DERIVED
    assert said(planned(threads=9, dtype="float32"), "peak").origin == Origin.MEASURED
    machine.multiplies_by_matrix_registers(True)
    assert planned(threads=1).device.vector_peak == FLOAT32_PEAK / 2


@pytest.mark.parametrize(
    ("settings", "bfloat16", "why"),
    [
        ({}, False, "this CPU has no other in hardware"),
        ({"dtype": "float32"}, False, "asked for"),
        ({"dtype": "float32"}, True, "asked for"),
        ({"attention_dtype": "float32"}, False, "this CPU has no other in hardware"),
    ],
)
def test_in_float32_a_compiler_makes_our_own_kernels_too(
    machine: Machine, settings: dict[str, Any], *, bfloat16: bool, why: str
) -> None:
    machine.has(bfloat16=bfloat16, compiler="/usr/bin/gcc")
    plan = planned(**settings)
    assert (plan.device.dtype, plan.device.kernels) == ("float32", True)
    products, peak = said(plan, "dtype"), said(plan, "peak")
    assert products.text == "float32 with our own kernels"
    assert products.reason == (
        f"{why}, and a compiler is here; a run times our own kernels and takes the quickest"
    )
    assert (peak.number, peak.origin) == (FLOAT32_PEAK, Origin.MEASURED)
    assert plan_document(plan, (), ())["throughput"]["basis"] == FLOAT32_KERNELS_BASIS


@pytest.mark.parametrize(
    ("settings", "bfloat16", "compiler", "reason"),
    [
        ({}, False, None, "this CPU has no other in hardware"),
        ({"dtype": "bfloat16"}, False, "/usr/bin/gcc", "this CPU has no other in hardware"),
        (
            {"dtype": "float32", "kernels": False},
            True,
            "/usr/bin/gcc",
            "asked for; not with our own kernels: kernels = False",
        ),
        ({"dtype": "float16"}, True, "/usr/bin/gcc", "this CPU has no float16 in hardware"),
        (
            {"compile": True},
            True,
            "/usr/bin/gcc",
            "not bfloat16 with our own kernels: compile = True leaves it to torch's compiler; a run times"
            " bfloat16 without them",
        ),
        (
            {},
            True,
            None,
            f"not bfloat16 with our own kernels: {NO_GCC}; a run times bfloat16 without them",
        ),
    ],
)
def test_without_kernels_it_is_float32_as_measured(
    machine: Machine, settings: dict[str, Any], *, bfloat16: bool, compiler: str | None, reason: str
) -> None:
    machine.has(bfloat16=bfloat16, compiler=compiler)
    plan = planned(**settings)
    assert (plan.device.dtype, plan.device.kernels) == ("float32", False)
    assert (said(plan, "dtype").text, said(plan, "dtype").reason) == ("float32", reason)
    peak = said(plan, "peak")
    assert (peak.number, peak.origin) == (FLOAT32_PEAK, Origin.MEASURED)
    assert peak.reason == "fastest float32 matrix product just now"
    assert plan_document(plan, (), ())["throughput"]["basis"] == CPU_BASIS


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("settings", [{"kernels": False}, {"attention_dtype": "float32"}])
def test_bfloat16_that_is_asked_for_is_planned_without_kernels_too(settings: dict[str, Any]) -> None:
    plan = planned(dtype="bfloat16", **settings)
    assert (plan.device.dtype, plan.device.kernels) == ("bfloat16", False)
    assert said(plan, "dtype").reason.startswith("asked for; not with our own kernels: ")


@pytest.mark.parametrize(
    "settings", [{"dtype": "bfloat16", "kernels": True}, {"dtype": "bfloat16", "kernels": False}]
)
def test_a_runs_own_choice_is_followed_with_the_peak_it_measured(
    machine: Machine, settings: dict[str, Any]
) -> None:
    machine.has(bfloat16=False, compiler=None)
    measured = Fact(
        name="peak_flops", value=3e11, text="300 GFLOP/s", origin=Origin.MEASURED, reason="just now"
    )
    plan = planned({"peak_flops": measured}, **settings)
    assert (plan.device.dtype, plan.device.kernels) == ("bfloat16", settings["kernels"])
    assert plan.device.peak is measured


def test_a_card_says_its_dtype_too() -> None:
    def dtype(card: str, **settings: Any) -> tuple[str, Origin]:
        facts = {"device": Fact(name="device", value=card, text=card, origin=Origin.CONFIGURED, reason="")}
        fact = said(make_plan(TrainConfig(vocab_size=65, **settings), facts, sources={}), "dtype")
        return fact.text, fact.origin

    assert dtype("RTX 4070") == ("bfloat16", Origin.TABLED)
    assert dtype("T4") == ("float16", Origin.TABLED)
    assert dtype("RTX 4070", dtype="float16") == ("float16", Origin.CONFIGURED)
    assert dtype("GeForce RTX 9999") == ("bfloat16", Origin.ASSUMED)
    # What train takes on such a chip.
    assert dtype("M3 Max 64GB") == ("float32", Origin.ASSUMED)
    assert dtype("M3 Max 64GB", dtype="float16") == ("float16", Origin.CONFIGURED)


def test_an_apple_chip_that_is_not_in_the_table_is_still_one_of_apples() -> None:
    config = TrainConfig(vocab_size=65)
    plan = make_plan(config, {"device": stated("device", "Apple M9 Max 64GB")}, sources={})
    assert (plan.device.kind, plan.device.dtype, plan.device.compiled) == ("mps", "float32", False)
    assert plan.speed is None
    assert "M9 Max 64GB is not in the table" in plan.unknown[0].missing
