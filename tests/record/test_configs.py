"""Somebody's config as evidence: what it sets, where, what its comments claim, and nothing executed."""

from pathlib import Path

import pytest

from gptwright.errors import ConfigError
from gptwright.record.configs import literal, read_config_evidence
from gptwright.record.evidence import Comment, ConfigEvidence


def config(tmp_path: Path, name: str, text: str) -> ConfigEvidence:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_config_evidence(tmp_path / name)


def values(evidence: ConfigEvidence) -> dict[str, object]:
    return {name: fact.value for name, fact in evidence.settings.items()}


NANOGPT = '''"""A docstring that is no setting."""
# one consumer card, long run
import time

out_dir = 'out-web'
gradient_accumulation_steps = 4 * 8    # 16 sequences x 32 = 512 in one update
batch_size: int = 16
block_size = 2 ** 10
tokens = batch_size * block_size * gradient_accumulation_steps

# the network, about 125M weights
n_layer = 12
learning_rate = -(-1e-3)
compile = True # it is
wandb_run_name = 'run' + str(time.time())
note = "a # in a string"
betas = (0.9, 0.95)
'''


def test_a_nanogpt_config(tmp_path: Path) -> None:
    evidence = config(tmp_path, "config.py", NANOGPT)
    assert values(evidence) == {
        "out_dir": "out-web",
        "gradient_accumulation_steps": 32,
        "batch_size": 16,
        "block_size": 1024,
        "tokens": 524288,
        "n_layer": 12,
        "learning_rate": 0.001,
        "compile": True,
        "note": "a # in a string",
    }
    # the import, the call and the tuple
    assert evidence.skipped == 3
    assert evidence.comments == (
        Comment("one consumer card, long run", 2, None),
        Comment("16 sequences x 32 = 512 in one update", 6, "gradient_accumulation_steps"),
        Comment("the network, about 125M weights", 11, None),
        Comment("it is", 14, "compile"),
    )


def test_each_setting_names_its_field_and_line(tmp_path: Path) -> None:
    fact = config(tmp_path, "config.py", NANOGPT).settings["n_layer"]
    assert fact.source == "config:n_layer"
    assert fact.reason == "config.py:12"


def test_the_last_assignment_counts(tmp_path: Path) -> None:
    fact = config(tmp_path, "config.py", "n_layer = 6\nn_layer = 12\n").settings["n_layer"]
    assert (fact.value, fact.reason) == (12, "config.py:2")


