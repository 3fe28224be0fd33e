"""A corpus of hostile files: each is refused with a message, and nothing of it runs, leaves its folder or
takes memory that its header asks for."""

import ast
import json
import os
import pickle
import pickletools
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gptwright
from gptwright.config.load import load_config
from gptwright.data.dataset import open_dataset
from gptwright.data.tokenizers import load_tokenizer
from gptwright.errors import ConfigError, DataError, RunError
from gptwright.record.run import RunFolder
from gptwright.train.run import prepare_new, prepare_resume

SOURCE = Path(gptwright.__file__).parent


class Bomb:
    """What a pickle that runs a program is made from."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.path}",)


def nanogpt_folder(folder: Path, meta: bytes) -> Path:
    folder.mkdir()
    for name in ("train.bin", "val.bin"):
        np.zeros(100, dtype=np.uint16).tofile(folder / name)
    (folder / "meta.pkl").write_bytes(meta)
    return folder


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_that_runs_a_program_is_read_as_a_list_of_opcodes(tmp_path: Path, protocol: int) -> None:
    made = tmp_path / "made"
    bomb = pickle.dumps({"vocab_size": 5, "itos": Bomb(made)}, protocol)
    with pytest.raises(DataError, match=r"holds more than plain values: pickle opcode (GLOBAL|STACK_GLOBAL)"):
        open_dataset(str(nanogpt_folder(tmp_path / "data", bomb)))
    assert not made.exists()


@pytest.mark.parametrize(
    "meta",
    [
        b"\x80\x04\x8b\xff\xff\xff\x7f1.",  # a number of two gigabytes
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",  # bytes of four exbibytes
        b"\x80\x04" + b"(" * 100_000 + b"t" * 100_000 + b".",  # a hundred thousand tuples in each other
        b"\x80\x04]" + b"2" * 1000 + b".",  # values doubled on the stack
        b"I" + b"9" * 200_000 + b"\n.",  # a number that takes seconds to read
        pickletools.optimize(pickle.dumps({"vocab_size": 2**40})),
        pickle.dumps({"vocab_size": 3, "itos": {0: "a" * 10_000_000, 1: "b", 2: "c"}}),
        pickle.dumps({"vocab_size": 65536, "itos": {}}),
    ],
)
def test_pickles_that_lie_about_their_size_are_refused(tmp_path: Path, meta: bytes) -> None:
    with pytest.raises(DataError):
        open_dataset(str(nanogpt_folder(tmp_path / "data", meta)))


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.system('touch made')",
        "batch_size = __import__('os').system('touch made')",
        "batch_size = (lambda: open('made', 'w'))()",
        "batch_size = [exec('1')][0]",
        "@print\nclass A: pass",
        "n_layer = 9**9**9**9",
        "n_layer = 10**100**100",
        "out_dir = 'x' * 10**12",
        'out_dir = f\'{open("made", "w")}\'',
        "if True:\n    n_layer = 3",
        "n_layer = " + "(" * 5000 + "1" + ")" * 5000,
        "n_layer = " + "-" * 20_000 + "1",
        "n_layer = " + "1+" * 20_000 + "1",
        "a.b = 1",
        "n_layer: int = print(1)",
        "n_layer = 1 if open('made', 'w') else 2",
        "# coding: rot13\nvzcbeg bf",
        "n_layer = 5\0",
    ],
)
def test_a_python_config_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.py").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError):
        load_config(["config.py"])
    assert not (tmp_path / "made").exists()


def test_a_toml_config_names_no_command_and_nests_no_deeper_than_python(tmp_path: Path) -> None:
    for number, text in enumerate(
        [
            "hook = 'touch made'",
            "x = " + "[" * 5000,
            "a." * 5000 + "b = 1",
            "n_layer = 1e400",
            "n_layer = inf",
        ]
    ):
        path = tmp_path / f"{number}.toml"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError):
            load_config([str(path)])


def change(path: Path, *keys: Any, to: Any) -> None:
    document = json.loads(path.read_text("utf-8"))
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", "C:\\x", "a\0b", ""])
@pytest.mark.parametrize(
    "keys", [("tokenizer", "file"), ("splits", "train", "shards", 0, "file")], ids=["tokenizer", "shard"]
)
def test_names_in_a_manifest_stay_in_its_folder(
    tmp_path: Path, dataset: Path, name: str, keys: tuple[Any, ...]
) -> None:
    copy_of(dataset, tmp_path / "data")
    change(tmp_path / "data" / "manifest.json", *keys, to=name)
    with pytest.raises(DataError, match="plain file name"):
        open_dataset(str(tmp_path / "data")).tokenizer()


@pytest.mark.parametrize("tokens", [10**18, 2**63, 10**30, -1])
def test_sizes_in_a_manifest_are_compared_with_the_files(tmp_path: Path, dataset: Path, tokens: int) -> None:
    copy_of(dataset, tmp_path / "data")
    manifest = tmp_path / "data" / "manifest.json"
    change(manifest, "splits", "train", "shards", 0, "tokens", to=tokens)
    change(manifest, "splits", "train", "tokens", to=tokens)
    with pytest.raises(DataError):
        open_dataset(str(tmp_path / "data"))


@pytest.mark.parametrize("tokens", [2**31 - 1, -1, -(2**31), 601, 599])
def test_sizes_in_a_shards_header_are_compared_with_the_file(tmp_path: Path, tokens: int) -> None:
    for split in ("train", "val"):
        header = np.zeros(256, dtype="<i4")
        header[:3] = (20240520, 1, tokens)
        ids = np.zeros(600, dtype="<u2")
        (tmp_path / f"x_{split}_000000.bin").write_bytes(header.tobytes() + ids.tobytes())
    with pytest.raises(DataError, match="truncated or damaged"):
        open_dataset(str(tmp_path))


def copy_of(folder: Path, to: Path) -> None:
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())


def bpe_document() -> dict[str, Any]:
    from gptwright.data.bpe import train_bpe

    document = json.loads(train_bpe(["the words of the corpus"] * 3, 270).to_bytes())
    assert isinstance(document, dict)
    return document


def with_id(number: Any) -> bytes:
    document = bpe_document()
    document["model"]["vocab"]["zz"] = number
    return json.dumps(document).encode()


def tiktoken_lines() -> Iterator[str]:
    import base64

    for byte in range(256):
        yield f"{base64.b64encode(bytes([byte])).decode()} {byte}"


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_id(2**31),
        lambda: with_id(2**24 + 1),
        lambda: with_id(-1),
        lambda: with_id(2**64),
        lambda: b"[" * 100_000,
        lambda: b'{"schema": "gptwright.tokenizer/1", "kind": "char", "characters": "aa", "separator": true}',
        lambda: (
            b'{"schema": "gptwright.tokenizer/1", "kind": "tiktoken", "pattern": "(a+)+$", "ranks": "", '
            b'"separator": 3}'
        ),
        lambda: "\n".join([*tiktoken_lines(), "enp6 999999999999"]).encode(),
        lambda: "\n".join([*tiktoken_lines(), "enp6 4294967295"]).encode(),
        lambda: "\n".join([*tiktoken_lines(), "enp6 -5"]).encode(),
    ],
)
def test_tokenizers_of_absurd_sizes_are_refused(tmp_path: Path, make: Callable[[], bytes]) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(make())
    with pytest.raises(DataError):
        load_tokenizer(path).encode("some text")


@pytest.mark.parametrize("facts", ["[]", "{", "[" * 99_999])
def test_facts_of_a_run_that_are_none_are_refused(tmp_path: Path, tiny: dict[str, str], facts: str) -> None:
    out = tmp_path / "run"
    prepare_new(load_config([], tiny | {"out_dir": str(out)})).let_go()
    run = RunFolder(out)
    run.run_json_path.write_text(facts)
    with pytest.raises(RunError, match=r"run\.json is damaged"):
        prepare_resume(run, run.load_config())


@pytest.mark.parametrize("facts", [{"dataset": "/etc"}, {"dataset": {"folder": 5}}, {}])
def test_facts_that_do_not_name_the_dataset_name_none(tmp_path: Path, facts: dict[str, Any]) -> None:
    run = RunFolder(tmp_path)
    run.write_facts(facts)
    assert run.dataset_folder() is None


FORBIDDEN_CALLS = {
    "eval", "exec", "os.system", "os.popen", "pickle.load", "pickle.loads", "torch.load", "yaml.load",
    "marshal.loads", "shelve.open", "tarfile.open", "shutil.unpack_archive",
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_runs_or_unpacks_what_it_reads(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in FORBIDDEN_CALLS, f"line {node.lineno}"
            assert not called.endswith((".extract", ".extractall")), f"line {node.lineno}"
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert keywords.get("shell") in (None, "False"), f"line {node.lineno}"
            assert keywords.get("allow_pickle") in (None, "False"), f"line {node.lineno}"
            assert keywords.get("trust_remote_code") in (None, "False"), f"line {node.lineno}"
