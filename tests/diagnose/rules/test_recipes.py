"""A recipe that no public run had on this data is not held against those of another."""

import json
from pathlib import Path

import pytest

from gptwright.diagnose.engine import diagnose
from gptwright.diagnose.reading import read_run
from gptwright.record.open_run import open_run

CONFIG = """
dataset = "shakespeare_char"
n_layer = 4
n_head = 4
n_embd = 128
block_size = 64
batch_size = 12
gradient_accumulation_steps = 1
"""


def found(folder: Path, *, recipe: str, val_loss: float) -> set[str]:
    """What is said of 300 steps that end at a validation loss."""
    start = {"v": 1, "kind": "start", "time": 1.0, "step": 0, "tokens_per_step": 768, "vocab_size": 65}
    lines = [start | {"device": "AMD EPYC", "dtype": "float32", "max_iters": 300}]
    for step in range(301):
        loss = val_loss + (4.17 - val_loss) * (1 - step / 300) ** 3
        if step % 100 == 0:
            evaluation = {"v": 1, "kind": "eval", "time": 2.0, "step": step, "seconds": 0.5}
            lines.append(evaluation | {"train_loss": loss - 0.05, "val_loss": loss})
        lines.append({"v": 1, "kind": "train", "time": 2.0, "step": step, "loss": loss, "seconds": 0.05})
    (folder / "config.toml").write_text(CONFIG + recipe)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {finding.id for finding in diagnose(read_run(open_run(str(folder)))).findings}


@pytest.mark.parametrize(
    ("recipe", "val_loss", "suspect"),
    [
        ("", 1.84, True),  # nanoGPT's model with AdamW is at 2.4 after so few steps
        ('arch = "modern"\noptimizer = "muon"\n', 1.84, False),
        ('optimizer = "muon"\n', 1.84, False),
        ('arch = "modern"\noptimizer = "muon"\n', 1.2, True),  # below all that is known of this text
    ],
)
def test_a_new_recipe_may_be_better(tmp_path: Path, recipe: str, val_loss: float, suspect: bool) -> None:
    assert ("below-reference" in found(tmp_path, recipe=recipe, val_loss=val_loss)) is suspect
