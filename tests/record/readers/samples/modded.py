"""Logs of modded-nanogpt, from its first record to today's."""

from tests.record.readers.samples.sample import Row, Sample, loss_at


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
    for step in range(61):
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
    for step in range(50):
        if step % 25 == 0:
            loss = f"{loss_at(step):.6f}"
            sample.evaluation(f"s:{step} tel:{loss}", step=step, val_loss=float(loss))
        sample.row(f"s:{step} trl:{loss_at(step):.6f}", step=step, loss=float(f"{loss_at(step):.6f}"))
    return sample
