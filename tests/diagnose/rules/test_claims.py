"""Claims in comments and names, in the words that people use."""

from pathlib import Path

import pytest

from gptwright.diagnose.reading import Reading, read_run
from gptwright.diagnose.rules.size_labels import size_label_mismatch
from gptwright.diagnose.rules.stale_comments import stale_comment
from gptwright.facts import stated
from gptwright.findings import Finding
from gptwright.record.configs import read_config_evidence
from gptwright.record.evidence import RunEvidence
from gptwright.record.open_run import open_run

# 12 layers × 384 over 50,304 tokens: 40.56M; 524,288 tokens a step, 10.49B in all.
SETTINGS = """
dataset = 'fineweb'
gradient_accumulation_steps = 32{accumulation}
batch_size = 16{batch}
block_size = 1024{context}
n_layer = 12
n_head = 12
n_embd = 384{width}
vocab_size = 50304
max_iters = 20000{steps}
warmup_iters = 500{warmup}
bias = False
"""


NO_COMMENTS = dict.fromkeys(("accumulation", "batch", "context", "width", "steps", "warmup"), "")


def reading(tmp_path: Path, *, above: str = "", **after: str) -> Reading:
    comments = {name: f"  # {text}" if text else "" for name, text in after.items()}
    text = SETTINGS.format_map(NO_COMMENTS | comments)
    path = tmp_path / "config.py"
    path.write_text(f"# {above}\n{text}" if above else text, encoding="utf-8")
    evidence = RunEvidence(
        path=str(path),
        log=None,
        config=read_config_evidence(path),
        stated={"train_tokens": stated("train_tokens", 10_000_000_000)},
    )
    return read_run(evidence)


@pytest.mark.parametrize(
    "comment",
    [
        "about 125M weights, sized for a 12 GB card",
        "~125M parameters, perfect for 12 GB",
        "a 124M parameter model",
        "GPT-2 small, 124M params",
        "125M-parameter network",
        "model of 125M, fits a 4070",
        "parameters: 0.12B",
        "model size is about 85M",
        "125 million parameters",
        "1.5B params",
        "GPT-2 small (124M)",
        "GPT-2 medium, 350M",
        "train gpt2 (124M) on web text",
        "a 124M-parameter transformer",
        "gpt2-like model, 124M params",
        "parameter count = 85,000,000",
        "Modell mit 125M Parametern",
    ],
)
def test_a_wrong_size_is_named(tmp_path: Path, comment: str) -> None:
    findings = [f for f in size_label_mismatch(reading(tmp_path, above=comment)) if isinstance(f, Finding)]
    assert len(findings) == 1
    assert "40.56M" in findings[0].message
    assert findings[0].evidence[0].source.startswith("config:")


@pytest.mark.parametrize(
    "comment",
    [
        "about 40M parameters",
        "40.6M weights, sized for a 12 GB card",
        "~41M params with positions",
        "21M parameters outside the embeddings",
        "the model sees 10B tokens",
        "10B tokens, 20000 steps",
        "512 sequences per update",
        "12 layers, 384 wide, 12 GB card",
        "lr 1e-3 is high for a model like this",
        "model from 2019",
        "smaller than the 124M model",
        "unlike GPT-2's 124M parameters",
        "was a 124M model before the width was cut",
        "not 124M parameters: 40M",
        "target: the loss of a 124M model",
        "rate of GPT-3 125M",
        "20 tokens per param = 2.5B",
        "same depth as GPT-2 124M but half the width",
        "half the width of the 124M model",
        "GPT-2 124M with fewer channels",
        "the 124M model cut to 384 channels",
    ],
)
def test_a_right_size_and_other_numbers_are_left_alone(tmp_path: Path, comment: str) -> None:
    assert list(size_label_mismatch(reading(tmp_path, above=comment))) == []


@pytest.mark.parametrize("comment", ["124M", "~0.12B", "GPT-2 small (124M)"])
def test_a_bare_size_beside_the_shape_is_a_claim(tmp_path: Path, comment: str) -> None:
    assert list(size_label_mismatch(reading(tmp_path, width=comment)))
    assert not list(size_label_mismatch(reading(tmp_path, steps=comment)))


