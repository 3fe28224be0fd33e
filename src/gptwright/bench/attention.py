"""Which attention kernel is fast on this device: torch's own choice beside each that can be asked for.

Which one is fastest depends on the card, on torch's version and on the shape, and published comparisons
disagree; so it is timed here, forward and backward, on the shapes of the models.
"""

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from gptwright.bench.found import AttentionTime
from gptwright.hardware.detect import Device
from gptwright.hardware.probe import fastest

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def time_attention(
    device: Device, dtype: torch.dtype, shape: tuple[int, int, int, int], *, seconds: float = 0.2
) -> AttentionTime:
    """Times causal attention of one layer.

    Args:
        device: where.
        dtype: of queries, keys and values.
        shape: sequences, heads, tokens, channels of a head.
        seconds: about how long to measure each kernel.
    """
    found: dict[str, float | None] = {"default": _time(device, dtype, shape, None, seconds)}
    for name, backend in BACKENDS.items():
        found[name] = _time(device, dtype, shape, backend, seconds)
    return AttentionTime(shape=shape, seconds=found)


def _time(
    device: Device,
    dtype: torch.dtype,
    shape: tuple[int, int, int, int],
    backend: SDPBackend | None,
    seconds: float,
) -> float | None:
    rows, heads, tokens, channels = shape
    # As the model has them: cut out of one product, heads beside each other.
    qkv = torch.randn(rows, tokens, 3, heads, channels, device=device.torch_device, dtype=dtype)
    q, k, v = (part.transpose(1, 2).requires_grad_() for part in qkv.unbind(dim=2))
    gradient = torch.randn(rows, tokens, heads, channels, device=device.torch_device, dtype=dtype)

    def work() -> None:
        if backend is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            with sdpa_kernel(backend):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(y, (q, k, v), gradient.transpose(1, 2))

    try:
        work()
    except RuntimeError:
        return None
    return fastest(work, device, seconds)
