"""Logs of llm.c's four programs."""

from collections.abc import Mapping
from typing import Any

from tests.record.readers.samples.sample import Sample, loss_at


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
    for step in range(61):
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
    for step in range(30):
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
    for step in range(30):
        if step % 10 == 0:
            loss = repr(round(loss_at(step), 12) + 1e-13)
            sample.evaluation(f"val loss {loss}", step=step, val_loss=float(loss))
        loss, rate, ms = f"{loss_at(step):.6f}", f"{3e-4:.2e}", f"{251.3 + step % 4:.2f}"
        sample.row(
            f"step {step + 1:4d}/30 | train loss {loss} | norm 1.2345 | lr {rate}"
            f" | ({ms} ms | 1043159 tok/s)",
            step=step + 1,
            loss=float(loss),
            grad_norm=1.2345,
            learning_rate=3e-4,
            seconds=float(ms) * 1e-3,
            tokens_per_second=1043159,
        )
    sample.header["planned_steps"] = 30
    return sample


def llmc_older() -> Sample:
    sample = Sample("llm.c of early 2024", "llm.c")
    for step in range(20):
        loss, ms = f"{loss_at(step):.6f}", f"{251.3 + step % 4:.2f}"
        values = {
            "step": step + 1,
            "loss": float(loss),
            "seconds": float(ms) * 1e-3,
            "tokens_per_second": 260786,
        }
        if step < 5:
            line = f"step {step + 1:4d}/100: train loss {loss} (acc 4.367700) ({ms} ms, 260786 tok/s)"
        elif step < 10:
            line = (
                f"step {step + 1:4d}/100: train loss {loss} norm 1.2345 lr 3.00e-04 ({ms} ms, 260786 tok/s)"
            )
            values |= {"grad_norm": 1.2345, "learning_rate": 3e-4}
        else:
            line = (
                f"step {step + 1:4d}/100 | train loss {loss} | norm 1.2345 | lr 3.00e-04 | {ms} ms"
                " | 45.6% bf16 MFU | 260786 tok/s"
            )
            values |= {"grad_norm": 1.2345, "learning_rate": 3e-4, "mfu": 45.6 * 1e-2}
        sample.row(line, **values)
    sample.header["planned_steps"] = 100
    return sample


def llmc_file() -> Sample:
    sample = Sample("llm.c's main.log", "llm.c")
    for step in range(40):
        if step % 20 == 0:
            sample.evaluation(
                f"s:{step} tel:{loss_at(step):.4f}", step=step, val_loss=float(f"{loss_at(step):.4f}")
            )
            sample.say(f"s:{step} eval:0.2551")
        loss = f"{loss_at(step):.4f}"
        line = f"s:{step} trl:{loss} lr:0.000300 norm:0.80"
        sample.row(line, step=step, loss=float(loss), learning_rate=3e-4, grad_norm=0.8)
    return sample