def test_a_size_in_a_name_counts(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text(SETTINGS.format_map(NO_COMMENTS) + "out_dir = 'out-gpt2-124M'\n")
    evidence = RunEvidence(path=str(path), log=None, config=read_config_evidence(path), stated={})
    findings = [f for f in size_label_mismatch(read_run(evidence)) if isinstance(f, Finding)]
    assert "124M" in findings[0].message
    assert findings[0].evidence[0].source == "config:out_dir"


@pytest.mark.parametrize(
    ("note", "wrong"),
    [
        ("our stories124M model", "124M"),
        ("a 124M model on one card", "124M"),
        ("our gpt2-40M run", None),
        ("a 40M model, 10B of text", None),
        ("a 40M model; the next one has 124M parameters", None),
        ("half the width of GPT-2 124M", None),
        ("my colleague's 124M model is better", None),
        ("a server with 300M users", None),
    ],
)
def test_a_size_in_a_note_counts_where_it_speaks_of_this_run(
    tmp_path: Path, note: str, wrong: str | None
) -> None:
    path = tmp_path / "config.py"
    path.write_text(SETTINGS.format_map(NO_COMMENTS))
    facts = {"note": stated("note", note)}
    evidence = RunEvidence(path=str(path), log=None, config=read_config_evidence(path), stated=facts)
    findings = [f for f in size_label_mismatch(read_run(evidence)) if isinstance(f, Finding)]
    assert [f.message.split(";")[0] for f in findings] == ([f"The note says {wrong}"] if wrong else [])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("gpt2-40M-10B", None),
        ("stories40M", None),
        ("stories15M", "15M"),
        ("gpt2-40M-100B", None),
        ("out-fineweb-100B", None),
        ("edu_fineweb100B", None),
        ("gpt2-10B-tokens", None),
        ("run-10B", None),
        ("gpt2-124M-10B", "124M"),
        ("llama-1.5B", "1.5B"),
    ],
)
def test_tokens_in_a_name_are_no_size(tmp_path: Path, name: str, wrong: str | None) -> None:
    path = tmp_path / "config.py"
    path.write_text(SETTINGS.format_map(NO_COMMENTS) + f"wandb_run_name = '{name}'\n")
    evidence = RunEvidence(path=str(path), log=None, config=read_config_evidence(path), stated={})
    findings = [f for f in size_label_mismatch(read_run(evidence)) if isinstance(f, Finding)]
    assert [f.message.split()[3] for f in findings] == ([f"{wrong};"] if wrong else [])


@pytest.mark.parametrize(
    ("where", "comment", "truth"),
    [
        ("steps", "that is about 3B tokens", "10.49B"),
        ("steps", "3B tokens in total", "10.49B"),
        ("steps", "trains on ~300B tokens", "10.49B"),
        ("accumulation", "0.25M tokens per step", "524,288"),
        ("accumulation", "~1M tokens per update", "524,288"),
        ("above", "free GPU, batch of 2M tokens", "524,288"),
        ("accumulation", "65,536 tokens per iteration", "524,288"),
        ("batch", "12 batch size * 1024 block size * 5 gradaccum * 8 GPUs = 491,520", "524,288"),
        ("accumulation", "8 sequences x 32 = 256 sequences per update", "512"),
        ("batch", "8 batch_size * 32 grad_accum * 1024 tokens = 262,144 tokens/iter", "524,288"),
        ("above", "the text has 10B tokens, so 1 epoch ~= 2,400 iters", "1.907e+04"),
        ("context", "context of up to 256 previous characters", "1,024"),
        ("width", "384/6 = 64 per head", "32"),
        ("steps", "this makes the total number of tokens be 300B", "10.49B"),
        ("steps", "3 epochs", "1.049"),
        ("warmup", "2000 steps of warm-up", "500"),
        ("warmup", "10 % of the run", "2.5"),
        ("width", "64 channels per head", "32"),
        ("width", "heads of 64", "32"),
        ("accumulation", "effective batch size 256", "512"),
        ("accumulation", "global batch of 1,024", "512"),
        ("above", "train for ~100k iterations", "20,000"),
        ("steps", "Chinchilla-optimal 2.5B tokens", "10.49B"),
    ],
)
def test_a_stale_number_is_recomputed(tmp_path: Path, where: str, comment: str, truth: str) -> None:
    findings = [f for f in stale_comment(reading(tmp_path, **{where: comment})) if isinstance(f, Finding)]
    assert len(findings) == 1, findings
    assert truth in findings[0].message


