"""The plan: exact where arithmetic is exact, and by the figures that were published."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptwright.config.schema import TrainConfig
from gptwright.errors import ConfigError
from gptwright.facts import Fact, stated
from gptwright.plan.batch import divisors, fit, same_step
from gptwright.plan.plan import Plan, make_plan
from gptwright.report.planned import HELD_BESIDES, plan_facts

GPT2: dict[str, Any] = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "bias": False}


def planned(card: str | None = "RTX 4070", count: int = 1, **settings: Any) -> Plan:
    facts: dict[str, Fact] = {}
    if card is not None:
        facts["device"] = stated("device", card)
    if count > 1:
        facts["device_count"] = stated("device_count", count)
    return make_plan(TrainConfig(**settings), facts, sources={})


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        ({**GPT2, "n_embd": 384, "n_head": 12, "vocab_size": 50304}, 40_560_000),
        ({**GPT2, "vocab_size": 50304}, 123_587_328),
        ({"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "vocab_size": 65}, 10_646_784),
        ({"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "vocab_size": 65}, 795_904),
        ({"n_layer": 4, "n_head": 4, "n_embd": 64, "block_size": 64, "vocab_size": 50304}, 3_416_640),
        ({**GPT2, "bias": True, "vocab_size": 50257}, 123_653_376),
    ],
)
def test_parameters_are_what_nanogpt_prints(settings: dict[str, Any], printed: int) -> None:
    assert planned(**settings).shape.count_parameters().nanogpt == printed


def test_gpt2_small_eager_does_not_fit_twelve_gigabytes_and_compiled_does() -> None:
    step = {**GPT2, "batch_size": 12, "gradient_accumulation_steps": 40}
    eager, compiled = planned(**step, compile=False), planned(**step, compile=True)
    assert eager.fits is False
    assert compiled.fits is True
    assert eager.largest_micro_batch is not None
    assert compiled.largest_micro_batch is not None
    assert 3 <= eager.largest_micro_batch < 12 <= compiled.largest_micro_batch


def test_fit_keeps_the_tokens_of_a_step_exactly() -> None:
    plan = planned(**GPT2, batch_size=12, gradient_accumulation_steps=40, compile=False)
    config = fit(plan)
    assert config.sequences_per_step == plan.config.sequences_per_step
    assert config.batch_size == max(d for d in divisors(480) if d <= (plan.largest_micro_batch or 0))
    assert make_plan(config, {"device": stated("device", "RTX 4070")}, sources={}).fits is True


def test_the_plan_cuts_a_step_over_devices_as_training_does() -> None:
    """Forty micro-batches over three devices: a third of the sequences each, and none left out."""
    alone = planned(**GPT2, batch_size=12, gradient_accumulation_steps=40)
    three = planned(count=3, **GPT2, batch_size=12, gradient_accumulation_steps=40)
    assert three.tokens_per_step == alone.tokens_per_step
    assert alone.speed is not None
    assert three.speed is not None
    assert 2.0 < three.speed.likely / alone.speed.likely < 3.0
    with pytest.raises(ConfigError, match="9 processes cannot share a step of 8 sequences"):
        planned(count=9, **GPT2, batch_size=4, gradient_accumulation_steps=2)


def test_a_divided_model_fits_where_a_copy_does_not() -> None:
    large = {"n_layer": 48, "n_head": 25, "n_embd": 1600, "block_size": 1024, "batch_size": 1}
    copies = planned("RTX 4090", 4, **large, parallel="ddp")
    parts = planned("RTX 4090", 4, **large, parallel="fsdp")
    assert (copies.largest_micro_batch, copies.fits) == (0, False)
    assert parts.fits is True
    # Four parts of the state: a quarter, with what is whole at a time beside it.
    assert parts.memory.optimizer * 4 == pytest.approx(copies.memory.optimizer, rel=0.01)
    assert parts.memory.weights > copies.memory.weights / 4


def test_each_of_several_devices_takes_whole_micro_batches() -> None:
    plan = planned("RTX 4090", count=4, **GPT2, batch_size=16, gradient_accumulation_steps=32)
    cut = same_step(plan)
    assert cut is not None
    assert (512 // 4) % cut[0] == 0


def test_an_unknown_device_is_said_and_not_guessed() -> None:
    plan = planned("GeForce RTX 9999", **GPT2)
    assert plan.speed is None
    assert plan.fits is None
    assert plan.seconds is None
    assert any("not in the table" in item.missing for item in plan.unknown)


def test_a_dtype_that_a_card_only_emulates_is_planned_without_a_speed() -> None:
    plan = planned("T4", **GPT2, dtype="bfloat16")
    assert plan.fits is True
    assert plan.speed is None
    assert any("--dtype=float16" in item.missing for item in plan.unknown)


def test_a_card_older_than_the_compiler_runs_eagerly() -> None:
    plan = planned("GTX 1080 Ti", **GPT2, batch_size=12)
    assert plan.device.compiled is False
    assert plan.memory.logits > planned("RTX 2080 Ti", **GPT2, batch_size=12).memory.logits


def test_no_plan_promises_more_than_the_peak() -> None:
    for device in ("RTX 4060", "GTX 1080 Ti", "RTX 4090", "H100"):
        mfu = planned(device, **GPT2, batch_size=8).mfu
        assert mfu is not None
        assert mfu[2] <= 1.0


def test_time_is_tokens_over_speed() -> None:
    plan = planned(**GPT2, max_iters=1000)
    assert plan.speed is not None
    assert plan.seconds is not None
    assert plan.seconds[1] == pytest.approx(plan.tokens / plan.speed.likely)
    assert plan.seconds[0] < plan.seconds[1] < plan.seconds[2]
    assert plan.joules == pytest.approx(plan.seconds[1] * 200)


def test_two_devices_are_faster_than_one_and_not_twice() -> None:
    one, two = (planned("RTX 4090", count=n, **GPT2, batch_size=12) for n in (1, 2))
    assert one.speed is not None
    assert two.speed is not None
    assert one.speed.likely < two.speed.likely < 2 * one.speed.likely


def test_nanogpts_datasets_are_known_before_they_are_prepared() -> None:
    plan = planned(
        None, dataset="shakespeare_char", n_layer=6, n_head=6, n_embd=384, block_size=256, device="cpu"
    )
    assert plan.shape.vocab_size == 65
    assert plan.train_tokens is not None
    assert plan.train_tokens.number == 1_003_854


def test_this_cpu_is_measured() -> None:
    plan = planned(None, **GPT2, device="cpu")
    assert plan.device.kind == "cpu"
    assert plan.device.peak is not None
    # In bfloat16 it is derived from what was measured in float32.
    assert plan.device.peak.origin == ("measured" if plan.device.dtype == "float32" else "derived")


Cli = Callable[..., Any]


# nanoGPT's recipe for Shakespeare's characters.
CHARACTERS = (
    "dataset = 'shakespeare_char'\nn_layer = 6\nn_head = 6\nn_embd = 384\nblock_size = 256\n"
    "batch_size = 64\ngradient_accumulation_steps = 1\nmax_iters = 5000\nlr_decay_iters = 5000\n"
    "warmup_iters = 100\n"
)


def plan_json(gptwright: Cli, *arguments: str) -> dict[str, Any]:
    answer = gptwright("plan", *arguments, "--json")
    assert answer.status == 0, answer.err
    document: dict[str, Any] = json.loads(answer.out)
    return document


def test_the_exact_accumulation_is_one_command(gptwright: Cli, tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text("n_embd = 384\nbatch_size = 16\ngradient_accumulation_steps = 32\nblock_size = 1024\n")
    options = ("--n_embd=768", "--device", "RTX 4070", "--compile=True", "--fit")
    batch = plan_json(gptwright, str(config), *options)["batch"]
    assert batch["tokens_per_step"] == 524_288
    assert batch["micro_batch"] * batch["gradient_accumulation_steps"] == 512


def test_a_step_that_cannot_be_exact_is_refused_with_the_nearest(gptwright: Cli) -> None:
    answer = gptwright("plan", "gpt2-124m", "--tokens_per_step=500000")
    assert answer.status == 2
    assert "--tokens_per_step=491520 or --tokens_per_step=503808" in answer.err


@pytest.mark.parametrize(
    ("option", "tokens"), [(("--tokens", "1e9"), 1e9), (("--chinchilla", "20"), 20 * 123_587_328)]
)
def test_tokens_solve_for_steps(gptwright: Cli, option: tuple[str, str], tokens: float) -> None:
    document = plan_json(gptwright, "gpt2-124m", "--device", "RTX 4090", *option)
    per_step = document["batch"]["tokens_per_step"]
    assert tokens <= document["schedule"]["tokens"] < tokens + per_step
    assert document["config"]["lr_decay_iters"] == document["schedule"]["steps"]


def test_hours_solve_for_steps_of_a_given_model(gptwright: Cli) -> None:
    document = plan_json(gptwright, "gpt2-124m", "--device", "RTX 4090", "--hours", "10")
    assert document["schedule"]["seconds"]["likely"] == pytest.approx(36_000, rel=0.01)
    assert document["parameters"]["nanogpt"] == 123_587_328


def test_hours_are_not_spent_on_evaluations(gptwright: Cli, tmp_path: Path) -> None:
    """nanoGPT's characters evaluate 25,600 windows a time: fewer, where that would be most of 18 seconds."""
    config = tmp_path / "config.py"
    config.write_text(CHARACTERS)
    document = plan_json(gptwright, str(config), "--device", "RTX 4070", "--hours", "0.005")
    training = document["schedule"]["seconds"]["likely"]
    assert 0.5 * 18 < training < 0.95 * 18
    saved = tmp_path / "some.toml"
    gptwright("plan", str(config), "--device", "RTX 4070", "--hours", "0.005", "--save", str(saved))
    assert tomllib.loads(saved.read_text())["eval_iters"] < 200


