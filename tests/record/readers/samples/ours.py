"""Our own record."""

from tests.record.readers.samples.sample import Sample, loss_at


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
        '{"v": 1, "kind": "start", "time": 1795829022.394, "step": 0, "tokens_per_step": 768,'
        ' "vocab_size": 65, "parameters_nanogpt": 795904, "parameters_total": 804096, "device": "AMD EPYC",'
        ' "dtype": "float32",'
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
                f'{{"v": 1, "kind": "eval", "time": 1.5, "step": {step}, "train_loss": {loss},'
                f' "train_windows": 240, "train_loss_standard_error": 0.0021, "val_loss": {loss + 0.05},'
                ' "val_loss_standard_error": 0.002}',
                step=step,
                train_loss=loss,
                val_loss=loss + 0.05,
                train_standard_error=0.0021,
                val_standard_error=0.002,
            )
        shown = '"nan"' if step == 100 else loss
        sample.row(
            f'{{"v": 1, "kind": "train", "time": 2.5, "step": {step}, "loss": {shown}, "loss_mean": {loss},'
            ' "lr": 0.001, "grad_norm": null, "seconds": 0.08, "tokens_per_second": 9532.8,'
            ' "mfu": 0.27, "tokens": 768}',
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
