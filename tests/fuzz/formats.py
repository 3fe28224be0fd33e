"""Every format that is read and is no log: a whole file of it, and what reading it is.

A `Format` makes its files once in a folder of its own; `read` reads what lies there, deep enough that
whatever is believed of the files is used: a dataset is verified and a batch drawn, a tokenizer encodes and
decodes, a checkpoint is put into a model.
"""

import hashlib
import json
import pickle
import random
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.load import load_config
from gptwright.config.schema import TrainConfig
from gptwright.data.bpe import train_bpe
from gptwright.data.characters import ByteTokenizer, CharTokenizer
from gptwright.data.dataset import TokenDataset, open_dataset
from gptwright.data.headed import HEADER_BYTES
from gptwright.data.prepare import prepare
from gptwright.data.sampling import WindowSampler
from gptwright.data.tokenizers import load_tokenizer
from gptwright.model.gpt import GPT
from gptwright.optim.optimizers import build_optimizer
from gptwright.record.configs import read_config_evidence
from gptwright.record.metrics import read_metrics
from gptwright.record.run import RunFolder
from gptwright.train.checkpoint import (
    Checkpointed,
    CheckpointInfo,
    fixed_settings,
    load_checkpoint,
    take_snapshot,
    write_checkpoint,
)
from gptwright.train.choose import choose_checkpoint
from gptwright.train.state import TrainState
from tests.fuzz.damage import damaged

TEXT = "".join(f"the {n} words of a small corpus, {n % 7} and {n % 11}.\n" for n in range(60))


class Format(ABC):
    """A format in a folder of its own.

    Attributes:
        name: of the format.
        folder: where its files are.
        targets: the files that are damaged, one at a time.
    """

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.name
        self.folder.mkdir(parents=True)
        self.make()
        self.targets = self.files()
        self.whole = {path: path.read_bytes() for path in self.targets}
        self.read()

    @abstractmethod
    def make(self) -> None:
        """Writes whole files."""

    def files(self) -> list[Path]:
        """The files to damage."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    @abstractmethod
    def read(self) -> None:
        """Reads the files, with all that is done with them."""

    def damage(self, rng: random.Random) -> Path:
        """Damages one file."""
        path = rng.choice(self.targets)
        path.write_bytes(damaged(self.whole[path], self.whole[rng.choice(self.targets)], rng))
        return path

    def mend(self, path: Path) -> None:
        """Puts a whole file back."""
        path.write_bytes(self.whole[path])


class Toml(Format):
    """A config as TOML, as a person's and as evidence."""

    name = "config.toml"

    def make(self) -> None:
        (self.folder / "config.toml").write_text(
            'dataset = "words"  # a name\nn_layer = 6\nlearning_rate = 1e-3\ncompile = "auto"\nbias = false\n'
            "tokens_per_step = 491_520\n[facts]\nnote = '''two\nlines'''\n"
        )

    def read(self) -> None:
        path = self.targets[0] if hasattr(self, "targets") else self.folder / "config.toml"
        read_config_evidence(path)
        if b"[facts]" not in path.read_bytes():
            load_config([str(path)])


class Python(Format):
    """A config as nanoGPT writes it."""

    name = "config.py"

    def make(self) -> None:
        (self.folder / "config.py").write_text(
            '"""A run."""\n# 124M\nbatch_size = 12\nblock_size = 1024\nmax_iters = 5 * 1000\nbias = False\n'
            'learning_rate: float = 6e-4\nout_dir = "out-" "x"\ndropout = -0.0 + 1/10\n'
        )

    def read(self) -> None:
        path = self.folder / "config.py"
        read_config_evidence(path)
        load_config([str(path)])


def use_dataset(folder: Path) -> None:
    """What training, `inspect --verify` and `sample` do with a dataset."""
    dataset = open_dataset(str(folder))
    _draw(dataset)
    assert dataset.fingerprint
    dataset.verify()
    if dataset.tokenizer_kind != "unknown":
        dataset.tokenizer().decode([0, 1])


