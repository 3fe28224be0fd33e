"""What a run was set to, by everything that says so: log, config, what is stated, trainer's defaults.

What a log says happened wins over what a config asked for; a trainer's default counts only where a config of
that trainer was read and does not name the setting, and is marked as assumed. Where nothing says it, there is
no value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from gptwright.arithmetic.known_datasets import known_facts, usual_vocabulary
from gptwright.arithmetic.shape import ModelShape
from gptwright.config.ingredients import Ingredients
from gptwright.config.pretrained import GPT2_MODELS, GPT2_PADDED_VOCABULARY, GPT2_VOCABULARY
from gptwright.facts import Fact, Value, assumed, derived
from gptwright.record.evidence import ConfigEvidence, LogFormat, RunEvidence

# So many of nanoGPT's names make a config of it.
FEWEST_NAMES = 3
# Of nanoGPT's data: GPT-2's tokenizer, padded or not, and Shakespeare's characters.
USUAL_VOCABULARIES = (GPT2_PADDED_VOCABULARY, GPT2_VOCABULARY, 65)
# The least that a setting may be: of counts, which are whole, and of other numbers. Over one token there is
# nothing to guess.
COUNTS: Mapping[str, int] = {
    **dict.fromkeys(("n_layer", "n_head", "n_embd", "block_size", "batch_size", "micro_batch"), 1),
    **dict.fromkeys(("gradient_accumulation_steps", "max_iters", "lr_decay_iters", "eval_iters"), 1),
    **dict.fromkeys(("vocab_size", "padded_vocab_size"), 2),
    "warmup_iters": 0,
}
NUMBERS: Mapping[str, int] = dict.fromkeys(("learning_rate", "min_lr", "dropout", "cooldown_fraction"), 0)
# No corpus has more tokens, and no run more steps.
LARGEST = 10**18


def _possible(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """The facts but for those whose value the setting cannot have.

    A config from elsewhere may leave `vocab_size = None` to its program, or write `n_layer = "12"`: that is
    no number to compute with.
    """
    return {name: fact for name, fact in facts.items() if _may_be(name, fact.value)}


def _may_be(name: str, value: Value) -> bool:
    least = COUNTS.get(name, NUMBERS.get(name))
    if least is None:
        return value is not None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= LARGEST:
        return False
    return name in NUMBERS or value == int(value)


def _of_weights(logged: Mapping[str, Fact], given: Mapping[str, Fact]) -> dict[str, Fact]:
    """The shape that OpenAI's weights have, where a run starts from them and names no width of its own."""
    start = logged.get("init_from") or given.get("init_from")
    shape = GPT2_MODELS.get(str(start.value)) if start is not None else None
    if shape is None or "n_embd" in given or "n_embd" in logged:
        return {}
    return {
        name: assumed(name, value, f"the shape of the weights of {start.value}" if start is not None else "")
        for name, value in shape.items()
        if name in ("n_layer", "n_head", "n_embd", "block_size", "vocab_size", "bias")
    }


def _of_data(
    logged: Mapping[str, Fact], given: Mapping[str, Fact], stated: Mapping[str, Fact]
) -> dict[str, Fact]:
    """What nanoGPT's own script makes of the dataset that is named, unless the run has another vocabulary."""
    name = stated.get("dataset") or logged.get("dataset") or given.get("dataset")
    known = known_facts(str(name.value)) if name is not None else {}
    usual = usual_vocabulary(str(name.value)) if name is not None else None
    rows = stated.get("vocab_size") or logged.get("vocab_size") or given.get("vocab_size")
    if rows is None or rows.value is None:
        return ({"vocab_size": usual} if usual is not None else {}) | known
    if not known:
        return {}
    same = {rows.value, known["vocab_size"].value} <= {GPT2_VOCABULARY, GPT2_PADDED_VOCABULARY}
    return known if same or rows.value == known["vocab_size"].value else {}


def _vocabulary_of(settings: "Settings") -> Fact | None:
    """The vocabulary that the printed number of parameters leaves to a shape, if it is one in common use."""
    printed, rounding = settings.logged.get("parameters"), settings.logged.get("parameters_rounding")
    if settings.get("vocab_size") is not None or printed is None:
        return None
    for rows in USUAL_VOCABULARIES:
        shape = settings.shape(vocabulary=rows)
        if shape is None:
            return None
        slack = rounding.number if rounding is not None else 0.0
        if abs(shape.count_parameters().nanogpt - printed.number) <= slack:
            formula = f"what {shape.n_layer} layers of {shape.n_embd} leave of {printed.text} parameters"
            return derived("vocab_size", rows, formula)
    return None


