"""Size against data and shape: is the model full, or starved, or mostly a table of words?"""

from collections.abc import Iterator

from gptwright import units
from gptwright.arithmetic.scaling import BESIROGLU, FRESH_PASSES, TOKENS_PER_PARAMETER, loss_terms
from gptwright.diagnose.law import like_web_text
from gptwright.diagnose.length import longer_run
from gptwright.diagnose.reading import Reading
from gptwright.diagnose.rule import Rule, Verdict, finding
from gptwright.facts import Fact, Origin, derived
from gptwright.findings import Action, Confidence, Severity, Unknown
from gptwright.record.evidence import EventKind

# Five times the compute-optimal tokens: the optimum is flat within a factor of two or three either way, and
# the literature's spread of it (10 to 30 tokens a parameter) is about as wide.
FAR_FACTOR = 5
# What is lost by size must outweigh clearly what is lost by data: the laws differ by a third in either.
CAPACITY_OVER_DATA = 1.5
# Head sizes in use are 64 to 128 with 32 in small models; a score over fewer than 16 numbers is mostly noise.
SMALLEST_HEAD, LARGEST_HEAD = 16, 256
# Width over depth of models that train well: 33 (GPT-2 XL) to 128; Kaplan et al. 2020 lose 3 % at about 1/10
# and 10 times that range.
LOWEST_ASPECT, HIGHEST_ASPECT = 8, 700


def capacity_limited(reading: Reading) -> Iterator[Verdict]:
    """A model is full when it has seen far more than its compute-optimal tokens and what is left of the data
    term of the scaling law is small against the capacity term: more steps can gain little, a larger model can
    gain much. Terms are used for their difference only; absolute losses of the published laws are 0.2 to 0.3
    nats too low for GPT-2's tokenizer. Where the run's own loss shows that its text is not like the web text
    that the law was fitted to (children's stories, characters), no nats are named. It stays silent where the
    data was repeated so often that the law does not hold, and where a log shows no step that was made.
    Source: Besiroglu et al. 2024 (arXiv 2404.10102); docs/scaling.md holds the laws against public runs.
    """
    progress = reading.progress
    parameters = reading.sizes.parameters
    tokens = progress.planned_tokens if reading.log is None else progress.tokens_seen
    if parameters is None or tokens is None or _repeated(reading) or not reading.starts_from_scratch:
        return
    ratio = tokens.number / parameters.number
    best = TOKENS_PER_PARAMETER
    if ratio < FAR_FACTOR * best.likely:
        return
    capacity, data = loss_terms(BESIROGLU, parameters.number, tokens.number)
    _, data_after = loss_terms(BESIROGLU, parameters.number, 2 * tokens.number)
    if capacity < CAPACITY_OVER_DATA * data:
        return
    law = "A/N^a and B/D^b of the fitted law (Besiroglu 2024), differences only"
    message = (
        f"{tokens.text} tokens are {ratio:.0f} per parameter, {ratio / best.likely:.0f} times the"
        f" compute-optimal {best.likely:.0f}."
    )
    evidence: list[Fact | None] = [
        parameters,
        tokens,
        derived("tokens_per_parameter", ratio, f"{tokens.text} tokens / {parameters.text} parameters"),
    ]
    if like_web_text(reading):
        message += (
            f" Its size costs about {capacity:.2f} nats, the limited data only {data:.2f}; doubling the"
            f" tokens would gain about {data - data_after:.2f}."
        )
        evidence += [
            derived("capacity_term", capacity, law, unit="nats"),
            derived("data_term", data, law, unit="nats"),
            derived("gain_from_doubling", data - data_after, law, unit="nats"),
        ]
    else:
        message += " A larger model gains more than more steps; how much is known for web text only."
    last = _last_quarter(reading)
    if last is not None:
        message += f" The last quarter of the run gained {last[0]:.2f}."
        evidence += last[1]
    yield finding(
        "capacity-limited",
        Severity.WARNING,
        Confidence.LIKELY,
        message,
        evidence,
        actions=_larger_model(reading),
    )