def _draw(dataset: TokenDataset) -> None:
    sampler = WindowSampler(
        dataset.splits["train"], block_size=8, sequences_per_step=4, seed=1, mode="epoch", vocab_limit=None
    )
    sampler.batch(3)


class HuggingFace(Format):
    """A GPT-2's config.json."""

    name = "hugging-face"

    def make(self) -> None:
        content = {"model_type": "gpt2", "n_embd": 48, "n_head": 4, "n_layer": 2, "n_positions": 64}
        more = {"vocab_size": 257, "resid_pdrop": 0.1, "tie_word_embeddings": True, "bos": [1, {"a": None}]}
        (self.folder / "config.json").write_text(json.dumps(content | more, indent=2))

    def read(self) -> None:
        load_config([str(self.folder / "config.json")])


class Dataset(Format):
    """A dataset of ours: manifest, tokenizer, shards, meta.pkl."""

    name = "dataset"

    def make(self) -> None:
        (self.folder / "corpus.txt").write_text(TEXT)
        prepare(str(self.folder / "corpus.txt"), out=self.folder / "words", tokenizer="char")

    def files(self) -> list[Path]:
        words = self.folder / "words"
        # The manifest is what is believed most, so it is damaged most.
        return [words / "manifest.json"] * 4 + sorted(words.iterdir())

    def read(self) -> None:
        use_dataset(self.folder / "words")


class NanoGpt(Format):
    """A data/NAME folder of nanoGPT with its pickle."""

    name = "nanogpt"

    def make(self) -> None:
        characters = sorted(set(TEXT))
        ids = np.array([characters.index(character) for character in TEXT], dtype=np.uint16)
        ids[:-400].tofile(self.folder / "train.bin")
        ids[-400:].tofile(self.folder / "val.bin")
        meta = {
            "vocab_size": len(characters),
            "itos": dict(enumerate(characters)),
            "stoi": {character: number for number, character in enumerate(characters)},
        }
        for protocol, name in ((4, "meta.pkl"),):
            (self.folder / name).write_bytes(pickle.dumps(meta, protocol))

    def files(self) -> list[Path]:
        return [self.folder / "meta.pkl"] * 3 + [self.folder / "train.bin", self.folder / "val.bin"]

    def read(self) -> None:
        use_dataset(self.folder)


