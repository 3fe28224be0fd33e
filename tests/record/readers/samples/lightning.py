"""Logs of litgpt and its ancestor, of MLX, and of Megatron-LM."""

from tests.record.readers.samples.sample import Sample, loss_at


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
            f"Epoch 1 | iter {4 * step} step {step} | loss train: {loss}, val: {last} | iter time: {ms} ms"
            f" (step) remaining time: 1:02:{step % 60:02d}",
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


def lit_gpt() -> Sample:
    sample = Sample("lit-gpt", "litgpt")
    for micro in range(1, 41):
        loss, ms, step = f"{loss_at(micro):.4f}", f"{500.25 + micro:.2f}", micro // 4
        line = f"iter {micro} step {step}: loss {loss}, iter time: {ms}ms"
        if micro % 4:
            sample.say(line)
        else:
            values = {"step": step, "loss": float(loss), "seconds": float(ms) * 1e-3 * 4}
            sample.row(f"{line} (optimizer.step)", **values)
    sample.header["gradient_accumulation_steps"] = 4
    return sample


def lit_llama() -> Sample:
    sample = Sample("lit-llama", "lit-llama")
    for step in range(20):
        loss, ms = f"{loss_at(step):.4f}", f"{5024.25 + step:.2f}"
        sample.row(
            f"iter {step}: loss {loss}, time: {ms}ms, speed: 1705 toks/s/device",
            step=step,
            loss=float(loss),
            seconds=float(ms) * 1e-3,
        )
    sample.hazards["steps counted in micro-batches"] = 20
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
    sample.header["tokens_per_step"] = 388
    sample.settings["init_from"] = "pretrained"
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
            f" iteration {step:8d}/  500000 | consumed samples: {256 * step:12d} | elapsed time per iteration"
            " (ms): 4320.1 | learning rate: 3.320E-05 | global batch size:   256"
            f" | lm loss: {loss} | loss scale: 65536.0 | grad norm: 3.903"
            f" | number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |",
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
