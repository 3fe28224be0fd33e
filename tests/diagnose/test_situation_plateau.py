"""The loss has reached a plateau: what is wrong?"""

from pathlib import Path

import pytest

from tests.diagnose.situations import WIDE, Cli, diagnosis, one, plan, text_of, web_run, write_config


class TestPlateau:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        folder = web_run(tmp_path / "run", narrow=True, last=14_500)
        log = folder / "log.txt"
        where = "W0612 10:00:00.000000 1 torch/_inductor/utils.py:1250]"
        warning = f"{where} Not enough SMs to use max_autotune_gemm mode\n"
        log.write_text("number of parameters: 40.56M\n" + warning + log.read_text())
        return folder

    def test_the_label_is_false(self, gptwright: Cli, run: Path) -> None:
        found = one(diagnosis(gptwright, run), "size-label-mismatch")
        assert "125M" in text_of(found)
        assert "40.56M" in text_of(found)

    def test_the_model_is_full(self, gptwright: Cli, run: Path) -> None:
        document = diagnosis(gptwright, run)
        found = one(document, "capacity-limited")
        assert document["run"]["tokens_per_parameter"] == pytest.approx(187, rel=0.01)
        values = {e["name"]: e["value"] for e in found["evidence"]}
        assert 0.9 < values["capacity_term"] < 1.2
        assert values["data_term"] < 0.6 * values["capacity_term"]

    def test_validation_below_training_is_the_split(self, gptwright: Cli, run: Path) -> None:
        document = diagnosis(gptwright, run)
        found = one(document, "val-below-train")
        assert "split" in found["causes"][0]["text"]
        assert not any("dropout" in cause["text"] for cause in found["causes"])
        lifted = one(document, "dropout-in-train-loss")
        offset = next(e["value"] for e in lifted["evidence"] if e["name"] == "offset")
        assert offset == pytest.approx(0.09, abs=0.03)
        assert "5600" in text_of(one(document, "small-val-split"))

    def test_the_mfu_is_not_low(self, gptwright: Cli, run: Path) -> None:
        document = diagnosis(gptwright, run)
        assert document["run"]["mfu"] == pytest.approx(0.69, abs=0.01)
        assert "low-mfu" not in {f["id"] for f in document["findings"]}
        assert one(document, "eval-in-timing")

    def test_the_warning_is_harmless(self, gptwright: Cli, run: Path) -> None:
        found = one(diagnosis(gptwright, run), "known-warning")
        assert "harmless" in found["message"]
        assert "68" in found["message"]

    def test_a_claimed_plateau_is_not_proven_while_the_rate_decays(
        self, gptwright: Cli, tmp_path: Path
    ) -> None:
        folder = web_run(tmp_path / "claimed", narrow=True, last=14_500, note="my loss has reached a plateau")
        found = one(diagnosis(gptwright, folder), "plateau-unproven")
        assert "decays until step 20000" in text_of(found)

    def test_width_768_fits_in_smaller_micro_batches_at_the_same_step(
        self, gptwright: Cli, run: Path
    ) -> None:
        config = run / "config.py"
        options = ["--n_embd=768", "--device", "RTX 4070", "--tokens_per_step=524288", "--batch_size=8"]
        (run / "wide.py").write_text(
            "\n".join(line for line in config.read_text().splitlines() if "gradient_accumulation" not in line)
        )
        for micro_batch, accumulation in ((8, 64), (4, 128)):
            options[-1] = f"--batch_size={micro_batch}"
            document = plan(gptwright, run / "wide.py", *options)
            assert document["batch"]["gradient_accumulation_steps"] == accumulation
            assert document["batch"]["tokens_per_step"] == 524_288
            assert document["memory"]["fits"] is True

    def test_three_by_step_ten_thousand_is_too_good(self, gptwright: Cli, tmp_path: Path) -> None:
        folder = tmp_path / "wide"
        folder.mkdir()
        write_config(folder / "config.py", WIDE | {"max_iters": 10_000, "lr_decay_iters": 10_000})
        loss = plan(gptwright, folder / "config.py", "--device", "RTX 4070")["loss"]
        assert loss["low"] > 3.2
        assert loss["high"] >= 3.3581

    def test_a_new_width_cannot_continue_the_checkpoint(self, gptwright: Cli, run: Path) -> None:
        actions = one(diagnosis(gptwright, run), "capacity-limited")["actions"]
        assert actions[0]["set"]["n_embd"] == 768
        assert "checkpoint cannot be carried over" in actions[0]["text"]