@pytest.mark.parametrize(
    ("where", "comment"),
    [
        ("steps", "about 10B tokens"),
        ("steps", "10.5B tokens, one pass"),
        ("steps", "1 epoch"),
        ("accumulation", "16 sequences x 32 = 512 sequences in one update"),
        ("accumulation", "524,288 tokens per step"),
        ("accumulation", "0.5M tokens per update"),
        ("accumulation", "half on each of two cards"),
        ("above", "batch of 0.5M tokens"),
        ("above", "micro-batch of 16,384 tokens"),
        ("above", "GPT-3's batch of 3.2M tokens is for 175B"),
        ("batch", "16 * 1024 * 32 = 524,288"),
        ("batch", "fits 12 GB"),
        ("width", "was 768"),
        ("steps", "20 tokens per parameter would be 0.8B"),
        ("width", "32 channels per head"),
        ("batch", "16 batch_size * 32 grad_accum * 1024 tokens = 524,288 tokens/iter"),
        ("batch", "16 × 1024 = 16,384 tokens/step (micro-step)"),
        ("batch", "Batch: 16 × 1024 = 16,384"),
        ("accumulation", "16,384 tokens per forward pass and step, 32 of them"),
        ("above", "the text has 10B tokens, so 1 epoch ~= 19,073 iters"),
        ("above", "1 epoch is 19,073 steps"),
        ("context", "context of up to 1024 previous characters"),
        ("warmup", "warm up for 500 steps, 2.5 % of the run"),
        ("accumulation", "effective batch size 512"),
        ("accumulation", "effective batch of 524,288 tokens"),
        ("above", "Chinchilla wants 0.8B tokens for this size"),
        ("above", "20k steps"),
        ("above", "checkpoint at 5k steps"),
        ("steps", "more than 3B tokens"),
    ],
)
def test_a_true_or_uncertain_comment_is_left_alone(tmp_path: Path, where: str, comment: str) -> None:
    assert list(stale_comment(reading(tmp_path, **{where: comment}))) == []