def test_nothing_is_executed(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    code = f"open({str(marker)!r}, 'w')\nx = open({str(marker)!r}, 'w')\nbatch_size = 4\n"
    evidence = config(tmp_path, "config.py", code)
    assert values(evidence) == {"batch_size": 4}
    assert evidence.skipped == 2
    assert not marker.exists()


def test_names_of_other_trainers_are_known_under_nanogpts_too(tmp_path: Path) -> None:
    evidence = config(tmp_path, "config.py", "dim = 288\nn_layers = 6\nn_heads = 6\nmax_seq_len = 256\n")
    assert values(evidence)["n_embd"] == 288
    assert values(evidence)["block_size"] == 256
    assert evidence.settings["n_embd"].source == "config:dim"


@pytest.mark.parametrize("power", ["9**9**9", "2**1000", "10**-400", "1/0", "'a' * 9", "-'a'", "1 + True"])
def test_arithmetic_that_is_none_is_skipped(tmp_path: Path, power: str) -> None:
    evidence = config(tmp_path, "config.py", f"x = {power}\ny = 1\n")
    assert values(evidence) == {"y": 1}
    assert evidence.skipped == 1


TOML = """# the whole run
batch_size = 16  # micro-batch
note = "a # in a string" # a comment
text = '''
# no comment
'''
path = 'C:\\' # literal strings have no escapes
[training]
"steps" = 4000
lr = 3e-4
betas = [0.9, 0.95]
"""


def test_a_toml_config(tmp_path: Path) -> None:
    evidence = config(tmp_path, "config.toml", TOML)
    assert values(evidence) == {
        "batch_size": 16,
        "note": "a # in a string",
        "text": "# no comment\n",
        "path": "C:\\",
        "steps": 4000,
        "max_iters": 4000,
        "lr": 3e-4,
        "learning_rate": 3e-4,
    }
    assert evidence.skipped == 1
    assert evidence.comments == (
        Comment("the whole run", 1, None),
        Comment("micro-batch", 2, "batch_size"),
        Comment("a comment", 3, "note"),
        Comment("literal strings have no escapes", 7, "path"),
    )
    assert evidence.settings["steps"].reason == "config.toml:9"


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_bytes(b"\xef\xbb\xbfn_layer = 6\r\nn_head = 6\r\n")
    assert values(read_config_evidence(tmp_path / "config.py")) == {"n_layer": 6, "n_head": 6}


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("config.py", b"n_layer = = 6", r"config\.py:1 is not valid Python"),
        ("config.toml", b"n_layer 6", r"config\.toml is not valid TOML"),
        ("config.py", b"x = '\xff'", r"config\.py is not UTF-8 text: invalid start byte at byte 5"),
        ("config.yaml", b"x: 1", r"config\.yaml is neither a \.toml nor a \.py file"),
        ("config.py", b"#" * (1 << 20) + b"##", r"config\.py is larger than 1 MiB"),
        ("config.py", b"x = " + b"(" * 300 + b"1" + b")" * 300, "is not valid Python"),
    ],
)
def test_what_is_no_config_is_refused(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=problem):
        read_config_evidence(tmp_path / name)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_config_evidence(tmp_path / "config.py")


@pytest.mark.parametrize(("text", "value"), [("5 * 8", 40), ("'x'", "x"), ("None", None), (" -1e-3 ", -1e-3)])
def test_literals(text: str, value: object) -> None:
    assert literal(text) == value


@pytest.mark.parametrize("text", ["name", "f()", "[1]", "1 +", "(" * 1_000, "1/0", "x := 1"])
def test_no_literals(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        literal(text)


SHAPE = {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "batch_size": 64, "learning_rate": 1e-3}


@pytest.mark.parametrize(
    "text",
    [
        f"config = dict({', '.join(f'{name}={value}' for name, value in SHAPE.items())})\n",
        f"GPT_CONFIG = {SHAPE}\n",
        "CONFIG = {'model': {'n_layer': 6, 'n_heads': 6, 'emb_dim': 384, 'context_length': 256},\n"
        "          'train': {'batch_size': 64, 'lr': 1e-3}}\n",
        "@dataclass\nclass GPTConfig:\n    n_layer: int = 6\n    n_head: int = 6\n    n_embd: int = 384\n"
        "    block_size: int = 256\nbatch_size = 64\nlearning_rate = 1e-3\n",
        "N_LAYER = 6\nN_HEAD = 6\nN_EMBD = 384\nBLOCK_SIZE = 256\nBATCH_SIZE = 64\nLEARNING_RATE = 1e-3\n",
        "batch_size = 64\nlr = 1e-3\nargs = GPTConfig(n_layer=6, n_head=6, n_embd=64 * 6, block_size=256)\n",
    ],
)
def test_settings_in_a_dict_a_dataclass_or_capitals(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.py"
    path.write_text(text)
    settings = read_config_evidence(path).settings
    assert {name: settings[name].value for name in SHAPE} == SHAPE


@pytest.mark.parametrize(
    "text",
    ["scheduler = cosine(steps=5000, lr=0.1)\n", "class Net:\n    n_layer = 12\n", "x = [dict(n_layer=3)]\n"],
)
def test_what_holds_no_settings_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.py"
    path.write_text(text)
    assert not read_config_evidence(path).settings