class Headed(Format):
    """Shards with llm.c's header."""

    name = "headed"

    def make(self) -> None:
        ids = np.random.default_rng(1).integers(0, 50257, 600).astype("<u2")
        for split in ("train", "val"):
            header = np.zeros(HEADER_BYTES // 4, dtype="<i4")
            header[:3] = (20240520, 1, len(ids))
            (self.folder / f"text_{split}_000000.bin").write_bytes(header.tobytes() + ids.tobytes())

    def damage(self, rng: random.Random) -> Path:
        """Half the damages fall into the header's three numbers."""
        if rng.random() < 0.5:
            return super().damage(rng)
        path = rng.choice(self.targets)
        number = rng.choice((0, 1, 7, -1, 600, 601, 2**31 - 1, -(2**31), 20240801, 20240520))
        content = bytearray(self.whole[path])
        place = 4 * rng.randrange(3)
        content[place : place + 4] = np.array(number, dtype="<i4").tobytes()
        path.write_bytes(content)
        return path

    def read(self) -> None:
        dataset = open_dataset(str(self.folder))
        _draw(dataset)
        assert dataset.fingerprint
        dataset.verify()


class Tokenizers(Format):
    """Files of every tokenizer."""

    name = "tokenizers"

    def make(self) -> None:
        CharTokenizer("".join(sorted(set(TEXT))), separator=True).save(self.folder / "char.json")
        ByteTokenizer().save(self.folder / "byte.json")
        train_bpe([TEXT], 280).save(self.folder / "bpe.json")
        lines = [f"{_base64(bytes([byte]))} {byte}\n" for byte in range(256)]
        lines += [f"{_base64(pair.encode())} {256 + n}\n" for n, pair in enumerate(("th", "he", "or"))]
        (self.folder / "small.tiktoken").write_text("".join(lines))
        load_tokenizer(self.folder / "small.tiktoken").save(self.folder / "tiktoken.json")

    def damage(self, rng: random.Random) -> Path:
        self.last = super().damage(rng)
        return self.last

    def read(self) -> None:
        for path in [self.last] if hasattr(self, "last") else self.folder.iterdir():
            tokenizer = load_tokenizer(path)
            ids = tokenizer.encode("the or")
            tokenizer.decode(ids.tolist())
            assert tokenizer.sha256


def _base64(content: bytes) -> str:
    import base64

    return base64.b64encode(content).decode()


class Checkpoint(Format):
    """A run folder's checkpoint, facts, pointers and record. What is damaged gets a fitting hash in most
    cases, as somebody who means harm would give it."""

    name = "checkpoint"

    def make(self) -> None:
        self.config = TrainConfig(
            n_layer=1, n_head=2, n_embd=8, block_size=8, batch_size=2, gradient_accumulation_steps=1
        )
        self.run = RunFolder(self.folder / "run")
        self.run.create(self.config).release()
        self.run.write_facts({"schema": "gptwright.run/1", "dataset": {"folder": "/nowhere"}})
        self.run.metrics_path.write_text('{"v": 1, "kind": "start"}\n{"v": 1, "kind": "train", "step": 3}\n')
        torch.manual_seed(0)
        model = GPT(ModelShape.of(self.config, 11))
        optimizer = build_optimizer(model, self.config, fused=True)
        model(torch.zeros((1, 8), dtype=torch.int64), torch.zeros((1, 8), dtype=torch.int64)).backward()
        optimizer.step()
        self.checkpointed = Checkpointed(
            model=model,
            optimizer=optimizer,
            scaler=torch.amp.GradScaler("cpu", enabled=False),
            fixed=fixed_settings(self.config, 11),
            dataset_fingerprint="f",
        )
        state = TrainState(step=4, passed_over=[(2, 3)], skipped=[1])
        snapshot = take_snapshot(state, self.checkpointed, CheckpointInfo(metrics_bytes=20))
        write_checkpoint(self.run, snapshot)

    def files(self) -> list[Path]:
        folder = self.run.checkpoints / "step-00000004"
        rest = [self.run.run_json_path, self.run.metrics_path, self.run.checkpoints / "last"]
        return [folder / "state.json"] * 4 + sorted(folder.glob("*.safetensors")) * 2 + rest

    def damage(self, rng: random.Random) -> Path:
        path = super().damage(rng)
        if rng.random() < 0.8 and path.parent.name.startswith("step-"):
            self._seal(path)
        return path

    def _seal(self, path: Path) -> None:
        state = self.run.checkpoints / "step-00000004" / "state.json"
        try:
            payload: Any = json.loads(state.read_bytes())["checkpoint"]
            if path != state:
                content = path.read_bytes()
                identity = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                payload["files"][path.name] = identity
            text = json.dumps(payload, sort_keys=True)
            seal = hashlib.sha256(text.encode("utf-8")).hexdigest()
            state.write_text(json.dumps({"sha256": seal, "checkpoint": payload}))
        except (ValueError, KeyError, TypeError, RecursionError):
            return

    def mend(self, path: Path) -> None:
        """A seal may have changed what else is sealed."""
        super().mend(path)
        super().mend(self.run.checkpoints / "step-00000004" / "state.json")

    def read(self) -> None:
        self.run.read_facts()
        self.run.dataset_folder()
        self.run.pointed("last")
        chosen = choose_checkpoint(self.run, None)
        if chosen.name is not None:
            load_checkpoint(self.run, chosen.name, self.checkpointed, payload=chosen.payload)
        read_metrics(self.run.metrics_path)


FORMATS: tuple[type[Format], ...] = (
    Toml,
    Python,
    HuggingFace,
    Dataset,
    NanoGpt,
    Headed,
    Tokenizers,
    Checkpoint,
)
