"""What a log's own numbers give away, and what they do not."""

import math
from pathlib import Path

import pytest

from gptwright.diagnose.reading import read_run
from gptwright.record.open_run import open_run
from gptwright.report.documents import run_summary
from tests.diagnose.rules.nanogpt_run import WEB, diagnosed, found, power_law, web_loss, write_run


class TestProcesses:
    def distributed(self, folder: Path, count: int) -> Path:
        """A run of several processes: the header counts all tokens, the MFU is that of one process."""
        write_run(folder, WEB, {"device": "RTX 4090"}, web_loss, last=1000, tflops=95.0)
        log = folder / "log.txt"
        lines = []
        for line in log.read_text().splitlines():
            if line.startswith("iter"):
                head, time, mfu = line.split(", ")
                shorter = float(time.removeprefix("time ").removesuffix("ms")) / count
                lines.append(f"{head}, time {shorter:.2f}ms, {mfu}")
            else:
                lines.append(line)
        log.write_text("\n".join(lines) + "\n")
        return folder

    @pytest.mark.parametrize("count", [2, 4, 8])
    def test_header_and_mfu_tell_how_many(self, tmp_path: Path, count: int) -> None:
        reading = read_run(open_run(str(self.distributed(tmp_path, count))))
        assert reading.machine.count == count
        assert reading.mfu is not None
        assert reading.mfu.number == pytest.approx(95 / 165.2, rel=0.02)
        assert not {"impossible-throughput", "batch-mismatch"} & found(tmp_path).keys()

    def test_one_process_is_one(self, tmp_path: Path) -> None:
        reading = read_run(open_run(str(self.distributed(tmp_path, 1))))
        assert reading.machine.processes is None

    def test_another_number_than_stated_is_said(self, tmp_path: Path) -> None:
        for stated, ran in ((8, 1), (2, 4)):
            folder = tmp_path / str(ran)
            facts = self.distributed(folder, ran) / "facts.toml"
            facts.write_text(facts.read_text() + f"device_count = {stated}\n")
            findings = found(folder)
            assert f"those of {ran} " in findings["device-mismatch"].message
            assert "batch-mismatch" not in findings

    def test_a_card_that_cannot_do_it_is_still_impossible(self, tmp_path: Path) -> None:
        run = write_run(tmp_path, WEB, {"device": "RTX 3060"}, web_loss, last=1000, tflops=95.0)
        assert "impossible-throughput" in found(run)


class TestRates:
    def llama2c(self, folder: Path, *, falls: bool) -> Path:
        """A run whose rate decays to nothing at 2,000 and is raised at a resume."""
        folder.mkdir(exist_ok=True)
        lines = ["breaks down as: 4 grad accum steps * 1 processes * 32 batch size * 256 max seq len"]
        for begin, end in ((0, 2000), (2000, 6000)):
            if begin:
                lines.append("Resuming training from out")
            for step in range(begin, end + 1, 20):
                rate = 5e-4 * (1 - step / (2000 if not begin else 8000))
                raised = 0.1 if begin and falls is False and 2000 < step < 4000 else 0.0
                loss = 1.2 - step / 1e5 + raised
                if step % 200 == 0:
                    lines.append(f"step {step}: train loss {loss:.4f}, val loss {loss + 0.01:.4f}")
                lines.append(f"{step} | loss {loss:.4f} | lr {rate:e} | 160.00ms | mfu 23.00%")
        (folder / "log.txt").write_text("\n".join(lines) + "\n")
        return folder

    def test_the_effect_of_a_raised_rate_is_read_from_validation(self, tmp_path: Path) -> None:
        message = found(self.llama2c(tmp_path / "a", falls=False))["lr-jump"].message
        assert "from 0 to 0.00038 at step 2,000" in message
        assert "Validation went from 1.19 to 1.29 by step 2,200 and was back by step 4,000" in message
        message = found(self.llama2c(tmp_path / "b", falls=True))["lr-jump"].message
        assert "did not rise" in message

    def test_the_tail_of_a_log_does_not_show_its_peak_rate(self, tmp_path: Path) -> None:
        line = "step {s:05d}/20000 (9.0%) | loss: {l:.6f} | lrm: 0.05 | dt: 1177.17ms | tok/sec: 55,672"
        ends = [line.format(s=s, l=3.2 - s / 1e5) for s in range(2000, 20000, 100)]
        (tmp_path / "log.txt").write_text("Vocab size: 32,768\n" + "\n".join(ends) + "\n")
        (tmp_path / "facts.toml").write_text('note = "the loss has reached a plateau"\n')
        finding = found(tmp_path).get("plateau-unproven")
        assert finding is None or "learning rate is still" not in finding.message