def _trainer_of(config: ConfigEvidence | None) -> LogFormat | None:
    """nanoGPT, for a config in Python without a log: what such a file leaves out has its defaults."""
    if config is None or config.complete or config.path.suffix != ".py":
        return None
    # numpy, which a plan has no use for, is loaded with it.
    from gptwright.record.readers.nanogpt import NANOGPT

    names = config.settings.keys() & NANOGPT.format.defaults.keys()
    return NANOGPT.format if len(names) >= FEWEST_NAMES else None


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run, each a fact.

    Attributes:
        logged: from the log's header and its echo of the config.
        given: from the config file.
        stated: from facts.toml and options.
        defaults: the trainer's, where a config of it was read.
    """

    logged: Mapping[str, Fact]
    given: Mapping[str, Fact]
    stated: Mapping[str, Fact]
    defaults: Mapping[str, Fact]

    @classmethod
    def of(cls, evidence: RunEvidence) -> "Settings":
        """The settings that the evidence of a run holds."""
        log = evidence.log
        logged = _possible({**log.settings, **log.header}) if log else {}
        given = _possible(evidence.config.settings) if evidence.config else {}
        folder = logged.get("data_folder")
        # A folder may be called anything, so its name counts where nothing else names the corpus.
        if folder is not None and not any("dataset" in said for said in (logged, given, evidence.stated)):
            logged["dataset"] = replace(folder, name="dataset")
        trainer = log.format if log is not None else _trainer_of(evidence.config)
        defaults = {}
        # A config file, or an echo of its values, says that what it leaves out has the trainer's default.
        echoed = log is not None and log.settings.keys() & {"batch_size", "n_layer", "max_iters"}
        if trainer is not None and (evidence.config or echoed):
            reason = f"{trainer.name}'s default, which the config does not change"
            defaults = {name: assumed(name, value, reason) for name, value in trainer.defaults.items()}
        defaults |= _of_weights(logged, given)
        stated = _possible(evidence.stated)
        settings = cls(logged, given, stated, defaults)
        if trainer is not None and trainer.name == "nanoGPT":
            vocabulary = _vocabulary_of(settings)
            read = {"vocab_size": vocabulary} if vocabulary is not None else {}
            of_data = _of_data({**logged, **read}, given, stated)
            settings = cls(logged, given, stated, {**of_data, **read, **defaults})
        return settings

    def get(self, name: str) -> Fact | None:
        """The value of a setting from the surest place, or None."""
        for source in (self.logged, self.stated, self.given, self.defaults):
            fact = source.get(name)
            if fact is not None and fact.value is not None:
                return fact
        return None

    def named(self, name: str) -> Fact | None:
        """The value of a setting that somebody wrote down: no default."""
        fact = self.get(name)
        return None if fact is None or (fact.name in self.defaults and fact is self.defaults[name]) else fact

    def number(self, name: str) -> float | None:
        """The value of a setting as a number, or None where it is none."""
        fact = self.get(name)
        if fact is None or isinstance(fact.value, bool) or not isinstance(fact.value, int | float):
            return None
        return fact.value

    def integer(self, name: str) -> int | None:
        """The value of a setting as a whole number of at least 1, or None where it is none."""
        number = self.number(name)
        return int(number) if number is not None and number >= 1 and number == int(number) else None

    def word(self, name: str) -> str | None:
        """The value of a setting as text, or None where it is none."""
        fact = self.get(name)
        return fact.value if fact is not None and isinstance(fact.value, str) else None

    def flag(self, name: str) -> bool | None:
        """The value of a setting that is True or False, or None where it is neither."""
        fact = self.get(name)
        return fact.value if fact is not None and isinstance(fact.value, bool) else None

    def facts(self, *names: str) -> tuple[Fact, ...]:
        """Those of the named settings that have a value, as evidence."""
        found = (self.get(name) for name in names)
        return tuple(fact for fact in found if fact is not None)

    def ingredients(self) -> Ingredients:
        """What the model is made of beyond GPT-2; only our own configs say so."""
        asked = {field.name: self.flag(field.name) for field in fields(Ingredients)}
        return Ingredients.of(self.word("arch") or "gpt2", asked)

    def shape(self, *, vocabulary: int | None = None) -> ModelShape | None:
        """The model's shape, or None where width, depth, context or vocabulary is not known.

        Args:
            vocabulary: its rows, where they are to be tried; else those of the settings.
        """
        layers, width = self.integer("n_layer"), self.integer("n_embd")
        # Where a trainer pads the vocabulary, the padded one has the rows.
        vocabulary = vocabulary or self.integer("padded_vocab_size") or self.integer("vocab_size")
        context = self.integer("block_size")
        if layers is None or width is None or context is None or vocabulary is None:
            return None
        return ModelShape(
            n_layer=layers,
            n_head=self.integer("n_head") or 1,
            n_embd=width,
            block_size=context,
            vocab_size=vocabulary,
            bias=bool(self.flag("bias")),
            tie_weights=self.flag("tie_weights") is not False,
            dropout=self.number("dropout") or 0.0,
            ingredients=self.ingredients(),
        )
