"""Logs of nanoGPT and of the trainers that grew out of it or led to it."""

from tests.record.readers.samples.sample import Sample, loss_at


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
    for step in range(60):
        if step % 25 == 0:
            loss = f"{loss_at(step):.4f}"
            sample.evaluation(f"validation loss: {loss}", step=step, val_loss=float(loss))
            sample.say(f"HellaSwag accuracy: {2460 + step}/10042={(2460 + step) / 10042:.4f}")
        loss, rate, norm = f"{loss_at(step):.6f}", f"{6e-4 * (step + 1) / 715:.4e}", f"{1.5 - step / 100:.4f}"
        ms, rate_of_tokens = f"{5012.34 + step:.2f}", f"{104599.13 - step:.2f}"
        sample.row(
            f"step {step:5d} | loss: {loss} | lr {rate} | norm: {norm} | dt: {ms}ms"
            f" | tok/sec: {rate_of_tokens}",
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
    for step in range(30):
        if step % 10 == 0:
            sample.evaluation(
                f"{step} val {loss_at(step):.4f}", step=step, val_loss=float(f"{loss_at(step):.4f}")
            )
            sample.say(f"{step} hella 0.2450")
        sample.row(f"{step} train {loss_at(step):.6f}", step=step, loss=float(f"{loss_at(step):.6f}"))
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