class TestFirstLoss:
    def trainer_log(self, folder: Path, *, losses: list[float], evals: list[float], facts: str) -> Path:
        folder.mkdir(exist_ok=True)
        lines = []
        for i, (loss, evaluated) in enumerate(zip(losses, evals, strict=True)):
            lines.append(f"{{'loss': {loss}, 'grad_norm': 1.0, 'learning_rate': 5e-05, 'epoch': {i / 10}}}")
            lines.append(f"{{'eval_loss': {evaluated}, 'eval_runtime': 12.3, 'epoch': {i / 10}}}")
        (folder / "log.txt").write_text("\n".join(lines) + "\n")
        (folder / "facts.toml").write_text(facts)
        return folder

    def test_a_sum_is_seen_without_a_vocabulary(self, tmp_path: Path) -> None:
        evals = [8.2, 7.6, 7.1, 6.8, 6.5, 6.4, 6.3, 6.2]
        run = self.trainer_log(tmp_path / "a", losses=[4 * e + 0.2 for e in evals], evals=evals, facts="")
        assert "4 times the true one" in found(run)["scaled-loss"].message
        # A loss that is far too high and comes down to validation is no sum.
        losses = [40.0, 20.0, 12.0, 8.0, 7.0, 6.5, 6.3, 6.2]
        run = self.trainer_log(tmp_path / "b", losses=losses, evals=evals, facts="")
        assert "scaled-loss" not in found(run)

    def test_weights_that_nobody_called_fresh_may_be_pretrained(self, tmp_path: Path) -> None:
        low = power_law(2.8, 3.5, 0.5)
        stated = write_run(tmp_path / "a", WEB | {"init_from": "scratch"}, {}, low, last=1000)
        assert found(stated)["init-loss"].severity == "warning"
        speed = "Learning Rate 1.000e-05, It/sec 0.987, Tokens/sec 387.7"
        lines = [
            f"Iter {step}: Train loss {low(step):.3f}, {speed}, Trained Tokens {400 * step}, Peak mem 8.1 GB"
            for step in range(1, 200, 5)
        ]
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "log.txt").write_text("\n".join(lines) + "\n")
        (tmp_path / "b" / "facts.toml").write_text("vocab_size = 32000\n")
        finding = found(tmp_path / "b")["init-loss"]
        assert finding.severity == "info"
        assert "pretrained" in finding.causes[0].text


class TestSpikes:
    def test_one_spike_needs_nothing(self, tmp_path: Path) -> None:
        def curve(step: float) -> float:
            return web_loss(step) + (2.0 * 0.95 ** ((step - 2000) / 10) if step >= 2000 else 0.0)

        (action,) = found(write_run(tmp_path, WEB, {}, curve))["loss-spike"].actions
        assert action.settings == {}


