"""What a reader can know of a simulated run, and what it may say of any."""

from tests.simulator.devices import A100_PEAK
from tests.simulator.run import Run
from tests.simulator.truth import Truth

# Tolerances are relative. Times are medians of hundreds of lines that scatter by 0.4 % and drift by 0.6 %.
# Throughput in FLOP/s carries the choice between full and causal attention.
EXACT, COUNT, TIME, FLOPS = 1e-9, 0.003, 0.02, 0.1
TIMED_AFTER_EVALUATION = ("nanogpt", "llama2c", "build-nanogpt")
EVALUATES_TRAIN = ("nanogpt", "llama2c", "ours")
# Neither log nor config says what is built there: the size is not known, or not what a token costs.
WITHOUT_SIZE = ("modded", "modded-current", "hf", "hf-state")
WITHOUT_FLOPS = (*WITHOUT_SIZE, "litgpt")
WITHOUT_TIME = ("hf", "hf-state")


def always_allowed(run: Run) -> set[str]:
    """Findings that are true of this run whatever was planted: of no severity are they a false alarm."""
    truth, handover = run.truth, run.handover
    allowed = {"near-peak", "still-improving"}
    if basis_is_foreign(truth):
        allowed.add("mfu-basis")
    if truth.format in TIMED_AFTER_EVALUATION and truth.eval_interval:
        allowed.add("eval-in-timing")
    if truth.dropout:
        allowed.add("dropout-in-train-loss")
    if truth.tokens_per_parameter < 10:
        allowed.add("undertrained")
    if truth.shape.embedding_share > 0.45:
        allowed.add("embedding-heavy")
    if (truth.val_tokens or 1e9) < 1e6:
        allowed.add("small-val-split")
    if truth.format in ("modded", "modded-current", "hf", "hf-state") or truth.variant == "file":
        allowed.add("incomplete-log")
    if "truncated" in handover.hazards:
        allowed.add("incomplete-log")
    return allowed


def basis_is_foreign(truth: Truth) -> bool:
    """Whether the printed MFU is relative to another peak than this device's, or to none."""
    peak = truth.device.peak_flops
    printed: float | None
    match truth.format:
        case "nanogpt" | "llama2c":
            printed = A100_PEAK
        case "nanochat":
            printed = truth.device.nanochat_peak
        case "llmc":
            printed = truth.device.llmc_peak or 0.0
        case "torchtitan":
            printed = truth.device.titan_peak
        case _:
            return False
    return abs(printed / peak - 1) > 0.05


def recoverable(run: Run) -> dict[str, tuple[float, float]]:
    """Key of `diagnose --json`'s `run` → (true value, relative tolerance), where the folder suffices."""
    truth, handover = run.truth, run.handover
    if (
        truth.variant == "file"
        or not handover.header
        or handover.without
        or handover.visible_until is not None
    ):
        return {}
    if truth.format in ("hf", "hf-state", "llama2c", "litgpt") and not handover.config:
        return {}
    # These count from the first logged step, from 1, or stop one short; the last line may be cut off, and the
    # one before it not lie at the last step.
    last_line = 2.5 * truth.log_interval / max(1, truth.last_step)
    vague = truth.format not in ("nanogpt", "llama2c") or "truncated" in handover.hazards
    known = {
        "last_step": (float(truth.last_step), last_line if vague else EXACT),
        "tokens_per_step": (float(truth.tokens_per_step), EXACT),
        "tokens_seen": (float(truth.tokens_seen), max(TIME, last_line)),
    }
    if truth.format in ("nanogpt", "llama2c", "build-nanogpt", "modded-current", "ours"):
        known["first_step"] = (float(truth.first_step), EXACT)
    if truth.format not in WITHOUT_SIZE:
        known |= _sizes(truth)
    if "train_tokens" in handover.facts or truth.format == "ours":
        known["epochs"] = (truth.epochs, TIME)
    if truth.format not in WITHOUT_TIME:
        known |= _times(truth, handover.facts.get("device") == truth.device.name)
    return known


def _sizes(truth: Truth) -> dict[str, tuple[float, float]]:
    return {
        # nanoGPT prints hundredths of a million.
        "parameters": (float(truth.parameters), max(COUNT, 5_100 / truth.parameters)),
        "tokens_per_parameter": (truth.tokens_per_parameter, TIME),
    }


def _times(truth: Truth, device_known: bool) -> dict[str, tuple[float, float]]:
    known = {
        "step_seconds": (truth.step_seconds, TIME),
        "tokens_per_second": (truth.tokens_per_second, TIME),
    }
    if truth.format in WITHOUT_FLOPS:
        return known
    known["achieved_tflops"] = (truth.achieved_flops / 1e12, FLOPS)
    if device_known and truth.device.tabled and truth.dtype != "float32":
        known["peak_tflops"] = (truth.device.peak_flops / 1e12, 0.01)
        known["mfu"] = (truth.efficiency, FLOPS)
    return known