def test_no_step_is_promised_in_less_time_than_it_takes(gptwright: Cli) -> None:
    answer = gptwright("plan", "gpt2-124m", "--device", "RTX 4070", "--hours", "0.001")
    assert answer.status == 2
    assert "not one step fits into 3.6 s" in answer.err
    assert "--tokens_per_step" in answer.err


def test_a_limit_of_the_text_is_only_said_where_it_was_kept(gptwright: Cli, tmp_path: Path) -> None:
    """Hours for a config of somebody's own are all spent, whatever its text is worth."""
    config = tmp_path / "config.py"
    config.write_text(CHARACTERS)
    own = " ".join(gptwright("plan", str(config), "--device", "RTX 4070", "--hours", "1").out.split())
    assert "passes over the text" not in own
    chosen = gptwright("plan", "--dataset=shakespeare_char", "--device", "RTX 4070", "--hours", "1").out
    assert "no more than 16 passes over the text" in " ".join(chosen.split())


def test_the_best_model_in_ten_hours_is_a_config_that_train_takes(gptwright: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "best.toml"
    options = ("--device", "RTX 4070", "--hours", "10", "--dataset=fineweb", "--save", str(saved))
    document = plan_json(gptwright, *options)
    assert document["memory"]["fits"] is True
    assert document["schedule"]["seconds"]["likely"] == pytest.approx(36_000, rel=0.02)
    # The optimum is flat, and near 10 to 30 tokens per parameter whatever the device.
    assert 5 < document["schedule"]["tokens_per_parameter"] < 60
    again = plan_json(gptwright, str(saved), "--device", "RTX 4070")
    assert again["schedule"]["steps"] == document["schedule"]["steps"]
    assert again["parameters"] == document["parameters"]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--params=0", "'--params': 0.0 is not in the range x>0"),
        ("--tokens=-5", "'--tokens': -5.0 is not in the range x>0"),
        ("--hours=nan", "'--hours': nan is not a finite number"),
        ("--chinchilla=inf", "'--chinchilla': inf is not a finite number"),
        ("--device-count=0", "--device-count 0 is not a whole number above 0"),
        ("--device-count=-1", "--device-count -1 is not a whole number above 0"),
        ("--train-tokens=-7", "--train-tokens -7 is not a whole number above 0"),
    ],
)
def test_an_amount_that_is_none_is_refused(option: str, said: str, gptwright: Cli) -> None:
    answer = gptwright("plan", "gpt2-124m", "--device", "RTX 4070", option)
    assert answer.status == 2
    assert said in answer.err


