"""A log of torchtitan."""

from tests.record.readers.samples.sample import Sample, loss_at


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
        f"{front}\x1b[33mvalidate step: 100  \x1b[32mloss:  7.6000  "
        "\x1b[38;2;54;234;195mmemory: 40.10GiB(50.60%)"
        "  \x1b[34mtps: 88,000\x1b[39m",
        step=100,
        val_loss=7.6,
    )
    sample.hazards["terminal codes"] += 5
    sample.header["peak_memory_bytes"] = round(41.80 * 2**30)
    return sample
