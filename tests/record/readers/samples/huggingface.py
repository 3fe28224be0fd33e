"""Logs of Hugging Face's Trainer."""

from tests.record.readers.samples.sample import Sample, loss_at


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
    sample.header["epochs"] = 2.0
    # The bar came to its end.
    sample.header["steps_made"] = 200
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
    sample.header["epochs"] = 2.0
    sample.say("  ],")
    sample.say('  "max_steps": 100,', planned_steps=100)
    sample.say('  "train_batch_size": 8,', micro_batch=8)
    sample.say('  "trial_params": null')
    sample.say("}")
    return sample
