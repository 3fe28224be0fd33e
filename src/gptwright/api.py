"""The Python side: what the verbs do, as functions.

`import gptwright` brings these names and loads none of them; each loads what it needs when it is first used,
so that the import stays light and works without torch. Paths may be text or `Path`; settings are given by
their names in the schema, as values: `train("shakespeare-char-cpu", max_iters=500)`.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from gptwright.config.load import LoadedConfig
    from gptwright.data.prepare import PrepareReport
    from gptwright.diagnose.compare import Comparison
    from gptwright.diagnose.judging import Diagnosis
    from gptwright.plan.plan import Plan
    from gptwright.record.metrics import Record
    from gptwright.train.speak import Speaker

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """How a run ended.

    Attributes:
        run: its folder.
        ending: `finished`, or `stopped` by a signal.
        step: updates made.
        best_val_loss: lowest validation loss, nats a token; None without an evaluation.
        best_step: where it was.
    """

    run: Path
    ending: str
    step: int
    best_val_loss: float | None
    best_step: int | None


def plan(*config: PathLike, device: str | None = None, **settings: Any) -> "Plan":
    """What a run will need and cost. Needs no torch.

    Settings of other trainers in a file are taken for ours where they mean the same; of the others, which are
    not counted, the plan's `unknown` speaks.

    Args:
        config: presets' names, TOML files, nanoGPT-style Python files and a GPT-2's config.json; later ones
            win.
        device: the name of a card to plan for, such as "RTX 4070"; None takes the setting's.
        settings: fields of the schema.

    Raises:
        GptwrightError: the settings cannot be used.
    """
    from dataclasses import replace

    from gptwright.facts import stated
    from gptwright.plan.foreign import foreign_unknown
    from gptwright.plan.local_data import local_facts
    from gptwright.plan.plan import make_plan

    loaded = _loaded(config, settings, let_in_foreign=True)
    facts = {"dataset": stated("dataset", loaded.config.dataset)} | local_facts(loaded.config)
    if device is not None:
        facts["device"] = stated("device", device)
    made = make_plan(loaded.config, facts, sources=loaded.sources)
    return replace(made, unknown=(*made.unknown, *foreign_unknown(loaded.foreign)))


def diagnose(run: PathLike, **facts: str | int) -> "Diagnosis":
    """What the numbers of a run say; any trainer's log. Needs no torch.

    Args:
        run: a run folder, a folder with a log, or a log.
        facts: what the log does not say: device, device_count, train_tokens, val_tokens, vocab_size, dataset,
            torch, note.

    Raises:
        GptwrightError: there is nothing to read, or a fact is unknown.
    """
    from gptwright.diagnose import engine
    from gptwright.diagnose.reading import read_run
    from gptwright.record.open_run import open_run

    return engine.diagnose(read_run(open_run(os.fspath(run), facts)))


def compare(a: PathLike, b: PathLike) -> "Comparison":
    """What differs between two runs, and who is ahead beyond the noise. Needs no torch.

    Raises:
        GptwrightError: one of them cannot be read.
    """
    from gptwright.diagnose.compare import compare as compare_readings
    from gptwright.diagnose.reading import read_run
    from gptwright.record.open_run import open_run

    return compare_readings(*(read_run(open_run(os.fspath(run))) for run in (a, b)))


def prepare(
    source: PathLike, *, out: PathLike, tokenizer: str | None = None, **options: Any
) -> "PrepareReport":
    """Turns text into a token dataset.

    Args:
        source: a file or folder of text, Parquet or JSONL, `hf:OWNER/NAME`, or a named corpus.
        out: the dataset's folder.
        tokenizer: `char`, `byte`, `gpt2`, `bpe:N` or a tokenizer file; None chooses by the corpus.
        options: the other ones of `gptwright.data.prepare.prepare`, such as `split`, `max_tokens`, `workers`.

    Raises:
        GptwrightError: of the kind of whatever is wrong.
    """
    from gptwright.data.prepare import prepare as prepare_corpus

    return prepare_corpus(os.fspath(source), out=Path(out), tokenizer=tokenizer, **options)


def train(
    *config: PathLike,
    resume: PathLike | None = None,
    allow_lr_jump: bool = False,
    listen: "Callable[[Record], None] | None" = None,
    **settings: Any,
) -> Trained:
    """Trains a new run, or goes on with one.

    Args:
        config: presets' names, TOML files and nanoGPT-style Python files; later ones win.
        resume: a run folder to go on with; `config` must then be empty.
        allow_lr_jump: whether a resumed run may go on at a higher learning rate than it had.
        listen: called with every record of metrics as it is written.
        settings: fields of the schema.

    Raises:
        GptwrightError: the settings, the data or the folder cannot be used, or the run failed.
    """
    from gptwright.record.run import RunFolder
    from gptwright.train.run import prepare_new, prepare_resume, require_unfinished, train_prepared
    from gptwright.train.world import require_one_process

    require_one_process("train() of Python")
    if resume is None:
        prepared = prepare_new(_loaded(config, settings))
    else:
        from gptwright.errors import ConfigError

        if config:
            raise ConfigError("a resumed run has its own config", fix="give changed settings by name")
        run = RunFolder.existing(Path(resume))
        loaded = _loaded([run.config_path], settings | {"out_dir": os.fspath(resume)})
        prepared = prepare_resume(run, loaded, allow_lr_jump=allow_lr_jump)
        require_unfinished(prepared)
    outcome = train_prepared(prepared, _Listener(listen))
    return Trained(
        run=prepared.run.path,
        ending=outcome.ending,
        step=outcome.state.step,
        best_val_loss=outcome.state.best_val_loss,
        best_step=outcome.state.best_step,
    )


def load(run: PathLike, *, checkpoint: str | None = None, device: str = "auto") -> "Speaker":
    """A run's model and tokenizer, ready to speak.

    Args:
        run: a run folder.
        checkpoint: a name, `last` or `best`; None takes the best, else the last.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.

    Raises:
        GptwrightError: there is no such checkpoint, or it is damaged.
    """
    from gptwright.train.speak import Speaker

    return Speaker.of(Path(run), checkpoint=checkpoint, device=device)


@overload
def generate(run: "PathLike | Speaker", prompt: str | None = None, **options: Any) -> str: ...
@overload
def generate(run: "PathLike | Speaker", prompt: Sequence[str | None], **options: Any) -> list[str]: ...
def generate(
    run: "PathLike | Speaker", prompt: str | Sequence[str | None] | None = None, **options: Any
) -> str | list[str]:
    """Text after a prompt, or after each of several, which are decoded side by side.

    What is said after one prompt does not depend on the others.

    Args:
        run: a run folder, or what `load` gave, which is quicker for many calls.
        prompt: one or several; None begins a new document.
        options: seed, and those of `Speaker.speak_all`: max_new_tokens, temperature, top_k, top_p, stop,
            batch_size.

    Raises:
        GptwrightError: the run cannot be loaded, or a prompt has characters that it does not know.
    """
    from gptwright.train.speak import Sample

    speaker = load(run) if isinstance(run, str | os.PathLike) else run
    if prompt is None or isinstance(prompt, str):
        return "".join(speaker.speak(start=prompt, **options))
    seed = {"seed": options.pop("seed")} if "seed" in options else {}
    samples = [Sample(start=start, **seed) for start in prompt]
    for _ in speaker.speak_all(samples, **options):
        pass
    return [sample.text for sample in samples]


class _Listener:
    """Hands records on."""

    def __init__(self, listen: "Callable[[Record], None] | None") -> None:
        self._listen = listen

    def recorded(self, record: "Record") -> None:
        if self._listen is not None:
            self._listen(record)

    def stepped(self, step: int) -> None:
        """Records say enough."""


def _loaded(
    config: Sequence[PathLike], settings: dict[str, Any], *, let_in_foreign: bool = False
) -> "LoadedConfig":
    from gptwright.config.load import load_config

    sources, options = [os.fspath(source) for source in config], {n: str(v) for n, v in settings.items()}
    return load_config(sources, options, let_in_foreign=let_in_foreign)
