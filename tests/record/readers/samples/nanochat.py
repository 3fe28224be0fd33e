"""Logs of nanochat and of autoresearch."""

from tests.record.readers.samples.sample import Sample, loss_at


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
        sample.say(["{", '  "sequence_len": 2048,'][0])
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
    for step in range(25):
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