def _last_quarter(reading: Reading) -> tuple[float, tuple[Fact, Fact]] | None:
    """What validation gained over the last quarter of the steps, with the two evaluations."""
    if reading.log is None:
        return None
    from gptwright.diagnose.series import val_loss  # with numpy, which a plan has no use for

    val = val_loss(reading)
    if len(val) < 8:
        return None
    row = int(val.step.searchsorted(0.75 * val.step[-1]))
    return float(val.value[row] - val.value[-1]), (val.fact(row), val.fact(len(val) - 1))


def _larger_model(reading: Reading) -> list[Action]:
    shape = reading.sizes.shape
    if shape is None:
        return [Action("Train a larger model; this one has little left to gain from more steps.")]
    width = 2 * shape.n_embd
    heads = max(1, width // 64)
    return [
        Action(
            f"Train a larger model: width {width} in place of {shape.n_embd}. A checkpoint cannot be carried"
            " over to another width: the shapes differ.",
            {"n_embd": width, "n_head": heads},
        )
    ]


def undertrained(reading: Reading) -> Iterator[Verdict]:
    """A run is undertrained when it ends far below the compute-optimal tokens for its size. A run that is not
    finished is judged by its plan. It stays silent where the loss is stuck or no number or memory ran out,
    which more steps do not mend, where the data was repeated more than four times (then data, not steps, is
    short) and for fine-tuning. Being undertrained is no fault: on one device a larger
    model may be stopped early on purpose. Source: Hoffmann et al. 2022, Besiroglu et al. 2024, nanochat's own
    isoFLOP fits: 10 to 30 tokens a parameter, depending on what is counted, and flat.
    """
    parameters, progress = reading.sizes.parameters, reading.progress
    planned = progress.planned_tokens if _plan_is_stated(reading) else None
    tokens = max(
        (fact for fact in (progress.tokens_seen, planned) if fact is not None),
        key=lambda fact: fact.number,
        default=None,
    )
    if parameters is None or tokens is None or _repeated(reading) or not reading.starts_from_scratch:
        return
    if not tokens.number:
        return
    best = TOKENS_PER_PARAMETER
    ratio = tokens.number / parameters.number
    if ratio >= best.low / 2 or _learned_nothing(reading) or _ran_out_of_memory(reading):
        return
    yield finding(
        "undertrained",
        Severity.INFO,
        Confidence.LIKELY,
        f"{tokens.text} tokens are {ratio:.2g} per parameter; compute-optimal is {best.low:.0f} to"
        f" {best.high:.0f}. A smaller model on more tokens would reach a lower loss for the same compute, and"
        " this one would with more steps.",
        [
            parameters,
            tokens,
            derived("tokens_per_parameter", ratio, f"{tokens.text} tokens / {parameters.text} parameters"),
        ],
        actions=longer_run(reading),
    )


def _learned_nothing(reading: Reading) -> bool:
    if reading.train is None:
        return False
    from gptwright.diagnose.stuck import stuck_stretch  # with numpy, which a plan has no use for

    return bool(reading.train.loss_is_bad.any()) or stuck_stretch(reading) is not None


def _ran_out_of_memory(reading: Reading) -> bool:
    """Whether nothing came after a failed allocation."""
    log = reading.log
    if log is None:
        return False
    last = max((log.moment(int(table.line[-1])) for table in (log.train, log.evals) if len(table)), default=0)
    return any(e.kind is EventKind.OUT_OF_MEMORY and log.moment(e.line) > last for e in log.events)


def _plan_is_stated(reading: Reading) -> bool:
    planned = reading.progress.planned_steps
    return (planned is not None and reading.settings.named("max_iters") is not None) or (
        planned is not None and "planned_steps" in reading.settings.logged
    )


def _repeated(reading: Reading) -> bool:
    epochs = reading.progress.epochs or reading.progress.planned_epochs
    return epochs is not None and epochs.number > FRESH_PASSES


def embedding_heavy(reading: Reading) -> Iterator[Verdict]:
    """The token embedding is a table: a lookup on the way in and, tied, the last matrix on the way out. Where
    it holds most of the parameters, the count says little about what the network can learn, and a smaller
    vocabulary buys depth or width at no cost. It needs the shape and the vocabulary itself: it does not fire
    where that is assumed.
    Source: arithmetic (vocab_size × n_embd against the whole).
    """
    shape = reading.sizes.shape
    if shape is None:
        return
    count = shape.count_parameters()
    share = count.token_embedding / count.nanogpt
    if share <= 0.5:
        return
    rows = reading.settings.get("vocab_size")
    if rows is not None and rows.origin is Origin.ASSUMED:
        yield Unknown("How much of the model is a table of words?", "the vocabulary: --vocab-size N")
        return
    yield finding(
        "embedding-heavy",
        Severity.INFO,
        Confidence.CERTAIN,
        f"{units.count(count.token_embedding)} of {units.count(count.nanogpt)} parameters ({share * 100:.0f}"
        f" %) are the token embedding ({shape.vocab_size:,} × {shape.n_embd}); the network itself has"
        f" {units.count(count.blocks)}.",
        [
            *reading.settings.facts("vocab_size", "n_embd", "n_layer"),
            derived("token_embedding", count.token_embedding, "vocab_size × n_embd", unit="parameters"),
            reading.sizes.parameters,
            derived("embedding_share", share, "token embedding / parameters", unit="fraction"),
        ],
        actions=[
            Action(
                "Train a tokenizer of 4k to 16k entries on your corpus: gptwright prepare --tokenizer"
                " bpe:8192."
            )
        ],
    )


def odd_shape(reading: Reading) -> Iterator[Verdict]:
    """Heads of fewer than 16 channels and networks far deeper than wide (or the reverse) train worse and run
    slowly: tiny matrices leave the device idle. Within a wide range shape hardly matters, so only values far
    outside of everything in use are reported. Source: nanochat's and GPT-2's shapes (width over depth 32 to
    128, heads of 64 to 128); Kaplan et al. 2020 on how little shape matters between.
    """
    layers, width, heads = (reading.settings.integer(name) for name in ("n_layer", "n_embd", "n_head"))
    if layers is None or width is None:
        return
    odd = []
    facts: list[Fact] = [*reading.settings.facts("n_layer", "n_embd", "n_head")]
    if heads is not None and width % heads == 0:
        head = width // heads
        facts.append(derived("head_size", head, "n_embd / n_head"))
        if not SMALLEST_HEAD <= head <= LARGEST_HEAD:
            whose = f"each of {heads} heads" if heads > 1 else "the only head"
            odd.append(f"{whose} has {head} channels (32 to 128 is usual)")
    aspect = width / layers
    facts.append(derived("width_over_depth", aspect, "n_embd / n_layer"))
    if not LOWEST_ASPECT <= aspect <= HIGHEST_ASPECT:
        ratio = units.ratio(aspect)
        odd.append(f"{layers} layers of width {width}: width over depth is {ratio} (32 to 128 is usual)")
    if not odd:
        return
    yield finding(
        "odd-shape",
        Severity.WARNING,
        Confidence.LIKELY,
        "; ".join(odd).capitalize() + ".",
        facts,
        actions=[_usual_heads(width) if LOWEST_ASPECT <= aspect <= HIGHEST_ASPECT else _usual(width, layers)],
    )


def _usual(width: int, layers: int) -> Action:
    """As many parameters in blocks, width² × layers, at a width of 64 times the depth."""
    wide = max(64, round((64 * width * width * layers) ** (1 / 3) / 64) * 64)
    deep = max(1, round(width * width * layers / wide**2))
    return Action(
        f"About as many parameters in blocks: {deep} layers of width {wide}.",
        {"n_layer": deep, "n_embd": wide, "n_head": wide // 64},
    )


def _usual_heads(width: int) -> Action:
    """Heads of a size in use, the nearest to 64; another width where that divides into none of these."""
    sizes = [size for size in range(SMALLEST_HEAD, LARGEST_HEAD + 1) if width % size == 0]
    if not sizes:
        wide = max(64, round(width / 64) * 64)
        return Action(
            f"Heads divide a width, and {width} has no usual one: take {wide}, in heads of 64 channels.",
            {"n_embd": wide, "n_head": wide // 64},
        )
    head = min(sizes, key=lambda size: abs(size - 64))
    return Action(f"Heads of {head} channels, at the same size and cost.", {"n_head": width // head})


RULES = (
    Rule("capacity-limited", capacity_limited),
    Rule("undertrained", undertrained),
    Rule("embedding-heavy", embedding_heavy),
    Rule("odd-shape", odd_shape),
)
