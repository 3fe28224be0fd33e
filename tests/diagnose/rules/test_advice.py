"""What a finding advises must help: for this data, this device, this dropout, this plan."""

from pathlib import Path
from typing import Any

import pytest

from gptwright.diagnose.forecast import forecast_run
from gptwright.diagnose.reading import read_run
from gptwright.record.open_run import open_run
from tests.diagnose.rules.nanogpt_run import CHARACTERS, WEB, Curve, found, power_law, web_loss, write_run

SHAKESPEARE = {"train_tokens": 1_003_854}


def characters(step: float) -> float:
    return power_law(0.6, 4.2, 0.45)(step)


def turned(step: float) -> float:
    """Validation that is best at 1,750 and rises."""
    return characters(step) + 0.1 + 0.35 * max(0.0, step - 1750) / 1000


def options(folder: Path) -> dict[str, tuple[float, float]]:
    forecast = forecast_run(read_run(open_run(str(folder))))
    return {option.text: option.gain for option in forecast.options} if forecast is not None else {}


class TestLength:
    def test_no_length_is_advised_beyond_what_the_data_carries(self, tmp_path: Path) -> None:
        # 20 tokens for each of 10.65M parameters would be 212 passes over a million characters.
        run = write_run(tmp_path, CHARACTERS, SHAKESPEARE, characters, last=1000, vocab_size=65)
        action = found(run)["long-plan"].actions[0]
        assert action.settings["max_iters"] == round(16 * 1_003_854 / 16_384) == 980
        assert "16 passes" in action.text

    def test_a_run_that_has_passed_a_sensible_length_is_to_let_its_rate_decay(self, tmp_path: Path) -> None:
        settings = WEB | {"max_iters": 600_000, "lr_decay_iters": 600_000, "log_interval": 250}
        action = found(write_run(tmp_path, settings, {}, web_loss, last=20_000))["long-plan"].actions[0]
        assert "has passed the 5,029 steps that are 20 tokens per parameter" in action.text
        assert action.settings == {"max_iters": 25_000, "lr_decay_iters": 25_000}

    def test_overfitting_says_where_to_stop_and_nothing_else_does(self, tmp_path: Path) -> None:
        run = write_run(tmp_path, CHARACTERS, SHAKESPEARE, characters, val=turned, vocab_size=65)
        findings = found(run)
        assert findings["overfitting"].actions[0].settings["max_iters"] == 1750
        assert findings["long-plan"].actions == ()
        # Its passes were made, and one finding warns of them.
        severities = findings["long-plan"].severity, findings["many-epochs"].severity
        assert severities == ("info", "warning")

    def test_dropout_is_advised_only_where_there_is_less(self, tmp_path: Path) -> None:
        for dropout, advised in ((0.0, {"dropout": 0.2}), (0.2, {}), (0.4, {})):
            settings = CHARACTERS | {"dropout": dropout}
            folder = tmp_path / str(dropout)
            write_run(folder, settings, SHAKESPEARE, characters, val=turned, vocab_size=65)
            assert found(folder)["overfitting"].actions[1].settings == advised

    def test_dropout_is_not_advised_for_a_trainer_that_has_none(self, tmp_path: Path) -> None:
        lines = []
        for step in range(0, 4000, 10):
            loss = characters(step)
            lines.append(
                f"step {step:5d} | loss: {loss:.6f} | lr 6.0000e-04 | norm: 0.3000 | dt: 100.00ms"
                " | tok/sec: 163840.00"
            )
            if step % 200 == 0:
                lines.append(f"validation loss: {turned(step):.4f}")
        (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
        text = found(tmp_path)["overfitting"].actions[1]
        assert text.settings == {}
        assert text.text.endswith("The model of build-nanogpt has no dropout.")

    def test_an_undertrained_run_on_little_text_needs_text(self, tmp_path: Path) -> None:
        settings = CHARACTERS | {"max_iters": 240, "lr_decay_iters": 240, "eval_interval": 60}
        action = found(write_run(tmp_path, settings, SHAKESPEARE, characters, vocab_size=65))["undertrained"]
        assert action.actions[0].settings["max_iters"] == 980

    def test_what_takes_weeks_in_any_length_needs_a_smaller_model(self, tmp_path: Path) -> None:
        run = write_run(tmp_path, WEB, {}, web_loss, last=100, tflops=0.2)
        actions = found(run)["long-plan"].actions
        assert "smaller model" in actions[0].text
        assert not actions[0].settings

    def test_a_run_on_its_way_is_not_told_to_plan_less_than_it_has(self, tmp_path: Path) -> None:
        finding = found(write_run(tmp_path, WEB, {}, web_loss, last=2000))["still-improving"]
        assert "at step 2,000" in finding.message
        assert finding.actions[0].settings == {}
        assert "5,000 steps are planned" in finding.actions[0].text

    def test_a_finished_run_is_told_how_long(self, tmp_path: Path) -> None:
        action = found(write_run(tmp_path, WEB, {}, web_loss))["still-improving"].actions[0]
        assert action.settings == {"max_iters": 7500, "lr_decay_iters": 7500}

    def test_many_passes_are_memorization_only_when_they_are_many(self, tmp_path: Path) -> None:
        settings = CHARACTERS | {"max_iters": 370, "lr_decay_iters": 370, "eval_interval": 60}
        message = found(write_run(tmp_path, settings, SHAKESPEARE, characters, vocab_size=65))["many-epochs"]
        assert "6.0 passes" in message.message
        assert "begins to measure memorization" in message.message


class TestOddShape:
    @pytest.mark.parametrize(
        ("layers", "width", "heads", "advised"),
        [
            # 48 × 64² × 12 parameters in blocks are 3 layers of 256.
            (48, 64, 8, {"n_layer": 3, "n_embd": 256, "n_head": 4}),
            (1, 1024, 16, {"n_layer": 7, "n_embd": 384, "n_head": 6}),
            # Depth and width are as usual: only the heads are advised.
            (12, 768, 96, {"n_head": 12}),
            (6, 384, 1, {"n_head": 6}),
            # A prime divides into heads of 1 channel or into one head.
            (12, 769, 1, {"n_embd": 768, "n_head": 12}),
        ],
    )
    def test_the_advised_shape_is_usual_and_as_large(
        self, tmp_path: Path, layers: int, width: int, heads: int, advised: dict[str, int]
    ) -> None:
        settings = WEB | {"n_layer": layers, "n_embd": width, "n_head": heads}
        action = found(write_run(tmp_path, settings, {}, web_loss, last=500))["odd-shape"].actions[0]
        assert action.settings == advised
        shape = {"n_layer": layers, "n_embd": width} | advised
        assert shape["n_layer"] * shape["n_embd"] ** 2 == pytest.approx(layers * width**2, rel=0.1)


class TestDevices:
    def low_mfu(self, folder: Path, device: str, **settings: Any) -> Any:
        run = WEB | {"batch_size": 4, "gradient_accumulation_steps": 32} | settings
        return found(write_run(folder, run, {"device": device}, web_loss, last=600, tflops=2.0))

    def test_pascal_neither_compiles_nor_gains_from_16_bits(self, tmp_path: Path) -> None:
        for device in ("GTX 1080 Ti", "TITAN Xp", "P100"):
            finding = self.low_mfu(tmp_path / device, device, compile=False, dtype="float32")["low-mfu"]
            assert not any({"compile", "dtype"} & action.settings.keys() for action in finding.actions)
            assert "compiled" not in finding.message

    def test_ampere_does(self, tmp_path: Path) -> None:
        finding = self.low_mfu(tmp_path, "RTX 3090", compile=False, dtype="float32")["low-mfu"]
        advised = {name for action in finding.actions for name in action.settings}
        assert {"compile", "dtype"} <= advised

    def test_emulated_bfloat16_is_held_against_what_the_card_could_do(self, tmp_path: Path) -> None:
        findings = self.low_mfu(tmp_path, "T4", dtype="bfloat16")
        assert {"bf16-emulated", "mfu-basis", "low-mfu"} <= findings.keys()
        assert "65.1 TFLOP/s" in findings["mfu-basis"].message
        assert "emulates" in findings["low-mfu"].causes[0].text

    def test_float16_on_a_p100_has_a_basis_and_is_never_impossible(self, tmp_path: Path) -> None:
        run = WEB | {"batch_size": 4, "gradient_accumulation_steps": 32, "dtype": "float16"}
        for tflops in (4.0, 14.0):
            folder = tmp_path / str(tflops)
            write_run(folder, run, {"device": "P100"}, web_loss, last=600, tflops=tflops)
            assert "impossible-throughput" not in found(folder)
            assert "mfu-basis" in found(folder)

    @pytest.mark.parametrize("device", ["RTX 3090", "RTX 4060"])
    def test_a_larger_micro_batch_is_the_same_step_and_fits(self, tmp_path: Path, device: str) -> None:
        settings = {"batch_size": 3, "gradient_accumulation_steps": 7, "compile": False}
        finding = self.low_mfu(tmp_path, device, **settings)["low-mfu"]
        cuts = [action.settings for action in finding.actions if "batch_size" in action.settings]
        assert all(c["batch_size"] * c["gradient_accumulation_steps"] == 21 for c in cuts)
        assert [c["batch_size"] for c in cuts] == ([7] if device == "RTX 3090" else [])


class TestPromises:
    def test_a_stuck_run_is_promised_nothing(self, tmp_path: Path) -> None:
        run = write_run(tmp_path, WEB, {}, lambda step: 7.8 + 3.0 * (step + 1) ** -0.6)
        assert "stuck-loss" in found(run)
        assert options(run) == {}

    def test_laws_of_web_text_promise_nothing_for_characters(self, tmp_path: Path) -> None:
        settings = CHARACTERS | {"max_iters": 200, "lr_decay_iters": 200, "eval_interval": 10}
        run = write_run(tmp_path, settings, SHAKESPEARE, characters, vocab_size=65)
        assert "twice the parameters for the same tokens" not in options(run)

    @pytest.mark.parametrize(("floor", "nats"), [(3.3, True), (1.0, False)])
    def test_nor_for_text_with_another_loss(self, tmp_path: Path, floor: float, nats: bool) -> None:
        # Children's stories end near 1.1: the law's cost of size alone is larger than that.
        shape = {"n_layer": 6, "n_embd": 256, "n_head": 4, "gradient_accumulation_steps": 80}
        run = write_run(tmp_path, WEB | shape, {}, power_law(floor, 10.8, 0.9))
        message = found(run)["capacity-limited"].message
        assert ("nats" in message) is nats
        assert ("twice the parameters for the same tokens" in options(run)) is nats

    def test_a_run_that_never_took_a_step_is_not_full(self, tmp_path: Path) -> None:
        run = write_run(tmp_path, WEB | {"max_iters": 600_000}, {}, web_loss, last=10)
        lines = (run / "log.txt").read_text().splitlines()[:2]
        error = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB."
        (run / "log.txt").write_text("\n".join([*lines, error]) + "\n")
        assert "out-of-memory" in found(run)
        assert "capacity-limited" not in found(run)

    def test_a_short_stretch_late_in_a_run_carries_no_forecast(self, tmp_path: Path) -> None:
        settings = WEB | {"max_iters": 600_000, "lr_decay_iters": 600_000, "eval_interval": 10**9}
        run = write_run(tmp_path, settings, {}, web_loss, first=351_000, last=351_590)
        assert forecast_run(read_run(open_run(str(run)))) is None

    def test_a_warm_up_does_not_tell_by_how_much_more_helps(self, tmp_path: Path) -> None:
        settings = WEB | {"warmup_iters": 700, "eval_interval": 100}
        message = found(write_run(tmp_path, settings, {}, web_loss, last=1300))["still-improving"].message
        assert "most of the 1,300 steps are warm-up" in message
        assert "nats" not in message
        assert "half as many steps again" not in options(tmp_path)
        message = found(write_run(tmp_path, settings, {}, web_loss, last=1500))["still-improving"].message
        assert "half as many steps again would lower it by" in message

    def test_training_loss_over_text_known_by_heart_is_no_progress(self, tmp_path: Path) -> None:
        settings = CHARACTERS | {"eval_interval": 10**9}
        run = write_run(tmp_path, settings, SHAKESPEARE, characters, vocab_size=65)
        assert "still-improving" not in found(run)
        fresh = {"train_tokens": 10**9}
        assert "still-improving" in found(write_run(tmp_path, settings, fresh, characters, vocab_size=65))

    def test_a_validation_that_leaks_is_not_improving(self, tmp_path: Path) -> None:
        leaking: Curve = power_law(0.7, 4.2, 0.5)
        run = write_run(tmp_path, CHARACTERS, SHAKESPEARE, leaking, val=leaking, vocab_size=65)
        assert "below-reference" in found(run)
        assert "still-improving" not in found(run)


class TestFailures:
    HEADER = "tokens per iteration will be: 491,520\nnumber of parameters: 123.59M\n"

    def out_of_memory(self, folder: Path, device: str, gib: float, **settings: Any) -> Any:
        write_run(folder, WEB | settings, {"device": device}, web_loss, last=100)
        error = (
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.30 GiB. GPU 0 has a total"
            f" capacity of {gib} GiB of which 1.02 GiB is free.\n"
        )
        (folder / "log.txt").write_text(self.HEADER + error)
        return found(folder)["out-of-memory"].actions

    def test_what_should_fit_is_not_cut(self, tmp_path: Path) -> None:
        (action,) = self.out_of_memory(tmp_path, "RTX 4090", 23.6)
        assert "another process" in action.text

    def test_what_never_fits_is_said(self, tmp_path: Path) -> None:
        large = {"n_layer": 48, "n_embd": 1600, "n_head": 25, "batch_size": 1}
        (action,) = self.out_of_memory(tmp_path, "RTX 4060", 7.6, **large)
        assert "smaller model" in action.text

    def test_no_compiler_is_advised_for_a_card_without_one(self, tmp_path: Path) -> None:
        (action,) = self.out_of_memory(tmp_path, "GTX 1080 Ti", 10.9, dtype="float32", compile=False)
        assert action.settings["compile"] is False
        assert 480 % action.settings["batch_size"] == 0

    def test_an_absurd_plan_is_not_one_to_go_on_with(self, tmp_path: Path) -> None:
        settings = WEB | {"max_iters": 600_000, "lr_decay_iters": 600_000}
        findings = found(write_run(tmp_path, settings, {}, web_loss, last=2000))
        assert "long-plan" in findings
        assert findings["still-improving"].actions == ()

    def test_a_constant_rate_proves_no_plateau(self, tmp_path: Path) -> None:
        note = {"note": "the loss has been flat for 2000 steps, has it converged?"}
        run = write_run(tmp_path, WEB | {"decay_lr": False}, note, power_law(3.5, 10.8, 3.0))
        assert "constant" in found(run)["plateau-unproven"].message

    def test_a_validation_that_never_fell_has_no_step_to_stop_at(self, tmp_path: Path) -> None:
        run = write_run(
            tmp_path, WEB, {"train_tokens": 10**6}, power_law(0.01, 10.8, 1.5), val=lambda s: 10.8 + s / 2000
        )
        action = found(run)["overfitting"].actions[0]
        assert action.settings == {}
        assert "never fell" in action.text

    def test_a_stuck_run_is_not_told_to_go_on(self, tmp_path: Path) -> None:
        small = WEB | {"batch_size": 3, "gradient_accumulation_steps": 5}
        findings = found(write_run(tmp_path, small, {}, lambda step: 7.6 + 3.2 * (step + 1) ** -0.6))
        assert findings["stuck-loss"].causes[0].confidence == "likely"
        assert {"small-batch-for-lr", "stuck-loss"} <= findings.keys()
        assert "undertrained" not in findings

    def test_a_small_batch_that_trained_all_the_same_is_no_warning(self, tmp_path: Path) -> None:
        """GPT-2's shape on 12,288 tokens a step at 1e-3: the loss went to 3 all the same."""
        small = WEB | {"batch_size": 12, "gradient_accumulation_steps": 1, "learning_rate": 1e-3}
        trained = found(write_run(tmp_path / "trained", small, {}, power_law(3.0, 10.8, 1.5)))
        assert trained["small-batch-for-lr"].severity == "info"
        assert "The loss fell all the same" in trained["small-batch-for-lr"].message
        held = found(write_run(tmp_path / "held", small, {}, lambda step: 6.1 + 4.7 * (step + 1) ** -0.6))
        assert held["small-batch-for-lr"].severity == "warning"

    def test_a_small_model_takes_a_higher_rate(self, tmp_path: Path) -> None:
        """6.8M on half a billion tokens: 1e-3 for 16,384 tokens a step is what such runs use, 1e-2 is not."""
        small = WEB | {
            "n_layer": 6,
            "n_head": 8,
            "n_embd": 256,
            "block_size": 512,
            "batch_size": 32,
            "gradient_accumulation_steps": 1,
            "max_iters": 30_000,
            "lr_decay_iters": 30_000,
            "learning_rate": 1e-3,
        }
        run = write_run(tmp_path / "usual", small, {}, web_loss, last=2000, vocab_size=8192)
        assert "small-batch-for-lr" not in found(run)
        tiny = small | {"learning_rate": 1e-2, "batch_size": 2}
        run = write_run(tmp_path / "high", tiny, {}, web_loss, last=2000, vocab_size=8192)
        assert "small-batch-for-lr" in found(run)

    def test_a_rate_far_below_the_characters_recipe_is_named(self, tmp_path: Path) -> None:
        slow = CHARACTERS | {"learning_rate": 1e-5, "min_lr": 1e-6}
        facts = {"dataset": "shakespeare_char", "train_tokens": 1_003_854}
        run = write_run(tmp_path, slow, facts, power_law(2.45, 4.2, 1.0), vocab_size=65)
        above = found(run)["above-reference"]
        assert "1/100 of the 0.001" in above.causes[0].text
        assert above.actions[0].settings == {"learning_rate": 0.001}
