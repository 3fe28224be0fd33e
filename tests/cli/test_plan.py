"""`plan` as a command: numbers as people write them, devices as they call them, wishes that cannot be."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptwright.plan import device as planning
from tests.conftest import Answer

Cli = Callable[..., Answer]


@pytest.fixture
def plan(gptwright: Cli) -> Callable[..., dict[str, Any]]:
    def plan(*arguments: str) -> dict[str, Any]:
        answer = gptwright("plan", *arguments, "--json")
        assert answer.status == 0, answer.err
        document: dict[str, Any] = json.loads(answer.out)
        return document

    return plan


Planned = Callable[..., dict[str, Any]]


def ids(document: dict[str, Any]) -> list[str]:
    return [finding["id"] for finding in document["findings"]]


def test_a_comment_is_not_at_fault_where_an_option_overrides_what_it_speaks_of(
    plan: Planned, tmp_path: Path
) -> None:
    config = tmp_path / "config.py"
    config.write_text("dataset = 'openwebtext'\nmax_iters = 600000  # 300B tokens in all\n")
    card = ("--device", "RTX 4070")
    assert "stale-comment" not in ids(plan(str(config), *card))
    assert "stale-comment" not in ids(plan(str(config), *card, "--max_iters=5000"))
    assert "stale-comment" not in ids(plan(str(config), *card, "--chinchilla", "20"))
    config.write_text("dataset = 'openwebtext'\nmax_iters = 5000  # 300B tokens in all\n")
    assert "stale-comment" in ids(plan(str(config), *card))


def test_amounts_have_scales(plan: Planned) -> None:
    card = ("gpt2-124m", "--device", "RTX 4090")
    assert plan(*card, "--tokens", "10B")["schedule"]["tokens"] == pytest.approx(10e9, rel=1e-3)
    passes = plan(*card, "--tokens", "10B", "--train-tokens", "5B")["schedule"]["epochs"]
    assert passes == pytest.approx(2, rel=1e-3)
    schedule = plan(*card, "--hours", "90min")["schedule"]
    # Evaluations are within the time too.
    seconds = [schedule[part]["likely"] for part in ("seconds", "evaluation_seconds")]
    assert sum(seconds) == pytest.approx(5400, rel=0.01)
    assert seconds[1] > 30
    size = plan("--params", "350M", "--device", "RTX 4090")["parameters"]["nanogpt"]
    assert size == pytest.approx(350e6, rel=0.05)


@pytest.mark.parametrize(
    "wish", [("--params", "many"), ("--hours", "8x"), ("--tokens", "0"), ("--train-tokens", "1.5")]
)
def test_what_is_no_amount_is_named(gptwright: Cli, wish: tuple[str, str]) -> None:
    answer = gptwright("plan", "gpt2-124m", "--device", "RTX 4090", *wish)
    assert answer.status == 2
    assert wish[1] in answer.err


def test_the_shortest_run_contradicts_nothing(plan: Planned) -> None:
    document = plan("gpt2-124m", "--device", "RTX 3090", "--tokens", "1")
    assert (document["schedule"]["steps"], document["config"]["warmup_iters"]) == (1, 0)
    assert "schedule-mismatch" not in ids(document)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("2x RTX 3090", 2),
        ("RTX 3090 x2", 2),
        ("two 3090s", 2),
        ("8×H100", 8),
        ("dual L40S", 2),
        ("RTX 3090", 1),
    ],
)
def test_a_name_tells_how_many_there_are(plan: Planned, name: str, count: int) -> None:
    document = plan("gpt2-124m", "--device", name)
    assert document["batch"]["world_size"] == count
    assert document["memory"]["fits"] is True
    stated = plan("gpt2-124m", "--device", name, "--device-count", "4")
    assert stated["batch"]["world_size"] == 4


@pytest.mark.parametrize("name", ["Colab T4", "T4 (Kaggle)", "RTX 3060, 12 GB VRAM", "RTX 4090M"])
def test_words_around_a_name_are_no_other_device(plan: Planned, name: str) -> None:
    assert plan("gpt2-124m", "--device", name)["throughput"]["peak_tflops"] is not None


def test_a_kind_of_device_that_is_not_here_is_not_planned_as_this_cpu(
    plan: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "visible_cards", lambda: ())
    monkeypatch.setattr(planning, "cpu_name", lambda: "Some CPU")
    config = tmp_path / "config.py"
    config.write_text("device = 'cuda'\nmax_iters = 5000\n")
    for arguments in ((str(config),), ("gpt2-124m", "--device", "cuda"), ("gpt2-124m", "--device", "mps")):
        document = plan(*arguments)
        assert document["throughput"]["tokens_per_second"]["likely"] is None
        assert document["memory"]["fits"] is None
        assert any("--device" in item["missing"] for item in document["unknown"])


def test_a_processor_elsewhere_has_no_graphics_card_for_a_neighbour(plan: Planned) -> None:
    for name in ("Intel i7-1165G7", "Core Ultra 7 155H"):
        document = plan("shakespeare-char-cpu", "--device", name)
        assert document["throughput"]["peak_tflops"] is None
        assert any("is a processor" in item["missing"] for item in document["unknown"])
        assert "TX" not in str(document["unknown"])


def test_memory_that_nothing_says_is_asked_for(plan: Planned) -> None:
    document = plan("gpt2-124m", "--device", "M2")
    assert document["memory"]["fits"] is None
    assert [item["missing"] for item in document["unknown"] if item["question"] == "Does it fit?"]
    assert plan("gpt2-124m", "--device", "M2 16GB")["memory"]["fits"] is False


def test_a_run_is_planned_for_what_a_system_lets_it_have(plan: Planned) -> None:
    step = ("gpt2-124m", "--gradient_accumulation_steps=1")
    largest = [
        plan(*step, "--device", name)["batch"]["largest_micro_batch"] for name in ("M2 16GB", "M2 24GB", "T4")
    ]
    needs = [
        plan(*step, "--device", name, f"--batch_size={largest}")["memory"]["peak_bytes"]
        for name, largest in zip(("M2 16GB", "M2 24GB", "T4"), largest, strict=True)
    ]
    assert [size < most * 2**30 for size, most in zip(needs, (10.7, 16, 14.56), strict=True)] == [True] * 3
    assert plan(*step, "--device", "T4")["memory"]["device_bytes"] == 16 * 2**30


def test_what_a_name_leaves_open_is_said(gptwright: Cli, plan: Planned) -> None:
    assert "assumed: H100 SXM" in plan("gpt2-124m", "--device", "H100")["throughput"]["device_basis"]
    screen = " ".join(gptwright("plan", "gpt2-124m", "--device", "RTX 4070 laptop").out.split())
    assert "assumed: a power limit of 115 W; at 35 W the clock is 1230 MHz" in screen
    assert "2,386 per parameter" in screen


def test_no_share_of_a_peak_is_above_one(plan: Planned) -> None:
    shares = plan("gpt2-124m", "--device", "cpu")["throughput"]["mfu"]
    assert 0 < shares["low"] < shares["likely"] <= shares["high"] <= 1


@pytest.mark.parametrize(
    ("wish", "end"), [("100", "the smallest has 3.32M"), ("1e12", "the largest has 1.71B")]
)
def test_a_size_that_no_model_has_is_refused(gptwright: Cli, wish: str, end: str) -> None:
    answer = gptwright("plan", "--params", wish, "--device", "RTX 3090")
    assert answer.status == 2
    assert end in answer.err


def test_a_vocabulary_that_nothing_says_carries_no_finding(plan: Planned, tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text("dataset = 'chess'\nn_layer = 6\nn_head = 6\nn_embd = 384\nmax_iters = 5000\n")
    unsaid = plan(str(config), "--device", "RTX 4070")
    assert "embedding-heavy" not in ids(unsaid)
    assert "How large is the vocabulary?" in [item["question"] for item in unsaid["unknown"]]
    said = plan(str(config), "--device", "RTX 4070", "--vocab_size=50304")
    assert "embedding-heavy" in ids(said)
    assert "How large is the vocabulary?" not in [item["question"] for item in said["unknown"]]
    config.write_text(config.read_text().replace("chess", "openwebtext"))
    assert "embedding-heavy" in ids(plan(str(config), "--device", "RTX 4070"))


def test_hours_are_those_of_the_batch_that_fits(plan: Planned) -> None:
    for wish in (("--fit",), ()):
        document = plan("--params", "350M", "--hours", "24", "--device", "RTX 4070", *wish)
        assert document["memory"]["fits"] is True
        assert document["schedule"]["seconds"]["likely"] == pytest.approx(24 * 3600, rel=0.01)


def test_a_model_that_fits_at_no_batch_is_still_planned(plan: Planned) -> None:
    document = plan("--params", "1e9", "--hours", "24", "--device", "RTX 4070")
    assert document["memory"]["fits"] is False
    assert "does-not-fit" in ids(document)


@pytest.mark.parametrize(
    ("options", "batch"),
    [
        (("--batch_size=1", "--gradient_accumulation_steps=1"), (1, 1)),
        (("--batch_size=16", "--tokens_per_step=524288"), (16, 32)),
        (("--batch_size=16",), (16, 30)),
    ],
)
def test_an_option_replaces_what_a_preset_says_in_another_way(
    plan: Planned, options: tuple[str, ...], batch: tuple[int, int]
) -> None:
    document = plan("gpt2-124m", "--device", "RTX 4090", *options)["batch"]
    assert (document["micro_batch"], document["gradient_accumulation_steps"]) == batch


def test_a_folder_that_is_called_as_nanogpts_data_is_that(plan: Planned, tmp_path: Path) -> None:
    document = plan("shakespeare-char-cpu", f"--dataset={tmp_path}/shakespeare_char", "--device", "RTX 4070")
    assert document["parameters"]["nanogpt"] == 795_904
    assert document["schedule"]["epochs"] == pytest.approx(1.53, rel=0.01)


def test_an_evaluation_alone_plans_no_training(plan: Planned, tmp_path: Path) -> None:
    config = tmp_path / "eval_gpt2_xl.py"
    config.write_text("# 1558M parameters\nbatch_size = 8\neval_only = True\ninit_from = 'gpt2-xl'\n")
    document = plan(str(config), "--device", "RTX 4090")
    assert document["schedule"]["steps"] == document["schedule"]["tokens"] == 0
    assert document["loss"]["likely"] is None
    assert document["memory"]["fits"] is None
    assert not document["findings"]
    assert document["unknown"][0]["question"] == "What does the evaluation need?"


def test_no_curve_of_fresh_weights_is_promised_to_a_fine_tuning(plan: Planned) -> None:
    card = ("gpt2-124m", "--chinchilla", "20", "--device", "RTX 4090")
    assert plan(*card)["loss"]["likely"] is not None
    assert plan(*card, "--init_from=gpt2", "--bias=True", "--vocab_size=50257")["loss"]["likely"] is None


def test_a_forks_config_is_planned_and_what_is_not_counted_is_named(
    plan: Planned, gptwright: Cli, tmp_path: Path
) -> None:
    config, saved = tmp_path / "fork.py", tmp_path / "ours.toml"
    config.write_text("vocab_size = 50304\nuse_rope = True\nn_kv_head = 4\nnum_workers = 4\n")
    document = plan(str(config), "--device", "RTX 4090", "--save", str(saved))
    # Without a table of positions.
    assert document["parameters"]["total"] == 123_587_328
    (finding,) = (each for each in document["findings"] if each["id"] == "foreign-settings")
    assert finding["severity"] == "warning"
    assert "n_kv_head = 4 (grouped-query attention" in finding["message"]
    assert "use_rope = True as rope = True" in finding["message"]
    assert "num_workers" not in finding["message"]
    assert [each["source"] for each in finding["evidence"]] == ["config:use_rope", "config:n_kv_head"]
    assert plan(str(saved), "--device", "RTX 4090")["parameters"] == document["parameters"]
    answer = gptwright("plan", str(config), "--n_kv_head=4")
    assert answer.status == 2
    assert "unknown setting --n_kv_head" in answer.err


@pytest.mark.parametrize(
    ("settings", "finding"),
    [
        (("--learning_rate=0.1",), "high-learning-rate"),
        (("--n_layer=2", "--n_embd=4096", "--n_head=4"), "odd-shape"),
    ],
)
def test_no_loss_is_promised_to_what_no_known_run_is_like(
    plan: Planned, settings: tuple[str, ...], finding: str
) -> None:
    document = plan("gpt2-124m", "--device", "RTX 4090", "--chinchilla", "20", *settings)
    assert finding in ids(document)
    assert document["loss"]["likely"] is None
    assert any(item["question"] == "What loss may be expected?" for item in document["unknown"])
    assert "e+0" not in str(document["findings"])


def test_a_presets_label_is_not_at_fault_for_a_files_shape(plan: Planned, tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text("n_embd = 384\n")
    assert "size-label-mismatch" not in ids(plan("gpt2-124m", str(config), "--device", "RTX 4090"))


def test_a_runs_folder_is_told_its_config(gptwright: Cli, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("n_layer = 2\n")
    answer = gptwright("plan", str(tmp_path))
    assert answer.status == 2
    assert f"give {tmp_path / 'config.toml'}" in answer.err


def test_a_rate_is_not_judged_by_a_vocabulary_that_is_assumed(plan: Planned, tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text("dataset = 'letters'\ngradient_accumulation_steps = 1\nlearning_rate = 1e-3\n")
    small = ("--device", "RTX 4090", "--tokens", "2.5B")
    assert "small-batch-for-lr" not in ids(plan(str(config), *small))
    assert "small-batch-for-lr" in ids(plan(str(config), *small, "--vocab-size", "50304"))


@pytest.mark.parametrize(
    ("lowest", "at_fault"),
    [("6e-4", True), ("5.7e-4", True), ("1e-3", True), ("3e-4", False), ("6e-5", False), ("0", False)],
)
def test_a_decay_that_ends_where_it_began_is_said(plan: Planned, lowest: str, at_fault: bool) -> None:
    run = ("gpt2-124m", "--device", "RTX 4090", "--max_iters=5000", "--lr_decay_iters=5000")
    document = plan(*run, "--warmup_iters=100", f"--min_lr={lowest}")
    assert ("schedule-mismatch" in ids(document)) is at_fault
    # Weights that are tuned further may well be tuned at one rate.
    tuned = ("--init_from=gpt2", "--dataset=wikitext", "--learning_rate=3e-5", "--min_lr=3e-5")
    settings = ("--max_iters=5000", "--lr_decay_iters=5000", "--warmup_iters=100")
    assert "schedule-mismatch" not in ids(plan(*tuned, *settings, "--device", "RTX 4090"))


def test_another_dataset_or_size_than_the_configs_own_is_said(plan: Planned, tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text(
        "dataset = 'openwebtext'\nmax_iters = 6000\nlr_decay_iters = 6000\nwarmup_iters = 300\n"
    )
    card = (str(config), "--device", "RTX 4070")

    def said(*options: str) -> list[str]:
        findings = plan(*card, *options)["findings"]
        return [finding["message"] for finding in findings if finding["id"] == "config-mismatch"]

    assert said() == said("--dataset=openwebtext", "--train-tokens=9035582198") == []
    assert said("--dataset=data/openwebtext") == []
    (message,) = said("--dataset=fineweb")
    assert "names the dataset openwebtext, and the plan is for fineweb" in message
    (message,) = said("--train-tokens=1B")
    assert "1.00B training tokens are stated for openwebtext" in message
    assert "9.04B" in message
    assert len(said("--dataset=shakespeare_char", "--vocab-size=50304")) == 2
    (message,) = said("--vocab-size=32000")
    assert "another number of tokens" in message
    # Of several configs the last one that names a dataset is meant.
    both = plan("gpt2-124m", "shakespeare-char", "--device", "RTX 4070")
    assert "config-mismatch" not in ids(both)


@pytest.mark.parametrize(("hours", "one"), [("0.0015", True), ("1", False)])
def test_hours_too_few_for_an_evaluation_make_one_step(plan: Planned, hours: str, one: bool) -> None:
    document = plan("gpt2-124m", "--hours", hours, "--device", "RTX 4090")
    assert (document["schedule"]["steps"] == 1) is one
    alone = plan("gpt2-124m", "--eval_only=True", "--hours", hours, "--device", "RTX 4090")
    assert alone["schedule"]["steps"] == 0


def test_the_best_checkpoint_is_promised_where_the_loss_rises_again(gptwright: Cli) -> None:
    screen = " ".join(gptwright("plan", "shakespeare-char", "--device", "RTX 4070").out.split())
    assert "loss about 1.68, best 1.48." in screen
    assert "near step 1,750" in screen


def test_hours_too_few_for_a_step_are_refused(gptwright: Cli) -> None:
    answer = gptwright("plan", "gpt2-124m", "--hours", "1e-3", "--device", "RTX 4090")
    assert answer.status == 2
    assert "not one step fits into 3.6 s" in answer.err


def test_what_a_plan_was_solved_for_is_shown(gptwright: Cli) -> None:
    screen = gptwright("plan", "--hours", "24", "--device", "RTX 4070").out
    chosen = screen[screen.index("Chosen") : screen.index("\nPlan")]
    assert all(name in chosen for name in ("n_layer", "n_embd", "learning_rate", "for 1 d 00 h"))
    assert "Chosen" not in gptwright("plan", "gpt2-124m", "--device", "RTX 4070").out
    cut = gptwright("plan", "gpt2-124m", "--compile=False", "--fit", "--device", "RTX 4070").out
    chosen = cut[cut.index("Chosen") : cut.index("\nPlan")]
    assert chosen.count("so that it fits, at the same tokens per step") == 2
    assert "max_iters" not in chosen


def test_a_fact_beside_a_config_does_not_excuse_its_label(plan: Planned, tmp_path: Path) -> None:
    """Facts are given as options too, and one of them is the vocabulary."""
    config = tmp_path / "config.py"
    config.write_text("# about 125M weights\ndataset = 'fineweb'\nn_layer = 12\nn_head = 12\nn_embd = 384\n")
    facts = ("--device", "RTX 4070", "--dataset", "fineweb", "--train-tokens", "10000000000")
    more = ("--vocab-size", "50304", "--torch", "2.6.0", "--note", "as it was")
    assert "size-label-mismatch" in ids(plan(str(config), *facts))
    assert "size-label-mismatch" in ids(plan(str(config), *facts, *more))
    # What somebody replaces is not the file's fault: another width, or data with another vocabulary.
    assert "size-label-mismatch" not in ids(plan(str(config), *facts, "--n_embd=768"))
    config.write_text("# about 124M weights\ndataset = 'fineweb'\n")
    assert "size-label-mismatch" not in ids(plan(str(config), *facts))
    assert "size-label-mismatch" not in ids(plan(str(config), "--dataset=shakespeare_char"))


def test_a_dataset_that_is_not_prepared_yet_is_planned_by_what_is_known_of_it(
    plan: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout of nanoGPT, where data/shakespeare_char holds prepare.py alone."""
    folder = tmp_path / "data" / "shakespeare_char"
    folder.mkdir(parents=True)
    (folder / "prepare.py").write_text("print('later')\n")
    (tmp_path / "config.py").write_text("dataset = 'shakespeare_char'\nmax_iters = 2000\n")
    monkeypatch.chdir(tmp_path)
    document = plan("config.py", "--device", "RTX 4070")
    assert document["schedule"]["epochs"] == pytest.approx(2000 * 491_520 / 1_003_854)
    assert document["config"]["dataset"] == "shakespeare_char"
    assert "config-mismatch" not in ids(document)