class TestClaims:
    @pytest.mark.parametrize(
        ("comment", "said"),
        [
            ("# 50k steps in total", "50k steps"),
            ("# head dim 96", "head dim 96"),
            ("# train for 5k steps in total", None),
            ("# total: eval every 500 steps", None),
        ],
    )
    def test_steps_and_what_a_claim_is_about(self, tmp_path: Path, comment: str, said: str | None) -> None:
        run = write_run(tmp_path, WEB, {}, web_loss, last=100)
        config = run / "config.py"
        config.write_text(f"{comment}\n{config.read_text()}")
        finding = found(run).get("stale-comment")
        assert (finding is None) is (said is None)
        if finding is not None and said is not None:
            assert said in finding.message

    def test_a_count_beside_max_iters_is_of_steps(self, tmp_path: Path) -> None:
        run = write_run(tmp_path, WEB, {}, web_loss, last=100)
        config = run / "config.py"
        config.write_text(
            config.read_text().replace("max_iters = 5000\n", "max_iters = 5000  # 20,000 steps\n", 1)
        )
        assert "max_iters = 5,000" in found(run)["stale-comment"].message


class TestLongContexts:
    def test_half_of_the_attention_that_an_mfu_counts_is_not_done(self, tmp_path: Path) -> None:
        """6 layers of 384 at 8,192 tokens: 406 MFLOP a token by the convention, 293 done: 0.72 of it."""
        settings = WEB | {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 8192, "batch_size": 2}
        facts = {"device": "RTX 4090"}
        for name, share, impossible in (("a", 1.2, False), ("b", 1.6, True)):
            run = write_run(tmp_path / name, settings, facts, web_loss, tflops=share * 165.2, last=500)
            assert ("impossible-throughput" in found(run)) is impossible


