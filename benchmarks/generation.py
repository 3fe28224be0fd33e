"""Tokens a second of a random 124M GPT-2 on this CPU, beside nanoGPT's if a checkout of it is at hand.

    python benchmarks/generation.py --nanogpt ../nanoGPT --out generation.json

Both models have the same weights and generate from the same prompts with the same sampling settings, in
turns within one process, so that whatever else the machine does disturbs both; still, measure on a machine
that does nothing else, because threads that wait for each other suffer most. Rates are medians over the
rounds, ratios are medians of each round's ratio. `whole` counts from the call to the last token, reading the
prompt included; `steady` leaves out the first token, and with it the prompt. nanoGPT reads the whole context
again for every token, so a few tokens are enough where the context is long.

Then several prompts of different lengths side by side as one batch, the sizes in turns: tokens a second of
all of a batch together, and how many times those of the first size.
"""

import argparse
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch

import gptwright
from gptwright.arithmetic.shape import ModelShape
from gptwright.hardware.cpu import usable_cores
from gptwright.hardware.detect import find_device
from gptwright.model.drawing import SamplingOptions
from gptwright.model.generate import Batch, Stream, generate
from gptwright.model.gpt import GPT

SHAPE = ModelShape(
    n_layer=12,
    n_head=12,
    n_embd=768,
    block_size=1024,
    vocab_size=50304,
    bias=False,
    tie_weights=True,
    dropout=0.0,
)
# From this context on, nanoGPT's time a token hardly changes while it generates.
LONG_CONTEXT = 256


@dataclass(frozen=True, slots=True)
class Row:
    """One model at one context, in tokens a second.

    Attributes:
        model: `gptwright` or `nanoGPT`.
        context: tokens in the prompt.
        tokens: generated in a round.
        whole: with the time to read the prompt.
        steady: after the first token.
        ours_whole_ratio: how many times faster gptwright is; None in its own rows.
        ours_steady_ratio: the same, after the first token.
    """

    model: str
    context: int
    tokens: int
    whole: float
    steady: float
    ours_whole_ratio: float | None = None
    ours_steady_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class BatchRow:
    """Prompts decoded side by side, in tokens a second of all together.

    Attributes:
        batch: how many.
        contexts: tokens in each one's prompt.
        tokens: generated in a round, for each.
        whole: with the time to read the prompts.
        steady: after the first token of each.
        whole_gain: over the first batch size, the median of each round's ratio.
        steady_gain: the same, after the first token of each.
    """

    batch: int
    contexts: list[int]
    tokens: int
    whole: float
    steady: float
    whole_gain: float
    steady_gain: float