def test_a_dataset_that_is_here_is_planned_for_and_not_what_is_stated_of_it(
    gptwright: Cli, plan: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("".join(f"Once there was text {n}.\n" for n in range(900)))
    assert gptwright("prepare", "a.txt", "--tokenizer", "char", "--out", "data/mine").status == 0
    run = ("shakespeare-char-cpu", "--dataset=mine", "--device", "RTX 4070")
    tokens = plan(*run)["schedule"]["tokens"] / plan(*run)["schedule"]["epochs"]
    document = plan(*run, "--train-tokens", "1B")
    assert document["schedule"]["tokens"] / document["schedule"]["epochs"] == pytest.approx(tokens)
    said = [
        each["message"] for each in document["findings"] if "training tokens are stated" in each["message"]
    ]
    assert [message.split(": ")[-1] for message in said] == ["the plan is for the dataset."]


def test_the_compiler_of_its_time_is_slower(plan: Planned) -> None:
    """nanoGPT's README: eight A100 in about four days, 853,000 tokens/s, with PyTorch 2.0."""
    eight = ("gpt2-124m", "--device", "A100", "--device-count", "8", "--batch_size=12")
    then = plan(*eight, "--torch", "2.0.1")["throughput"]
    today = plan(*eight, "--torch", "2.6.0")["throughput"]
    assert then["tokens_per_second"]["likely"] == pytest.approx(853_000, rel=0.2)
    assert today["tokens_per_second"]["likely"] == pytest.approx(1.48 * then["tokens_per_second"]["likely"])
    assert "PyTorch 2.0's compiler took 1.48 times as long" in then["basis"]
    eager = plan(*eight, "--torch", "2.0.1", "--compile=False")["throughput"]
    assert "1.48" not in eager["basis"]


def test_a_size_and_a_shape_contradict_each_other(gptwright: Cli) -> None:
    answer = gptwright("plan", "--params", "50M", "--n_layer=24", "--device", "RTX 4070")
    assert answer.status == 2
    assert "--params and --n_layer each say how large the model is" in answer.err


def test_a_lowest_rate_above_the_highest_is_what_is_to_be_set(plan: Planned) -> None:
    document = plan("gpt2-124m", "--device", "RTX 4090", "--tokens", "2.5B", "--min_lr=0.01")
    found = next(each for each in document["findings"] if each["id"] == "schedule-mismatch")
    assert [each["set"] for each in found["actions"]] == [{"min_lr": 6e-5}]


def test_a_card_of_another_memory_is_told_by_it(plan: Planned) -> None:
    """People say "12 GB cards such as the 4060"; that one has 8."""
    document = plan("gpt2-124m", "--device", "RTX 4060 12GB")
    assert any("RTX 4060 (8 GB)" in each["missing"] for each in document["unknown"])


def test_a_loss_over_words_is_said_as_a_perplexity_too(gptwright: Cli) -> None:
    words = ("plan", "gpt2-124m", "--device", "RTX 4090", "--dataset", "fineweb", "--tokens", "10B")
    assert "a perplexity of 26" in " ".join(gptwright(*words).out.split())
    assert "perplexity" not in gptwright("plan", "shakespeare-char", "--device", "RTX 4090").out


def test_going_on_is_another_verb(gptwright: Cli) -> None:
    answer = gptwright("train", "--resume=out/ckpt.pt")
    assert answer.status == 2
    assert "gptwright resume RUN" in answer.err