class TestRisingValidation:
    def test_nothing_is_memorized_within_the_first_pass(self, tmp_path: Path) -> None:
        def rising(step: float) -> float:
            return web_loss(step) + 0.3 * max(0.0, step - 3000) / 1000

        text = 9_035_582_198
        run = write_run(tmp_path / "a", WEB, {"train_tokens": text}, web_loss, val=rising)
        assert "overfitting" not in found(run)
        questions = [item.question for item in diagnosed(run).unknown]
        assert any("validation rise" in question for question in questions)
        run = write_run(tmp_path / "b", WEB, {"train_tokens": text // 100}, web_loss, val=rising)
        assert "overfitting" in found(run)

    def test_a_swing_with_the_data_is_no_overfitting(self, tmp_path: Path) -> None:
        settings = WEB | {"max_iters": 10_000, "lr_decay_iters": 10_000}
        run = write_run(
            tmp_path,
            settings,
            {},
            web_loss,
            val=lambda s: web_loss(s) + 0.04 * math.sin(2 * math.pi * s / 1900),
        )
        assert {"periodic-validation", "overfitting"} & found(run).keys() == {"periodic-validation"}

    def test_what_rounding_makes_of_a_slope_is_no_swing(self, tmp_path: Path) -> None:
        """Three places of a loss that rises by 0.0167 an evaluation: 0.017, 0.017, 0.016, and so on."""
        lines = [
            f"Ep {step // 52 + 1}, Step {step:06d}, Train: {9.5 * math.exp(-step / 180):.3f},"
            f" Val: {6.0 + 3.6 * math.exp(-step / 20) + step / 900:.3f}, Step tok/sec: 12500, Avg tok/sec: 0"
            for step in range(0, 780, 15)
        ]
        (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
        findings = found(tmp_path)
        assert {"periodic-validation", "overfitting"} & findings.keys() == {"overfitting"}
        assert "step 105 with 6.1360" in findings["overfitting"].message


class TestLinesWithoutSteps:
    """Trainer's dicts without their progress bar: the order of lines is no step."""

    def overfitted(self, folder: Path) -> Path:
        lines = []
        for epoch in range(1, 11):
            for part in range(5):
                step = 5 * (epoch - 1) + part
                loss = 3.0 + 7.5 * math.exp(-step / 3) - 0.02 * step
                lines.append(
                    f"{{'loss': {loss:.4f}, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': {step / 5}}}"
                )
            evaluated = 4.2 + 3 * math.exp(-epoch) + 0.06 * max(0, epoch - 3)
            lines.append(f"{{'eval_loss': {evaluated:.4f}, 'eval_runtime': 12.3, 'epoch': {epoch}.0}}")
        (folder / "log.txt").write_text("\n".join(lines) + "\n")
        (folder / "facts.toml").write_text("vocab_size = 50257\n")
        return folder

    def test_no_step_is_named_or_advised(self, tmp_path: Path) -> None:
        findings = found(self.overfitted(tmp_path))
        finding = findings["overfitting"]
        assert " step " not in finding.message
        assert "training line 20 of the log" in finding.message
        assert finding.actions[0].settings == {}
        assert "init-loss" not in findings
        summary = run_summary(read_run(open_run(str(tmp_path))))
        assert summary["last_step"] is None
        assert summary["best_val_step"] is None
        assert summary["best_val_loss"] == pytest.approx(4.3149)

    def test_a_mean_of_nothing_but_nan_is_printed_as_zero(self, tmp_path: Path) -> None:
        run = self.overfitted(tmp_path)
        bad = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 11.0}\n"
        (run / "log.txt").write_text((run / "log.txt").read_text() + 3 * bad)
        finding = found(run)["non-finite-loss"]
        assert "training line 51 of the log on (line 61)" in finding.message


class TestClaimsOfAPlateau:
    def test_a_loss_that_falls_is_said_to_fall(self, tmp_path: Path) -> None:
        """13 evaluations: the later half has 7, the lines have 100; what the steep start did is no answer."""
        curve = power_law(3.0, 10.9, 0.45)
        facts = {"dataset": "openwebtext", "note": "the loss has reached a plateau"}
        length = {"max_iters": 100_000, "lr_decay_iters": 100_000}
        settings = WEB | {"eval_interval": 500, "log_interval": 30} | length
        message = found(write_run(tmp_path, settings, facts, curve, last=6000))["plateau-unproven"].message
        assert curve(3000) - curve(6000) == pytest.approx(0.26, abs=0.01)
        assert "it fell by 0.25" in message
        assert "over the last 3,0" in message or "over the last 2,9" in message

    def test_a_trainer_that_evaluates_the_same_windows_has_no_noise_between_them(
        self, tmp_path: Path
    ) -> None:
        """build-nanogpt resets its loader before every evaluation: 20 batches differ by the model alone."""
        lines = []
        for step in range(0, 3001, 10):
            if step % 250 == 0:
                lines.append(f"validation loss: {web_loss(step):.4f}")
            lines.append(
                f"step {step:5d} | loss: {web_loss(step):.6f} | lr 6.0000e-04 | norm: 0.4000 | dt: 4700.00ms"
                " | tok/sec: 111550.64"
            )
        (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
        (tmp_path / "config.py").write_text("batch_size = 4\nblock_size = 1024\nn_layer = 12\nn_embd = 768\n")
        (tmp_path / "facts.toml").write_text("vocab_size = 50304\n")
        assert "noisy-eval" not in found(tmp_path)


def test_a_log_of_several_runs_says_of_which_it_speaks(tmp_path: Path) -> None:
    """A first attempt that broke, and a second one after it: the findings are the second's."""
    write_run(tmp_path, WEB, {}, lambda step: web_loss(step) if step < 500 else 8.0, last=1000)
    first = (tmp_path / "log.txt").read_text()
    assert "several-runs" not in found(tmp_path)
    write_run(tmp_path, WEB, {}, web_loss, last=1000)
    (tmp_path / "log.txt").write_text(first + (tmp_path / "log.txt").read_text())
    findings = found(tmp_path)
    assert "divergence" not in findings
    begins = len(first.splitlines()) + 3
    assert f"2 runs; the last begins at line {begins}" in findings["several-runs"].message
