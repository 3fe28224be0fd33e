"""What a run was set to, by everything that says so: log, config, what is stated, trainer's defaults.

What a log says happened wins over what a config asked for; a trainer's default counts only where a config of
that trainer was read and does not name the setting, and is marked as assumed. Where nothing says it, there is
no value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from gptwright.arithmetic.shape import ModelShape
from gptwright.config.ingredients import Ingredients
from gptwright.config.pretrained import GPT2_MODELS
from gptwright.facts import Fact, assumed
from gptwright.record.evidence import RunEvidence


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
        logged = {**log.settings, **log.header} if log else {}
        given = dict(evidence.config.settings) if evidence.config else {}
        defaults = {}
        # A config file, or an echo of its values, says that what it leaves out has the trainer's default.
        if log and (evidence.config or log.settings.keys() & {"batch_size", "n_layer", "max_iters"}):
            reason = f"{log.format.name}'s default, which the config does not change"
            defaults = {name: assumed(name, value, reason) for name, value in log.format.defaults.items()}
        defaults |= _of_weights(logged, given)
        return cls(logged, given, evidence.stated, defaults)

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

    def shape(self) -> ModelShape | None:
        """The model's shape, or None where width, depth, context or vocabulary is not known."""
        layers, width = self.integer("n_layer"), self.integer("n_embd")
        # Where a trainer pads the vocabulary, the padded one has the rows.
        vocabulary = self.integer("padded_vocab_size") or self.integer("vocab_size")
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