def test_a_comment_on_the_data_is_not_about_the_run(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    text = SETTINGS.format_map(NO_COMMENTS)
    path.write_text(text.replace("dataset = 'fineweb'", "dataset = 'fineweb'  # sample of 100B tokens"))
    evidence = RunEvidence(path=str(path), log=None, config=read_config_evidence(path), stated={})
    assert list(stale_comment(read_run(evidence))) == []


def test_a_comment_is_quoted_to_the_end_of_a_thought(tmp_path: Path) -> None:
    (finding,) = stale_comment(reading(tmp_path, above="trains on 50B tokens in about a week"))
    assert isinstance(finding, Finding)
    assert finding.message.startswith("A comment says 50B tokens; the values give 10.49B")


ECHOED = """
tokens per iteration will be: 524,288
number of parameters: 40.56M
iter 0: loss 10.9123, time 3900.00ms, mfu -100.00%
iter 10: loss 9.8123, time 3900.00ms, mfu 12.90%
"""


@pytest.mark.parametrize(
    "echo", ["Overriding config with config/web.py:\n{}", "my settings:\n```\n{}\n```\n"]
)
def test_a_comment_that_came_with_a_log_is_recomputed(tmp_path: Path, echo: str) -> None:
    settings = SETTINGS.format_map(
        NO_COMMENTS | {"steps": "  # about 3B tokens", "width": "  # head size 64"}
    )
    text = echo.format(settings) + ECHOED
    (tmp_path / "log.txt").write_text(text)
    findings = [f for f in stale_comment(read_run(open_run(str(tmp_path)))) if isinstance(f, Finding)]
    assert {finding.message for finding in findings} == {
        "A comment says 3B tokens; the values give 10.49B (20,000 steps × 524,288 tokens).",
        "A comment says head size 64; the values give 32 (n_embd / n_head).",
    }
    for finding in findings:
        line = int(finding.evidence[0].source.removeprefix("log:"))
        assert str(finding.evidence[0].value) in text.split("\n")[line - 1]
        assert finding.actions[0].text == f"Correct the comment in line {line} of the log."


def test_a_comment_that_the_log_echoes_is_told_once(tmp_path: Path) -> None:
    settings = SETTINGS.format_map(NO_COMMENTS | {"steps": "  # about 3B tokens"})
    (tmp_path / "config.py").write_text(settings)
    (tmp_path / "log.txt").write_text(f"Overriding config with config/web.py:\n{settings}{ECHOED}")
    (found,) = stale_comment(read_run(open_run(str(tmp_path))))
    assert isinstance(found, Finding)
    assert found.evidence[0].source == "config:max_iters"


@pytest.mark.parametrize(
    "comment",
    [
        "40M, 10.5B tokens",
        "10.5B tokens @ 40M params = 259 tokens per parameter",
        "GPT (40M params), 0.5M batch, 10.5B tokens",
        "params: 40M; tokens/step: 524,288; total: 10.5B",
        "tokens per step: 2^19, or 2**19 tokens per step",
        "takes 2.5 hours per 1B tokens on this card",
        "an evaluation every 500 steps = 262M tokens",
        "5 evals of 200 * 16 * 1024 = 3.3M tokens",
        "the first attempt with 40M had 125M parameters",
    ],
)
def test_several_numbers_of_one_comment_are_told_apart(tmp_path: Path, comment: str) -> None:
    """Each number belongs to the word beside it, not to the one behind a comma or in the next sentence."""
    found = reading(tmp_path, above=comment)
    assert not [*size_label_mismatch(found), *stale_comment(found)]


def test_tokens_beside_another_setting_are_a_part_of_the_run(tmp_path: Path) -> None:
    assert not [*stale_comment(reading(tmp_path, warmup="2.5% of the run, 262M tokens"))]
    assert [*stale_comment(reading(tmp_path, steps="5.2B tokens"))]


@pytest.mark.parametrize(
    "comment",
    ["40M, 2B tokens", "tokens per iter: 262,144", "2B tokens @ 40M params", "0.25M tokens/step, 40M params"],
)
def test_the_false_one_of_several_numbers_is_named(tmp_path: Path, comment: str) -> None:
    found = reading(tmp_path, above=comment)
    assert len([*size_label_mismatch(found), *stale_comment(found)]) == 1


def test_a_label_is_held_against_what_the_log_counts(tmp_path: Path) -> None:
    """torchtitan prints a size and no shape, so there is no width to change."""
    (tmp_path / "log.txt").write_text(
        "[titan] 2025-06-11 10:00:01 - root - INFO - Model llama3 1B size: 596,049,920 total parameters\n"
        "[titan] 2025-06-11 10:00:09 - root - INFO - step: 10  loss:  9.10000  grad_norm:  1.6627  memory:"
        " 41.80GiB(52.74%)  tps: 13,584  tflops: 13.22  mfu: 4.24%\n"
    )
    (tmp_path / "facts.toml").write_text('note = "a 1B model"\n')
    mismatch = next(
        f for f in size_label_mismatch(read_run(open_run(str(tmp_path)))) if isinstance(f, Finding)
    )
    assert mismatch.message == "The note says 1B; the log itself counts 596.05M parameters."
    assert mismatch.actions[0].text == "Correct the label to 596.05M."