def main(arguments: list[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    torch.manual_seed(1337)
    ours = GPT(replace(SHAPE, n_layer=options.layers)).eval()
    theirs = None if options.nanogpt is None else nanogpt_with_weights_of(ours, options.nanogpt)
    here = machine()
    rows = measure(ours, theirs, options)
    batches = measure_batches(ours, options)
    print(table(rows))
    print(batch_table(batches))
    if options.out is not None:
        document = {
            "schema": "gptwright.benchmark.generation/1",
            "machine": here,
            "rounds": options.rounds,
            "parameters": sum(parameter.numel() for parameter in ours.parameters()),
            "rows": [asdict(row) for row in rows],
            "batches": [asdict(row) for row in batches],
        }
        options.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--nanogpt", type=Path, metavar="PATH", help="a checkout of nanoGPT to measure beside")
    made.add_argument("--tokens", type=int, default=64, help="tokens to generate in a round (default: 64)")
    made.add_argument(
        "--context", type=int, nargs="+", default=[1, 900], help="tokens in the prompt (default: 1 900)"
    )
    made.add_argument(
        "--few", type=int, default=4, help=f"nanoGPT's tokens from context {LONG_CONTEXT} on (default: 4)"
    )
    made.add_argument(
        "--batch", type=int, nargs="+", default=[1, 4, 16], help="prompts side by side (default: 1 4 16)"
    )
    made.add_argument(
        "--batch-context", type=int, default=64, help="tokens in their longest prompt (default: 64)"
    )
    made.add_argument("--layers", type=int, default=12, help="fewer of them only to try the script")
    made.add_argument("--rounds", type=int, default=3, help="rounds, of which the median counts (default: 3)")
    made.add_argument("--out", type=Path, metavar="FILE", help="write the figures and the machine as JSON")
    return made


def measure(ours: GPT, theirs: Any, options: argparse.Namespace) -> list[Row]:
    """All rounds over all contexts, the two models in turns."""
    ours_rates: dict[int, list[tuple[float, float]]] = {context: [] for context in options.context}
    theirs_rates: dict[int, list[tuple[float, float]]] = {context: [] for context in options.context}
    for _ in range(options.rounds):
        for context in options.context:
            prompt = torch.randint(SHAPE.vocab_size, (context,)).tolist()
            stream = generate(ours, prompt, options=SamplingOptions())
            ours_rates[context].append(rates(stream, options.tokens))
            if theirs is not None:
                tokens = nanogpt_tokens(context, options)
                theirs_rates[context].append(rates(nanogpt_stream(theirs, prompt), tokens))
    rows = []
    for context in options.context:
        mine, others = zip(*ours_rates[context], strict=True), zip(*theirs_rates[context], strict=True)
        whole, steady = mine
        rows.append(Row("gptwright", context, options.tokens, median(whole), median(steady)))
        if theirs is not None:
            their_whole, their_steady = others
            rows.append(
                Row(
                    "nanoGPT",
                    context,
                    nanogpt_tokens(context, options),
                    median(their_whole),
                    median(their_steady),
                    median(a / b for a, b in zip(whole, their_whole, strict=True)),
                    median(a / b for a, b in zip(steady, their_steady, strict=True)),
                )
            )
    return rows


def measure_batches(ours: GPT, options: argparse.Namespace) -> list[BatchRow]:
    """All rounds over all batch sizes, in turns."""
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in options.batch}
    for _ in range(options.rounds):
        for size in options.batch:
            found[size].append(batch_rates(ours, batch_contexts(size, options), options.tokens))
    first = found[options.batch[0]]
    rows = []
    for size, rounds in found.items():
        whole, steady = zip(*rounds, strict=True)
        gains = [(a / c, b / d) for (a, b), (c, d) in zip(rounds, first, strict=True)]
        whole_gain, steady_gain = (median(gain) for gain in zip(*gains, strict=True))
        contexts = batch_contexts(size, options)
        rows.append(
            BatchRow(size, contexts, options.tokens, median(whole), median(steady), whole_gain, steady_gain)
        )
    return rows


def batch_contexts(size: int, options: argparse.Namespace) -> list[int]:
    """Lengths of so many prompts, evenly from the longest down."""
    return [max(1, options.batch_context * (size - index) // size) for index in range(size)]


def batch_rates(ours: GPT, contexts: list[int], tokens: int) -> tuple[float, float]:
    """Tokens a second of all prompts together: with the first token of each, and after it."""
    batch = Batch(ours, len(contexts))
    for seed, context in enumerate(contexts):
        batch.join(Stream(torch.randint(SHAPE.vocab_size, (context,)).tolist(), SamplingOptions(seed=seed)))
    start = time.perf_counter()
    times = []
    for _ in range(tokens):
        batch.step()
        times.append(time.perf_counter())
    made = len(contexts)
    return made * tokens / (times[-1] - start), made * (tokens - 1) / (times[-1] - times[0])


def nanogpt_tokens(context: int, options: argparse.Namespace) -> int:
    tokens: int = options.few if context >= LONG_CONTEXT else options.tokens
    return tokens


def rates(stream: Iterator[int], tokens: int) -> tuple[float, float]:
    """Tokens a second over `tokens` of a stream: with the first, and after it."""
    start = time.perf_counter()
    times = [time.perf_counter() for _ in islice(stream, tokens)]
    return len(times) / (times[-1] - start), (len(times) - 1) / (times[-1] - times[0])


def nanogpt_with_weights_of(ours: GPT, checkout: Path) -> Any:
    """nanoGPT's own model, executed from its checkout, with our weights under the same names."""
    path = checkout / "model.py"
    if not path.is_file():
        sys.exit(f"{path} is not there; --nanogpt takes the folder of a nanoGPT checkout")
    spec = importlib.util.spec_from_file_location("nanogpt_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = module
    spec.loader.exec_module(module)
    config = module.GPTConfig(
        block_size=SHAPE.block_size,
        vocab_size=SHAPE.vocab_size,
        n_layer=ours.shape.n_layer,
        n_head=SHAPE.n_head,
        n_embd=SHAPE.n_embd,
        dropout=SHAPE.dropout,
        bias=SHAPE.bias,
    )
    theirs = module.GPT(config).eval()
    theirs.load_state_dict(ours.state_dict())
    ids = torch.randint(SHAPE.vocab_size, (1, 32))
    with torch.inference_mode():
        apart = (ours.next_logits(ids) - theirs(ids)[0][:, -1]).abs().max().item()
    print(f"same weights in both: logits differ by at most {apart:.1e}")
    return theirs


def nanogpt_stream(theirs: Any, prompt: list[int]) -> Iterator[int]:
    """Its `generate`, one token a call: it keeps nothing between tokens that would be lost."""
    ids = torch.tensor([prompt])
    while True:
        ids = theirs.generate(ids, 1, temperature=0.8, top_k=200)
        yield int(ids[0, -1])


def table(rows: list[Row]) -> str:
    """The rows as text."""
    lines = [f"{'model':<10} {'context':>7} {'tokens':>6} {'whole/s':>8} {'steady/s':>8}   ours is"]
    for row in rows:
        line = f"{row.model:<10} {row.context:>7} {row.tokens:>6} {row.whole:>8.2f} {row.steady:>8.2f}"
        if row.ours_whole_ratio is not None:
            line += f"   {row.ours_whole_ratio:.1f} × and {row.ours_steady_ratio:.1f} ×"
        lines.append(line)
    return "\n".join(lines)


def batch_table(rows: list[BatchRow]) -> str:
    """The batches as text."""
    lines = [f"\n{'batch':>5} {'contexts':>9} {'tokens':>6} {'whole/s':>8} {'steady/s':>8}   gain"]
    for row in rows:
        contexts = f"{min(row.contexts)}–{max(row.contexts)}"
        lines.append(
            f"{row.batch:>5} {contexts:>9} {row.tokens:>6} {row.whole:>8.2f} {row.steady:>8.2f}"
            f"   {row.whole_gain:.2f} × and {row.steady_gain:.2f} ×"
        )
    return "\n".join(lines)


def machine() -> dict[str, str | float]:
    return {
        "cpu": find_device("cpu").name,
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "not set"),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else "unknown",
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gptwright": gptwright.__version__,
    }


if __name__ == "__main__":
    main()