def test_a_config_is_saved_although_nobody_reads_the_plan_to_its_end(
    gptwright: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise OSError("nobody reads on")

    monkeypatch.setattr("gptwright.report.planned.show_plan", gone)
    with pytest.raises(OSError, match="nobody reads on"):
        gptwright("plan", "gpt2-124m", "--device", "RTX 4070", "--save", str(tmp_path / "saved.toml"))
    assert "n_layer = 12" in (tmp_path / "saved.toml").read_text("utf-8")


def test_more_hours_make_a_larger_model(gptwright: Cli) -> None:
    sizes = [
        plan_json(gptwright, "--device", "RTX 4090", "--hours", hours)["parameters"]["nanogpt"]
        for hours in ("1", "10", "100")
    ]
    assert sizes[0] < sizes[1] < sizes[2]


def test_params_choose_a_shape(gptwright: Cli) -> None:
    document = plan_json(gptwright, "--params", "60e6", "--device", "RTX 4070")
    assert document["parameters"]["nanogpt"] == pytest.approx(60e6, rel=0.2)


def test_lengths_that_contradict_each_other_are_refused(gptwright: Cli) -> None:
    answer = gptwright("plan", "gpt2-124m", "--tokens", "1e9", "--hours", "3", "--device", "RTX 4070")
    assert answer.status == 2
    assert "give one of them" in answer.err


def test_the_screen_names_every_origin(gptwright: Cli) -> None:
    answer = gptwright("plan", "gpt2-124m", "--device", "RTX 4070")
    assert answer.status == 0
    for word in ("tabled", "derived", "123.59M", "12.0 GiB", "58.3 TFLOP/s"):
        assert word in answer.out


def test_emulated_bfloat16_is_a_finding_and_no_refusal(gptwright: Cli, tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text("n_layer = 12\nn_embd = 768\nn_head = 12\ndtype = 'bfloat16'\n")
    document = plan_json(gptwright, str(config), "--device", "Tesla T4")
    assert "bf16-emulated" in {finding["id"] for finding in document["findings"]}
    assert document["throughput"]["tokens_per_second"]["likely"] is None
    assert document["throughput"]["peak_tflops"] == pytest.approx(65, rel=0.01)


def test_little_text_limits_the_model_and_its_steps(gptwright: Cli) -> None:
    hours = ["--hours", "8", "--device", "RTX 4090"]
    characters = plan_json(gptwright, *hours, "--dataset=shakespeare_char")
    assert 2e6 < characters["parameters"]["nanogpt"] < 12e6
    assert characters["schedule"]["epochs"] <= 16
    assert characters["config"]["block_size"] == 256
    assert 1400 < characters["schedule"]["steps"] < 3000
    asked = plan_json(gptwright, *hours, "--dataset=shakespeare_char", "--block_size=512")
    assert asked["config"]["block_size"] == 512
    book = plan_json(gptwright, *hours, "--dataset=book", "--train-tokens", "30000000")
    assert book["parameters"]["nanogpt"] <= 33e6
    web = plan_json(gptwright, *hours, "--dataset=openwebtext")
    assert web["parameters"]["nanogpt"] > 1e8
    assert web["schedule"]["seconds"]["likely"] == pytest.approx(8 * 3600, rel=0.02)


def test_passes_over_a_known_dataset_are_judged_without_being_stated(gptwright: Cli, tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text(CHARACTERS)
    findings = plan_json(gptwright, str(config), "--device", "RTX 4060")["findings"]
    # nanoGPT's own recipe, 82 passes: one warning, and what they mean
    severities = {finding["id"]: finding["severity"] for finding in findings}
    assert (severities["long-plan"], severities["many-epochs"]) == ("warning", "info")


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("gpt3", "did you mean --init_from=gpt2?"),
        ("gpt2_xl", "did you mean --init_from=gpt2-xl?"),
        ("scrath", "did you mean --init_from=scratch?"),
        ("models/mine", "n_layer, n_head, n_embd, block_size and vocab_size of models/mine, as settings"),
    ],
)
def test_weights_that_no_plan_opens_leave_their_shape_open(source: str, missing: str) -> None:
    plan = planned(**GPT2, init_from=source)
    assert [each.missing for each in plan.unknown if missing in each.missing]
    assert plan.loss is None


@pytest.mark.parametrize("source", ["scratch", "auto", "resume", "gpt2"])
def test_weights_that_are_known_leave_nothing_open(source: str) -> None:
    assert not [each for each in planned(**GPT2, init_from=source).unknown if "weights" in each.question]


@pytest.mark.parametrize(("context", "promised"), [(64, False), (256, False), (512, True), (2048, True)])
def test_no_loss_is_promised_to_a_context_far_shorter_than_the_known_runs(
    context: int, promised: bool
) -> None:
    accumulation = 40 * 1024 // context
    settings = {**GPT2, "block_size": context, "gradient_accumulation_steps": accumulation}
    plan = planned(**settings, dataset="openwebtext", max_iters=5000, lr_decay_iters=5000)
    assert (plan.loss is not None) is promised


@pytest.mark.parametrize(
    ("settings", "says_so"),
    [({}, True), ({"compile": False}, False), ({"loss_chunk": 512}, False), ({"vocab_size": 65}, False)],
)
def test_of_a_compiled_step_it_says_that_nvidia_smi_shows_more(
    settings: dict[str, Any], *, says_so: bool
) -> None:
    (memory,) = (fact for fact in plan_facts(planned(**settings)) if fact.name == "peak memory")
    assert (HELD_BESIDES in memory.reason) is says_so
