"""Config files are data: literals are taken, anything else is refused with its line, nothing is executed."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptwright.config.load import load_config
from gptwright.config.nanogpt import read_python_config
from gptwright.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "config.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_literals_and_arithmetic_on_them_are_read_with_their_lines(tmp_path: Path) -> None:
    lines = [
        '"""A config."""',
        "# a comment",
        "a = 5 * 8",
        "b = -1e-3",
        'c = "x"',
        "d = True",
        "e: float = 1 / 4",
        "f = 2**10 + 1",
        "g = None",
    ]
    read = read_python_config(written(tmp_path, "\n".join(lines)))
    assert {item.name: item.value for item in read} == {
        "a": 40, "b": -1e-3, "c": "x", "d": True, "e": 0.25, "f": 1025, "g": None
    }  # fmt: skip
    assert [item.line for item in read] == [3, 4, 5, 6, 7, 8, 9]


def test_names_from_above_and_joined_text_are_read(tmp_path: Path) -> None:
    lines = ["n = 6", "m = n * 64", "a = 'out-' + str(m)", "b = f'out-{n}-{a}'", "c = str(True)"]
    read = read_python_config(written(tmp_path, "\n".join(lines)))
    assert [item.value for item in read] == [6, 384, "out-384", "out-6-out-384", "True"]


def test_several_names_of_a_line_and_whole_numbers_of_a_quotient_are_read(tmp_path: Path) -> None:
    lines = [
        "n_layer, n_head = 12, 6",
        "a = b = 3",
        "c = int(10e9 // 524288)",
        "d = round(1e4)",
        "e = max(a, n_head)",
    ]
    read = read_python_config(written(tmp_path, "\n".join(lines)))
    assert [(item.name, item.value) for item in read] == [
        ("n_layer", 12), ("n_head", 6), ("a", 3), ("b", 3), ("c", 19073), ("d", 10000), ("e", 6)
    ]  # fmt: skip
    assert {item.name for item in read if item.used} == {"a", "n_head"}


def test_a_name_whose_line_was_refused_is_not_called_code(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_python_config(written(tmp_path, "max_iters = steps()\nlr_decay_iters = max_iters\n"))
    assert "`max_iters` has no value that could be read above" in str(caught.value)


def test_a_text_that_doubles_with_every_line_is_refused(tmp_path: Path) -> None:
    lines = ["x = 'aaaaaaaa'", *["x = x + x"] * 40]
    with pytest.raises(ConfigError, match=r"config\.py:11 is not an assignment of a literal: x = x \+ x"):
        read_python_config(written(tmp_path, "\n".join(lines)))


def test_imports_and_what_has_no_effect_are_passed_over_and_said(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "import time, os.path\nimport torch\nwandb_run_name = 'ft-' + str(time.time())\nn_layer = 4\n",
    )
    loaded = load_config([str(path)])
    assert loaded.config.n_layer == 4
    assert loaded.config.wandb_run_name is None
    assert set(loaded.without_effect) == {"import time", "import os.path", "import torch"}
    assert loaded.without_effect["import time"].endswith("nothing in them is executed")


@pytest.mark.parametrize(
    "line",
    [
        "from os import system",
        "x = __import__('os').system('touch executed')",
        "x = open('executed', 'w')",
        "exec('x = 1')",
        "x = [1, 2]",
        "x = y",
        "x = 'a' + 1",
        "x = n_layer.real",
        "x = str(time.time())",
        "x = str()",
        "x = str('a', 'b')",
        "x = f'{n_layer:>9999999999}'",
        "x = f'{n_layer!r}'",
        "x = int('4')",
        "x = int(4, 2)",
        "x = min(1)",
        "x = int(time.time())",
        "x = round(1e300 * 1e300)",
        "x = 'a' * 1000000000",
        "x, y = 1, 2, 3",
        "x, y = pair",
        "x, *y = 1, 2",
        "x.y = 1",
        "x += 1",
        "x = 9**9**9",
        "x = 10**99999",
        "x = 1e40 * 1",
        "x = (-8)**0.5",
        "x = 1 / 0",
        "x = 1 if True else 2",
        "x = lambda: 1",
        "if True: x = 1",
        "def f(): pass",
        "x = True * 2",
        "x: int",
        "x = b'bytes'",
        "x = 1j",
        "x = ...",
    ],
)
def test_anything_else_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, f"n_layer = 4\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        read_python_config(path)
    assert str(caught.value).startswith(f"{path}:2 is not an assignment of a literal: {line[:20]}")
    assert not (tmp_path / "executed").exists()


def test_every_refused_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_python_config(written(tmp_path, "import time\na = 1\nb = time.time()\nc = [a]\n"))
    assert str(caught.value).startswith("2 settings cannot be used")
    assert "config.py:3" in str(caught.value)
    assert "config.py:4" in str(caught.value)


def test_an_expression_too_deep_for_the_parser_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.py:1 is not"):
        read_python_config(written(tmp_path, "x = " + "-" * 100_000 + "1\n"))


def test_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.py:2 is not valid Python"):
        read_python_config(written(tmp_path, "a = 1\nb = = 2\n"))
    (tmp_path / "config.py").write_bytes(b"a = '\xff'\n")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text: byte 5 is 0xff"):
        read_python_config(tmp_path / "config.py")


@given(st.text(max_size=60))
def test_no_text_makes_the_reader_fail_otherwise(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.py"
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            assert all(isinstance(item.name, str) for item in read_python_config(path))
        except ConfigError as error:
            assert "config.py" in str(error)  # noqa: PT017 - both outcomes are sound, a crash is not


def test_what_a_config_asks_the_machine_for_is_found_out_here_too(tmp_path: Path) -> None:
    asked = "'cuda' if torch.cuda.is_available() else 'cpu'"
    path = written(tmp_path, f"device = {asked}\ndtype = 'bfloat16' if fits() else 'float16'\nn_layer = 4\n")
    config = load_config([str(path)], {}).config
    assert (config.device, config.dtype, config.n_layer) == ("auto", "auto", 4)
    with pytest.raises(ConfigError, match="n_layer = 12 if big else 6"):
        load_config([str(written(tmp_path, "n_layer = 12 if big else 6\n"))], {})


@pytest.mark.parametrize(
    "line",
    [
        "compile = device == 'cuda'",
        "compile = not windows()",
        "compile = torch.cuda.is_available() and True",
        "device = pick_device()",
        "dtype = 'bfloat16' if torch.cuda.is_bf16_supported() else 'float16'",
    ],
)
def test_what_a_config_asks_the_machine_is_left_to_be_found_out(tmp_path: Path, line: str) -> None:
    path = tmp_path / "config.py"
    path.write_text(f"device = 'cuda' if torch.cuda.is_available() else 'cpu'\n{line}\n")
    assert read_python_config(path)[-1].value == "auto"


@pytest.mark.parametrize("line", ["dtype = torch.float16", "batch_size = pick()", "compile = windows"])
def test_a_choice_that_cannot_be_read_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "config.py"
    path.write_text(f"{line}\n")
    with pytest.raises(ConfigError, match="is not an assignment of a literal"):
        read_python_config(path)
