"""A small log of every trainer and variant, built here line by line together with what it says.

The shapes are those that the trainers' sources print; the values are made up and agree with each other. Each
sample is its own truth: the tables that a reader must make of it are written down while the line is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, float]


@dataclass(slots=True)
class Sample:
    """A log and what it says.

    Attributes:
        name: of the variant.
        format: the reader's name for the trainer.
        lines: of the log.
        train: training rows: line, step and whatever else the line says.
        evals: evaluations likewise.
        header: facts by name.
        settings: echoed settings.
        events: kinds of event in order.
        hazards: hazards that the log itself has.
    """

    name: str
    format: str
    lines: list[str] = field(default_factory=list)
    train: list[Row] = field(default_factory=list)
    evals: list[Row] = field(default_factory=list)
    header: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    hazards: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def say(self, text: str, **header: Any) -> int:
        """Adds a line; `header` is what it says. Returns its number."""
        self.lines.append(text)
        self.header |= header
        return len(self.lines)

    def row(self, text: str, **values: float) -> None:
        """Adds a training line."""
        self.train.append({"line": self.say(text), **values})

    def evaluation(self, text: str, **values: float) -> None:
        """Adds a line of an evaluation."""
        self.evals.append({"line": self.say(text), **values})


def loss_at(step: float, start: float = 10.8) -> float:
    """Some loss that falls."""
    return 3.0 + (start - 3.0) / (1 + step / 150)


def nanogpt(*, mfu: bool = True, stamp: str = "") -> Sample:
    sample = Sample("nanoGPT" if mfu else "nanoGPT without MFU", "nanoGPT")
    sample.say("Overriding config with config/train_demo.py:")
    sample.say("# a demo, about 30M parameters")
    sample.say("out_dir = 'out-demo'")
    sample.say("batch_size = 8  # micro-batch")
    sample.say("gradient_accumulation_steps = 2 * 4")
    sample.settings |= {"out_dir": "out-demo", "batch_size": 8, "gradient_accumulation_steps": 8}
    sample.say("Overriding: dataset = demo")
    sample.say("Overriding: learning_rate = 0.001")
    sample.say("Overriding: bias = False")
    sample.settings |= {"dataset": "demo", "learning_rate": 0.001, "bias": False, "init_from": "scratch"}
    sample.say(f"{stamp}tokens per iteration will be: 65,536", tokens_per_step=65536)
    sample.say(f"{stamp}Initializing a new model from scratch")
    sample.say(
        "defaulting to vocab_size of GPT-2 to 50304 (50257 rounded up for efficiency)", vocab_size=50304
    )
    sample.say("number of parameters: 29.94M", parameters=29_940_000, parameters_rounding=5000.0)
    sample.say("num decayed parameter tensors: 26, with 30,326,784 parameters", decayed_parameters=30_326_784)
    sample.say("num non-decayed parameter tensors: 13, with 4,992 parameters", not_decayed_parameters=4992)
    sample.say("using fused AdamW: True", fused=True)
    sample.say("compiling the model... (takes a ~minute)", compile=True)
    for step in range(0, 301, 10):
        if step % 100 == 0:
            train, val = f"{loss_at(step) - 0.01:.4f}", f"{loss_at(step):.4f}"
            sample.evaluation(
                f"{stamp}step {step}: train loss {train}, val loss {val}",
                step=step,
                train_loss=float(train),
                val_loss=float(val),
            )
            if step:
                sample.say(f"{stamp}saving checkpoint to out-demo")
                sample.events.append("checkpoint")
        loss, ms = f"{loss_at(step) + 0.02:.4f}", f"{204.4 + step % 7 + 900 * (step % 100 == 0):.2f}"
        percent = "-100.00" if step < 20 else f"{21 + step % 3:.2f}"
        values = {"step": step, "loss": float(loss), "seconds": float(ms) * 1e-3}
        line = f"{stamp}iter {step}: loss {loss}, time {ms}ms"
        if mfu:
            line += f", mfu {percent}%"
            if step >= 20:
                values["mfu"] = float(percent) * 1e-2
        sample.row(line, **values)
    return sample


def nanogpt_nan() -> Sample:
    sample = Sample("nanoGPT with NaN", "nanoGPT")
    stamp = "[2023-03-17 09:12:05] "
    for step in range(0, 60, 5):
        loss = "nan" if step > 30 else f"{loss_at(step):.4f}"
        line = f"{stamp}iter {step}: lr 6.000000e-04, loss {loss}, time 1096.10ms, mfu 15.35%;"
        mfu, seconds = 15.35 * 1e-2, 1096.10 * 1e-3
        sample.row(line, step=step, loss=float(loss), seconds=seconds, mfu=mfu, learning_rate=6e-4)
    sample.evaluation(
        f"{stamp}step 60: train loss nan, val loss nan",
        step=60,
        train_loss=float("nan"),
        val_loss=float("nan"),
    )
    return sample


def llama2c() -> Sample:
    sample = Sample("llama2.c", "llama2.c")
    sample.say("tokens per iteration will be: 32,768", tokens_per_step=32768)
    sample.say(
        "breaks down as: 4 grad accum steps * 1 processes * 32 batch size * 256 max seq len",
        gradient_accumulation_steps=4,
        world_size=1,
        micro_batch=32,
        block_size=256,
    )
    for step in range(0, 200, 10):
        if step % 100 == 0:
            sample.evaluation(
                f"step {step}: train loss {loss_at(step):.4f}, val loss {loss_at(step) + 0.1:.4f}",
                step=step,
                train_loss=round(loss_at(step), 4),
                val_loss=float(f"{loss_at(step) + 0.1:.4f}"),
            )
        loss, rate, ms = f"{loss_at(step):.4f}", f"{5e-4 * step / 200:e}", f"{233.75 + step % 3:.2f}"
        values = {
            "step": step,
            "loss": float(loss),
            "learning_rate": float(rate),
            "seconds": float(ms) * 1e-3,
        }
        sample.row(f"{step} | loss {loss} | lr {rate} | {ms}ms | mfu 12.34%", mfu=12.34 * 1e-2, **values)
    return sample


def build_nanogpt() -> Sample:
    sample = Sample("build-nanogpt", "build-nanogpt")
    sample.say("using device: cuda")
    sample.say("total desired batch size: 524288", tokens_per_step=524288)
    sample.say("=> calculated gradient accumulation steps: 64", gradient_accumulation_steps=64)
    for step in range(0, 60):
        if step % 25 == 0:
            loss = f"{loss_at(step):.4f}"
            sample.evaluation(f"validation loss: {loss}", step=step, val_loss=float(loss))
            sample.say(f"HellaSwag accuracy: {2460 + step}/10042={(2460 + step) / 10042:.4f}")
        loss, rate, norm = f"{loss_at(step):.6f}", f"{6e-4 * (step + 1) / 715:.4e}", f"{1.5 - step / 100:.4f}"
        ms, rate_of_tokens = f"{5012.34 + step:.2f}", f"{104599.13 - step:.2f}"
        sample.row(
            f"step {step:5d} | loss: {loss} | lr {rate} | norm: {norm} | dt: {ms}ms | tok/sec: {rate_of_tokens}",
            step=step,
            loss=float(loss),
            learning_rate=float(rate),
            grad_norm=float(norm),
            seconds=float(ms) * 1e-3,
            tokens_per_second=float(rate_of_tokens),
        )
    return sample


def build_nanogpt_file() -> Sample:
    sample = Sample("build-nanogpt log.txt", "build-nanogpt")
    for step in range(0, 30):
        if step % 10 == 0:
            sample.evaluation(
                f"{step} val {loss_at(step):.4f}", step=step, val_loss=float(f"{loss_at(step):.4f}")
            )
            sample.say(f"{step} hella 0.2450")
        sample.row(f"{step} train {loss_at(step):.6f}", step=step, loss=float(f"{loss_at(step):.6f}"))
    return sample


def nanochat(*, old: bool = False) -> Sample:
    sample = Sample("old nanochat" if old else "nanochat", "nanochat")
    if not old:
        sample.say(
            "GPU: NVIDIA GeForce RTX 4090 | Peak FLOPS (BF16): 1.65e+14",
            device="NVIDIA GeForce RTX 4090",
            mfu_peak_flops=1.65e14,
        )
        sample.say("COMPUTE_DTYPE: torch.bfloat16 (auto-detected: CUDA SM 89 (bf16 supported))")
        sample.settings["dtype"] = "bfloat16"
    sample.say("Vocab size: 32,768", vocab_size=32768)
    if old:
        sample.say("num_layers: 12", n_layer=12)
        sample.say("Number of parameters: 186,261,730", parameters_total=186_261_730)
    else:
        sample.say('{\n  "sequence_len": 2048,'.split("\n")[0])
        sample.say('  "sequence_len": 2048,', block_size=2048)
        sample.say('  "n_layer": 12,', n_layer=12)
        sample.say('  "n_embd": 768,', n_embd=768)
        sample.say("}")
        sample.say("total                   : 286,261,730", parameters_total=286_261_730)
    sample.say("Estimated FLOPs per token: 8.870000e+08", flops_per_token=8.87e8)
    sample.say("Calculated number of iterations from target data:param ratio: 10,000", planned_steps=10000)
    sample.say("Total number of training tokens: 655,360,000", planned_tokens=655_360_000)
    sample.say("Tokens / micro-batch / rank: 8 x 2048 = 16,384", micro_batch=8, block_size=2048)
    sample.say("Tokens / micro-batch: 32,768", tokens_per_micro_batch=32768, world_size=2)
    sample.say(
        "Total batch size 65,536 => gradient accumulation steps: 2",
        tokens_per_step=65536,
        gradient_accumulation_steps=2,
    )
    for step in range(0, 25):
        if step % 10 == 0:
            bpb = f"{3.2 - step / 50:.6f}"
            sample.evaluation(f"Step {step:05d} | Validation bpb: {bpb}", step=step, val_bpb=float(bpb))
        loss, ms, rate = f"{loss_at(step, 10.4):.6f}", f"{812.34 + step:.2f}", 80675 + step
        name, tail = ("mfu", "") if old else ("bf16_mfu", " | epoch: 1 pq: 0 rg: 1")
        eta = f" | eta: {129.7 - step:.1f}m" if step > 10 else ""
        sample.row(
            f"step {step:05d}/10000 ({step / 100:.2f}%) | loss: {loss} | lrm: 1.00 | dt: {ms}ms"
            f" | tok/sec: {rate:,} | {name}: 43.32{tail} | total time: {step / 50:.2f}m{eta}",
            step=step,
            loss=float(loss),
            learning_rate=1.0,
            seconds=float(ms) * 1e-3,
            tokens_per_second=rate,
            mfu=43.32 * 1e-2,
        )
    sample.say("Peak memory usage: 9436.49MiB", peak_memory_bytes=round(9436.49 * 2**20))
    sample.say("Total training time: 135.24m", training_seconds=135.24 * 60)
    sample.say("Minimum validation bpb: 2.800000")
    return sample


def autoresearch() -> Sample:
    sample = Sample("autoresearch", "autoresearch")
    sample.say("Vocab size: 8,192", vocab_size=8192)
    sample.say(
        "Model config: {'sequence_len': 2048, 'vocab_size': 8192, 'n_layer': 8, 'n_head': 4, 'n_kv_head': 4,"
        " 'n_embd': 512, 'window_pattern': 'L'}",
        block_size=2048,
        n_layer=8,
        n_head=4,
        n_embd=512,
    )
    sample.say("Time budget: 300s")
    sample.say("Gradient accumulation steps: 8", gradient_accumulation_steps=8)
    bars = []
    for step in range(60):
        loss = f"{loss_at(step, 9.0):.6f}"
        bars.append(
            f"\rstep {step:05d} ({step / 0.6:.1f}%) | loss: {loss} | lrm: 0.50 | dt: {4950 + step}ms"
            f" | tok/sec: {105911 - step:,} | mfu: 12.3% | epoch: 1 | remaining: {300 - 5 * step}s    "
        )
        sample.train.append(
            {
                "line": len(sample.lines) + 1,
                "step": step,
                "loss": float(loss),
                "seconds": (4950 + step) * 1e-3,
                "tokens_per_second": 105911 - step,
                "mfu": 12.3 * 1e-2,
            }
        )
    sample.hazards["carriage returns"] = 60
    sample.say("".join(bars))
    sample.say("---")
    sample.evaluation("val_bpb:          1.123456", step=60, val_bpb=1.123456)
    sample.say("training_seconds: 300.1", training_seconds=300.1)
    sample.say("peak_vram_mb:     9024.5", peak_memory_bytes=round(9024.5 * 2**20))
    return sample


def modded(*, seconds: bool = False, train_loss: bool = False) -> Sample:
    name = f"modded-nanogpt{' in seconds' if seconds else ''}{' with train loss' if train_loss else ''}"
    sample = Sample(name, "modded-nanogpt")
    sample.say("import os")
    sample.say('    print0(f"step:{step}/{train_steps} val_loss:{val_loss:.4f} train_time:{ms:.0f}ms")')
    sample.say('    raise ValueError("ERROR: magic number mismatch")')
    sample.say("=" * 100)
    sample.say("Running Python 3.12.7")
    sample.say(
        "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:61:00.0 Off |                    0 |",
        device="NVIDIA H100 80GB HBM3",
    )
    sample.say(
        "| N/A   33C    P0            115W /  700W |    6301MiB /  81559MiB |      0%      Default |",
        device_memory_bytes=round(81559 * 2.0**20),
    )
    sample.say("=" * 100)
    sample.header["planned_steps"] = 60
    before: tuple[int, float] | None = None
    for step in range(0, 61):
        clock = 142.5 * (step if step <= 10 else step - 10) + 1000 * (0 < step <= 10)
        shown = f"{clock / 1000:.3f}s" if seconds else f"{clock:.0f}ms"
        read = float(shown[:-1]) if seconds else float(shown[:-2]) * 1e-3
        average = "nan" if step <= 10 else f"{clock / (step - 10):.2f}"
        tail = f"train_time:{shown} step_avg:{average}ms"
        loss = f"{loss_at(step):.5f}" if seconds else f"{loss_at(step):.4f}"
        if step:
            values: Row = {"step": step}
            if train_loss:
                values["loss"] = float(loss)
            if before is not None and read > before[1]:
                values["seconds"] = (read - before[1]) / (step - before[0])
            sample.row(f"step:{step}/60 {f'train_loss:{loss} ' if train_loss else ''}{tail}", **values)
            before = step, read
        if step % 20 == 0:
            sample.evaluation(f"step:{step}/60 val_loss:{loss} {tail}", step=step, val_loss=float(loss))
    sample.say(
        "peak memory allocated: 31200 MiB reserved: 47400 MiB", peak_memory_bytes=round(31200 * 2.0**20)
    )
    return sample


def modded_evaluations_only() -> Sample:
    sample = Sample("modded-nanogpt, evaluations only", "modded-nanogpt")
    sample.say("=" * 100)
    sample.header["planned_steps"] = 3350
    before = None
    for step in range(0, 1001, 125):
        clock, loss = f"{step * 0.147:.3f}", f"{loss_at(step):.5f}"
        line = f"step:{step}/3350 val_loss:{loss} train_time:{clock}s step_avg:{147 if step else 'nan'}ms"
        sample.evaluation(line, step=step, val_loss=float(loss))
        values: Row = {"step": step}
        if before is not None:
            values["seconds"] = (float(clock) - before) / 125
        sample.train.append({"line": len(sample.lines), **values})
        before = float(clock)
    return sample


def modded_oldest() -> Sample:
    sample = Sample("modded-nanogpt's oldest", "modded-nanogpt")
    sample.say("=" * 100)
    for step in range(0, 50):
        if step % 25 == 0:
            loss = f"{loss_at(step):.6f}"
            sample.evaluation(f"s:{step} tel:{loss}", step=step, val_loss=float(loss))
        sample.row(f"s:{step} trl:{loss_at(step):.6f}", step=step, loss=float(f"{loss_at(step):.6f}"))
    return sample


def llmc() -> Sample:
    sample = Sample("llm.c", "llm.c")
    table: Mapping[str, tuple[str, dict[str, Any]]] = {
        "micro batch size B": ("16", {"micro_batch": 16}),
        "sequence length T": ("1024", {"block_size": 1024}),
        "total batch size": ("524288", {"tokens_per_step": 524288}),
        "learning rate (LR)": ("6.000000e-04", {}),
        "warmup iterations": ("700", {}),
        "final LR fraction": ("1.000000e-01", {}),
        "weight decay": ("1.000000e-01", {}),
        "max_steps": ("1000", {"planned_steps": 1000}),
        "val_loss_every": ("20", {}),
        "device": ("NVIDIA GeForce RTX 4090", {"device": "NVIDIA GeForce RTX 4090"}),
        "peak TFlops": ("165.2", {"mfu_peak_flops": 165.2e12}),
        "precision": ("BF16", {}),
        "vocab_size V": ("50257", {"vocab_size": 50257}),
        "padded_vocab_size Vp": ("50304", {"padded_vocab_size": 50304}),
        "num_layers L": ("12", {"n_layer": 12}),
        "num_heads NH": ("12", {"n_head": 12}),
        "channels C": ("768", {"n_embd": 768}),
        "num_parameters": ("124475904", {"parameters_total": 124_475_904}),
        "num_processes": ("1", {"world_size": 1}),
    }
    sample.say(f"+{'-' * 23}+{'-' * 52}+")
    for name, (value, said) in table.items():
        sample.say(f"| {name:<21} | {value:<50} |", **said)
    sample.settings |= {
        "learning_rate": 6e-4,
        "warmup_iters": 700,
        "min_lr": 6e-4 * 0.1,
        "weight_decay": 0.1,
        "eval_interval": 20,
        "dtype": "bfloat16",
    }
    sample.say("=> setting grad_accum_steps=32", gradient_accumulation_steps=32)
    for step in range(0, 61):
        if step % 20 == 0:
            loss = f"{loss_at(step):.6f}"
            sample.evaluation(f"val loss {loss}", step=step, val_loss=float(loss))
        if step == 60:
            break
        z = "+nan" if step < 10 else f"{(step % 5) / 4 - 0.5:+.2f}"
        loss, norm, rate = f"{loss_at(step):7.6f}", f"{2 - step / 100:6.4f}", f"{6e-4 * (step + 1) / 700:.2e}"
        ms, tokens = f"{4170 + step % 9:.2f}", f"{125670 + step}"
        sample.row(
            f"step {step + 1:4d}/1000 | loss {loss} ({z}z)| norm {norm} ({z}z)| lr {rate} | {ms} ms"
            f" | 61.1% bf16 MFU | {tokens} tok/s",
            step=step + 1,
            loss=float(loss),
            grad_norm=float(norm),
            learning_rate=float(rate),
            seconds=float(ms) * 1e-3,
            mfu=61.1 * 1e-2,
            tokens_per_second=float(tokens),
        )
        if step == 30:
            sample.say(
                f"{' ' * 18}compute 98.0% | memory: 61.0% | fan: 45% | 2520 MHz / 2520 MHz | 310 W / 450 W"
            )
            sample.say("skipping update due to loss z-score of 3.123456")
            sample.events.append("skipped update")
    sample.say("Writing model to log_run/model_00001000.bin")
    sample.events.append("checkpoint")
    return sample


def llmc_cpu() -> Sample:
    sample = Sample("llm.c on a CPU", "llm.c")
    sample.say("[GPT-2]")
    sample.say("max_seq_len: 1024", block_size=1024)
    sample.say("vocab_size: 50257", vocab_size=50257)
    sample.say("padded_vocab_size: 50304", padded_vocab_size=50304)
    sample.say("num_layers: 12", n_layer=12)
    sample.say("num_heads: 12", n_head=12)
    sample.say("channels: 768", n_embd=768)
    sample.say("num_parameters: 124475904", parameters_total=124_475_904)
    for step in range(0, 30):
        if step % 10 == 0:
            sample.evaluation(
                f"val loss {loss_at(step):.6f}", step=step, val_loss=float(f"{loss_at(step):.6f}")
            )
        loss, ms = f"{loss_at(step):.6f}", f"{1523.456789 + step:.6f}"
        sample.row(
            f"step {step}: train loss {loss} (took {ms} ms)",
            step=step,
            loss=float(loss),
            seconds=float(ms) * 1e-3,
        )
    return sample


def llmc_reference() -> Sample:
    sample = Sample("llm.c's reference", "llm.c")
    sample.say("total desired batch size: 262144", tokens_per_step=262144)
    sample.say("=> calculated gradient accumulation steps: 4", gradient_accumulation_steps=4)
    for step in range(0, 30):
        if step % 10 == 0:
            loss = repr(round(loss_at(step), 12) + 1e-13)
            sample.evaluation(f"val loss {loss}", step=step, val_loss=float(loss))
        loss, rate, ms = f"{loss_at(step):.6f}", f"{3e-4:.2e}", f"{251.3 + step % 4:.2f}"
        sample.row(
            f"step {step + 1:4d}/30 | train loss {loss} | norm 1.2345 | lr {rate} | ({ms} ms | 1043159 tok/s)",
            step=step + 1,
            loss=float(loss),
            grad_norm=1.2345,
            learning_rate=3e-4,
            seconds=float(ms) * 1e-3,
            tokens_per_second=1043159,
        )
    sample.header["planned_steps"] = 30
    return sample


def llmc_file() -> Sample:
    sample = Sample("llm.c's main.log", "llm.c")
    for step in range(0, 40):
        if step % 20 == 0:
            sample.evaluation(
                f"s:{step} tel:{loss_at(step):.4f}", step=step, val_loss=float(f"{loss_at(step):.4f}")
            )
            sample.say(f"s:{step} eval:0.2551")
        loss = f"{loss_at(step):.4f}"
        line = f"s:{step} trl:{loss} lr:0.000300 norm:0.80"
        sample.row(line, step=step, loss=float(loss), learning_rate=3e-4, grad_norm=0.8)
    return sample


def litgpt() -> Sample:
    sample = Sample("litgpt", "litgpt")
    sample.say(
        "          'micro_batch_size': 4, TrainArgs(global_batch_size=16, micro_batch_size=4,", micro_batch=4
    )
    sample.say("Time to instantiate model: 0.04 seconds.")
    sample.say("Total parameters: 162,322,944", parameters_total=162_322_944)
    sample.say("Verifying settings ...")
    sample.say("Measured TFLOPs: 12.34")
    sample.header["gradient_accumulation_steps"] = 4
    last = "n/a"
    for step in range(10, 101, 10):
        loss, ms = f"{loss_at(step):.3f}", f"{312.45 + step % 3:.2f}"
        sample.row(
            f"Epoch 1 | iter {4 * step} step {step} | loss train: {loss}, val: {last} | iter time: {ms} ms (step)"
            f" remaining time: 1:02:{step % 60:02d}",
            step=step,
            loss=float(loss),
            seconds=float(ms) * 1e-3 * 4,
        )
        if step % 50 == 0:
            val = f"{loss_at(step) + 0.1:.4f}"
            sample.say("Validating ...")
            sample.evaluation(
                f"iter {4 * step}: val loss {val}, val time: 4567.89 ms", step=step, val_loss=float(val)
            )
            last = f"{float(val):.3f}"
            sample.say(f"Saving checkpoint to '/out/step-{step:08d}/lit_model.pth'")
            sample.events.append("checkpoint")
    sample.evaluation("Final evaluation | val loss: 4.321 | val ppl: 75.264", step=100, val_loss=4.321)
    sample.say("| - Training Time : 227.50 s", training_seconds=227.5)
    sample.say("| - Memory Used   : 31.77 GB", peak_memory_bytes=31_770_000_000)
    return sample


def lit_llama() -> Sample:
    sample = Sample("lit-llama", "lit-llama")
    for step in range(0, 20):
        loss, ms = f"{loss_at(step):.4f}", f"{5024.25 + step:.2f}"
        sample.row(
            f"iter {step}: loss {loss}, time: {ms}ms, speed: 1705 toks/s/device",
            step=step,
            loss=float(loss),
            seconds=float(ms) * 1e-3,
        )
    sample.hazards["steps counted in micro-batches"] = 20
    return sample


def hugging_face(*, strings: bool = False) -> Sample:
    sample = Sample("Trainer with strings" if strings else "Trainer", "Hugging Face Trainer")
    sample.say("***** Running training *****")
    sample.say("  Instantaneous batch size per device = 8", micro_batch=8)
    sample.say("  Gradient Accumulation steps = 2", gradient_accumulation_steps=2)
    sample.say("  Total optimization steps = 200", planned_steps=200)
    sample.say("  Number of trainable parameters = 21,176,320", parameters_total=21_176_320)
    quote = "'" if strings else ""

    def shown(value: float) -> str:
        return f"{quote}{value:.4g}{quote}" if strings else repr(value)

    for step in range(10, 201, 10):
        loss, norm, rate = (
            round(loss_at(step), 3),
            round(1.5 - step / 400, 3),
            round(5e-5 * (1 - step / 200), 8),
        )
        bar = f"\r{step // 2:3d}%|#####     | {step}/200 [00:07<05:52,  1.39it/s]\r{' ' * 30}\r"
        line = (
            f"{bar}{{'loss': {shown(loss)}, 'grad_norm': {shown(norm)}, 'learning_rate': {shown(rate)},"
            f" 'epoch': {shown(step / 100)}}}"
        )
        sample.hazards["carriage returns"] = sample.hazards.get("carriage returns", 0) + 3
        sample.row(
            line,
            step=step,
            loss=float(shown(loss).strip("'")),
            grad_norm=float(shown(norm).strip("'")),
            learning_rate=float(shown(rate).strip("'")),
        )
        if step % 100 == 0:
            sample.evaluation(
                f"{{'eval_loss': {shown(5.123)}, 'eval_runtime': {shown(12.34)},"
                f" 'eval_samples_per_second': {shown(81.0)}, 'epoch': {shown(step / 100)}}}",
                step=step,
                val_loss=5.123,
            )
            sample.say("Saving model checkpoint to out/checkpoint-100")
            sample.events.append("checkpoint")
    sample.say(
        f"{{'train_runtime': {shown(360.2)}, 'train_samples_per_second': {shown(44.4)},"
        f" 'train_loss': {shown(6.5)}, 'epoch': {shown(2.0)}}}",
        training_seconds=360.2,
    )
    return sample


def trainer_state() -> Sample:
    sample = Sample("trainer_state.json", "Hugging Face Trainer")
    sample.say("{")
    sample.say('  "best_metric": 3.1519,')
    sample.say('  "global_step": 100,')
    sample.say('  "log_history": [')
    for step in range(10, 101, 10):
        sample.say("    {")
        sample.say(f'      "epoch": {step / 50},')
        sample.say('      "grad_norm": 1.520222,')
        sample.say(f'      "learning_rate": {5e-05 * (1 - step / 100)},')
        loss = round(loss_at(step), 4)
        line = sample.say(f'      "loss": {loss},')
        sample.say(f'      "step": {step}')
        sample.say("    },")
        rate = 5e-05 * (1 - step / 100)
        sample.train.append(
            {"line": line, "step": step, "loss": loss, "grad_norm": 1.520222, "learning_rate": rate}
        )
        if step % 50 == 0:
            sample.say("    {")
            sample.say(f'      "epoch": {step / 50},')
            line = sample.say('      "eval_loss": 3.2087,')
            sample.say('      "eval_runtime": 14.6629,')
            sample.say(f'      "step": {step}')
            sample.say("    }," if step < 100 else "    }")
            sample.evals.append({"line": line, "step": step, "val_loss": 3.2087})
    sample.say("  ],")
    sample.say('  "max_steps": 100,', planned_steps=100)
    sample.say('  "train_batch_size": 8,', micro_batch=8)
    sample.say('  "trial_params": null')
    sample.say("}")
    return sample


def torchtitan() -> Sample:
    sample = Sample("torchtitan", "torchtitan")
    front = "[titan] 2025-05-02 08:00:00,000 - root - INFO - "
    sample.say(
        f"{front}CUDA capacity: NVIDIA A100-SXM4-80GB with 79.25GiB memory",
        device="NVIDIA A100-SXM4-80GB",
        device_memory_bytes=round(79.25 * 2**30),
    )
    sample.say(
        f"{front}\x1b[34mModel llama3 base \x1b[31msize: 163,597,824 total parameters\x1b[39m",
        parameters_total=163_597_824,
    )
    sample.say(f"{front}Peak FLOPS used for computing MFU: 3.120e+14", mfu_peak_flops=3.12e14)
    sample.say(
        f"{front}Trainer is initialized with 32768 tokens per DP rank, 262144 tokens per train step, gradient"
        " accumulation steps 1, maximum context length 2048, total steps 4000 (warmup 200)",
        tokens_per_micro_batch=32768,
        tokens_per_step=262144,
        gradient_accumulation_steps=1,
        block_size=2048,
        planned_steps=4000,
        world_size=8,
    )
    sample.settings["warmup_iters"] = 200
    sample.hazards["terminal codes"] = 3
    for step in [1, *range(10, 101, 10)]:
        loss, norm, tokens = f"{loss_at(step):8.5f}", f"{1.6 - step / 200:7.4f}", 105000 + step
        sample.row(
            f"{front}\x1b[31mstep: {step:2}  \x1b[32mloss: {loss}  \x1b[38;2;180;60;0mgrad_norm: {norm}  "
            f"\x1b[38;2;54;234;195mmemory: 41.80GiB(52.74%)  \x1b[34mtps: {tokens:,}  \x1b[36mtflops: 102.18"
            "  \x1b[35mmfu: 32.75%\x1b[39m",
            step=step,
            loss=float(loss),
            grad_norm=float(norm),
            tokens_per_second=tokens * 8,
            mfu=32.75 * 1e-2,
        )
        sample.hazards["terminal codes"] += 8
    sample.evaluation(
        f"{front}\x1b[33mvalidate step: 100  \x1b[32mloss:  7.6000  \x1b[38;2;54;234;195mmemory: 40.10GiB(50.60%)"
        "  \x1b[34mtps: 88,000\x1b[39m",
        step=100,
        val_loss=7.6,
    )
    sample.hazards["terminal codes"] += 5
    sample.header["peak_memory_bytes"] = round(41.80 * 2**30)
    return sample


def mingpt() -> Sample:
    sample = Sample("minGPT", "minGPT")
    sample.say("data has 1115394 characters, 65 unique.", vocab_size=65)
    sample.say("number of parameters: 10.77M", parameters_total=10_770_000, parameters_total_rounding=5000.0)
    for step in range(0, 201, 10):
        loss = f"{loss_at(step, 4.2):.5f}"
        sample.row(
            f"iter_dt 20.31ms; iter {step}: train loss {loss}",
            step=step,
            loss=float(loss),
            seconds=20.31 * 1e-3,
        )
    return sample


def lecture() -> Sample:
    sample = Sample("ng-video-lecture", "ng-video-lecture")
    sample.say("10.788929 M parameters", parameters_total=10_788_929, parameters_total_rounding=0.5)
    for step in range(0, 2001, 500):
        train, val = f"{loss_at(step, 4.2):.4f}", f"{loss_at(step, 4.2) + 0.06:.4f}"
        line = f"step {step}: train loss {train}, val loss {val}"
        sample.evaluation(line, step=step, train_loss=float(train), val_loss=float(val))
    return sample


def mlx() -> Sample:
    sample = Sample("MLX", "MLX")
    sample.say(
        "Trainable parameters: 0.048% (4.473M/9241.706M)",
        parameters_total=9_241_706_000,
        parameters_total_rounding=500.0,
    )
    sample.say("Starting training..., iters: 100", planned_steps=100)
    sample.evaluation("Iter 1: Val loss 4.086, Val took 17.177s", step=1, val_loss=4.086)
    for step in range(10, 101, 10):
        sample.row(
            f"Iter {step}: Train loss {loss_at(step, 4.1):.3f}, Learning Rate 1.000e-05, It/sec 0.987,"
            f" Tokens/sec 387.697, Trained Tokens {step * 388}, Peak mem 8.104 GB",
            step=step,
            loss=float(f"{loss_at(step, 4.1):.3f}"),
            learning_rate=1e-5,
            seconds=1 / 0.987,
            tokens_per_second=387.697,
        )
    sample.header["peak_memory_bytes"] = 8_104_000_000
    return sample


def megatron() -> Sample:
    sample = Sample("Megatron-LM", "Megatron-LM")
    sample.say("------------------------ arguments ------------------------")
    sample.say("  hidden_size ..................................... 1024", n_embd=1024)
    sample.say("  lr .............................................. 0.00033")
    sample.settings["learning_rate"] = 0.00033
    sample.say("  num_layers ...................................... 24", n_layer=24)
    sample.say("  seq_length ...................................... 2048", block_size=2048)
    sample.say("-------------------- end of arguments ---------------------")
    for step in range(100, 1001, 100):
        loss = f"{loss_at(step):.6E}"
        skipped = 17 if step == 100 else 0
        sample.row(
            f" iteration {step:8d}/  500000 | consumed samples: {256 * step:12d} | elapsed time per iteration (ms):"
            f" 4320.1 | learning rate: 3.320E-05 | global batch size:   256 | lm loss: {loss} | loss scale: 65536.0"
            f" | grad norm: 3.903 | number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |",
            step=step,
            loss=float(loss),
            seconds=4320.1 * 1e-3,
            learning_rate=3.32e-5,
            grad_norm=3.903,
        )
        if skipped:
            sample.events.append("skipped update")
    sample.header |= {"planned_steps": 500000, "tokens_per_step": 256 * 2048}
    sample.say("-" * 100)
    sample.evaluation(
        " validation loss at iteration 1000 | lm loss value: 4.017391E+00 | lm loss PPL: 5.555600E+01 | ",
        step=1000,
        val_loss=4.017391,
    )
    return sample


def our_log() -> Sample:
    sample = Sample("our log.txt", "gptwright")
    sample.say("tokens per iteration will be: 768", tokens_per_step=768)
    sample.say("vocab_size = 65", vocab_size=65)
    sample.say("number of parameters: 0.80M", parameters=800_000, parameters_rounding=5000.0)
    sample.say(
        "device: AMD EPYC, float32, measured matmul peak 181.2 GFLOP/s (mfu is relative to it)",
        device="AMD EPYC",
        mfu_peak_flops=181.2e9,
    )
    sample.settings["dtype"] = "float32"
    for step in range(0, 101, 10):
        if step % 50 == 0:
            train, val = f"{loss_at(step, 4.2):.4f}", f"{loss_at(step, 4.2) + 0.05:.4f}"
            sample.evaluation(
                f"step {step}: train loss {train}, val loss {val} (standard errors 0.0021, 0.0020)",
                step=step,
                train_loss=float(train),
                val_loss=float(val),
                train_standard_error=0.0021,
                val_standard_error=0.0020,
            )
        loss = f"{loss_at(step, 4.2):.4f}"
        line = f"iter {step}: loss {loss}, time 80.56ms, mfu 27.19%"
        sample.row(line, step=step, loss=float(loss), seconds=80.56 * 1e-3, mfu=27.19 * 1e-2)
    return sample


def our_metrics() -> Sample:
    sample = Sample("our metrics.jsonl", "gptwright")
    sample.say(
        '{"v": 1, "kind": "start", "time": 1795829022.394, "step": 0, "tokens_per_step": 768, "vocab_size": 65,'
        ' "parameters_nanogpt": 795904, "parameters_total": 804096, "device": "AMD EPYC", "dtype": "float32",'
        ' "peak_flops": 181241780614.5, "max_iters": 2000}',
        tokens_per_step=768,
        vocab_size=65,
        parameters=795904,
        parameters_total=804096,
        device="AMD EPYC",
        mfu_peak_flops=181241780614.5,
        planned_steps=2000,
    )
    sample.settings["dtype"] = "float32"
    for step in range(0, 101, 10):
        loss = loss_at(step, 4.2)
        if step % 50 == 0:
            sample.evaluation(
                f'{{"v": 1, "kind": "eval", "time": 1.5, "step": {step}, "train_loss": {loss}, "train_windows": 240,'
                f' "train_loss_standard_error": 0.0021, "val_loss": {loss + 0.05}, "val_loss_standard_error": 0.002}}',
                step=step,
                train_loss=loss,
                val_loss=loss + 0.05,
                train_standard_error=0.0021,
                val_standard_error=0.002,
            )
        shown = '"nan"' if step == 100 else loss
        sample.row(
            f'{{"v": 1, "kind": "train", "time": 2.5, "step": {step}, "loss": {shown}, "loss_mean": {loss}, "lr": 0.001,'
            ' "grad_norm": null, "seconds": 0.08, "tokens_per_second": 9532.8, "mfu": 0.27, "tokens": 768}',
            step=step,
            loss=float("nan") if step == 100 else loss,
            learning_rate=0.001,
            seconds=0.08,
            tokens_per_second=9532.8,
            mfu=0.27,
        )
    sample.say(
        '{"v": 1, "kind": "end", "time": 3.5, "step": 101, "state": "failed", "reason": "loss is nan"}'
    )
    sample.events.append("error")
    return sample


SAMPLES: tuple[Callable[[], Sample], ...] = (
    nanogpt,
    lambda: nanogpt(mfu=False),
    lambda: nanogpt(stamp="[2023-03-17 09:12:05] "),
    nanogpt_nan,
    llama2c,
    build_nanogpt,
    build_nanogpt_file,
    nanochat,
    lambda: nanochat(old=True),
    autoresearch,
    modded,
    lambda: modded(seconds=True),
    lambda: modded(train_loss=True),
    modded_evaluations_only,
    modded_oldest,
    llmc,
    llmc_cpu,
    llmc_reference,
    llmc_file,
    litgpt,
    lit_llama,
    hugging_face,
    lambda: hugging_face(strings=True),
    trainer_state,
    torchtitan,
    mingpt,
    lecture,
    mlx,
    megatron,
    our_log,
    our_metrics,
)
