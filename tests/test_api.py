"""`import gptwright`: light, without torch until it is needed, and its own examples work."""

import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import gptwright
from gptwright import api
from gptwright.errors import ConfigError
from gptwright.plan.plan import Plan, make_plan

LIGHT = """
import sys
import gptwright
assert not {"torch", "numpy", "pydantic", "rich", "gptwright.api"} & sys.modules.keys()
plan = gptwright.plan("gpt2-124m", device="RTX 4070")
assert plan.shape.count_parameters().nanogpt == 123_587_328
assert "torch" not in sys.modules
import gptwright.plan.plan, gptwright.train.run, gptwright.diagnose.engine
assert callable(gptwright.plan) and callable(gptwright.train) and callable(gptwright.diagnose)
"""


def test_the_import_is_light_and_rooms_of_the_same_name_do_not_hide_functions() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert callable(make_plan)


def test_every_name_is_typed_and_documented() -> None:
    assert set(gptwright.__all__) <= set(dir(api))
    assert set(gptwright.__all__) <= set(dir(gptwright))
    for name in gptwright.__all__:
        function = getattr(gptwright, name)
        assert function is getattr(api, name)
        assert function.__doc__
        assert "return" in inspect.get_annotations(function)
    with pytest.raises(AttributeError):
        gptwright.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_the_example_of_the_package_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is printed, with a shorter training."""
    assert gptwright.__doc__ is not None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-texts").mkdir()
    (tmp_path / "my-texts" / "a.txt").write_text("".join(f"Once there was text {n}.\n" for n in range(900)))
    lines = gptwright.__doc__.split("\n\n")[1:-1]
    example = textwrap.dedent("\n\n".join(lines))
    short = 'out_dir="out-mine", max_iters=4, lr_decay_iters=4, warmup_iters=1, eval_iters=1, n_embd=16'
    assert 'out_dir="out-mine"' in example
    exec(compile(example.replace('out_dir="out-mine"', short), "example", "exec"), {})
    assert (tmp_path / "out-mine" / "checkpoints" / "step-00000004").is_dir()

    records: list[str] = []
    longer: dict[str, Any] = {"max_iters": 6, "lr_decay_iters": 6}
    with pytest.raises(ConfigError, match="would jump"):
        gptwright.train(resume="out-mine", **longer)
    more = gptwright.train(
        resume="out-mine",
        allow_lr_jump=True,
        listen=lambda record: records.append(record["kind"]),
        **longer,
    )
    assert (more.ending, more.step) == ("finished", 6)
    assert records[0] == "resume"
    speaker = gptwright.load("out-mine", device="cpu")
    text = gptwright.generate(speaker, "Once", max_new_tokens=7, seed=1)
    assert text == gptwright.generate("out-mine", "Once", max_new_tokens=7, seed=1)
    texts = gptwright.generate(speaker, ["there", "Once", None], max_new_tokens=7, seed=1)
    assert texts[1] == text
    assert texts[2] == gptwright.generate(speaker, max_new_tokens=7, seed=1)
    assert gptwright.diagnose("out-mine").reading.evidence.log is not None
    assert gptwright.compare("out-mine", "out-mine").verdict in ("within-noise", "not-comparable")


def test_a_plan_takes_nanogpts_config_and_settings(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("n_layer = 2\nn_head = 2\nn_embd = 64\n")
    plan = gptwright.plan(tmp_path / "config.py", batch_size=3, bias=True)
    assert isinstance(plan, Plan)
    assert (plan.shape.n_embd, plan.shape.bias, plan.config.batch_size) == (64, True, 3)


def test_a_plan_of_another_trainers_config_says_what_is_not_counted(tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text("n_layer = 6\nn_head = 6\nn_embd = 384\nlr = 3e-4\nmlp_ratio = 3\n")
    plan = gptwright.plan(config, device="RTX 4070")
    assert plan.config.learning_rate == 3e-4
    assert "mlp_ratio = 3 (the width of the feed-forward" in plan.unknown[-1].missing
    with pytest.raises(ConfigError, match="unknown setting lr"):
        gptwright.train(config, max_iters=1)
