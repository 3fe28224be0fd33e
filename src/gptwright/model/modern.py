"""The parts that `arch = "modern"` has and GPT-2 does not: RMS norm, rotary positions, the smear.

None of them holds a matrix; together they are six passes over the residual stream a block. What each is worth
is in docs/lab-notes.md.

Shapes: B batch, T tokens, C n_embd, H heads, D = C / H.
"""

from typing import Any

import torch
from torch import Tensor, nn

# float32's own, as torch's RMS norm has it.
EPSILON = torch.finfo(torch.float32).eps


class _RMSNorm(torch.autograd.Function):
    """y = x / rms(x), and its gradient (g - y · mean(g·y)) / rms(x) in one go.

    torch's own is a chain of powers and means on a CPU, whose gradient is another: a step of the preset
    `shakespeare` spent a fifth of its time there.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Normalizes the last dimension."""
        inverse = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
        inverse = inverse.div_(x.shape[-1]).add_(EPSILON).rsqrt_()
        y: Tensor = x * inverse
        ctx.save_for_backward(y, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The gradient of the input."""
        y, inverse = ctx.saved_tensors
        g = gradients[0]
        along = (g * y).mean(dim=-1, keepdim=True)
        return torch.addcmul(g, y, along, value=-1).mul_(inverse)


class _ReLU2(torch.autograd.Function):
    """max(x, 0)², whose gradient 2 · max(x, 0) · g needs no more than the first factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Squares what is above 0."""
        above: Tensor = x.relu()
        ctx.save_for_backward(above)
        return above * above

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The gradient of the input."""
        above: Tensor = ctx.saved_tensors[0]
        return (above * gradients[0]).mul_(2)


class _Turn(torch.autograd.Function):
    """Each channel times a factor of its own, plus its partner's times another: three passes, and three back.

    Written with halves of the channels it is eight, and torch's gradient of that as many again.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, own: Tensor, others: Tensor) -> Tensor:
        """Partners are half of the channels apart."""
        ctx.save_for_backward(own, others)
        y: Tensor = (x * own).addcmul_(x.roll(x.shape[-1] // 2, -1), others)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the input; the factors are constants."""
        own, others = ctx.saved_tensors
        g = gradients[0]
        return (g * own).add_((g * others).roll(g.shape[-1] // 2, -1)), None, None


def rms_norm(x: Tensor) -> Tensor:
    """Scales the last dimension to a mean square of 1, in float32 under autocast; no weights."""
    y: Tensor = _RMSNorm.apply(x.float() if torch.is_autocast_enabled(x.device.type) else x)  # type: ignore[no-untyped-call]
    return y


def relu2(x: Tensor) -> Tensor:
    """Squared ReLU."""
    y: Tensor = _ReLU2.apply(x)  # type: ignore[no-untyped-call]
    return y


class RMSNorm(nn.Module):
    """`rms_norm` in the place of a layer norm."""

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Normalizes `[B, T, C]` over C."""
        return rms_norm(x_BTC)


class Rotary(nn.Module):
    """Turns each pair of a head's channels by an angle that grows with the token's position.

    The product of a turned query and a turned key then depends on how far apart they are alone
    (Su et al. 2021, arXiv 2104.09864, eq. 34). Pairs are channel i and i + D/2.

    Args:
        head_size: D, even.
        block_size: positions to be ready for.
        base: of the wavelengths; the paper's 10,000 leaves most channels without a turn in a short context.
    """

    def __init__(self, head_size: int, block_size: int, base: float = 10_000.0) -> None:
        super().__init__()
        wavelengths = base ** (torch.arange(0, head_size, 2) / head_size)
        angles_TP = torch.outer(torch.arange(block_size).float(), 1.0 / wavelengths)
        cosine_TP, sine_TP = angles_TP.cos(), angles_TP.sin()
        self.register_buffer("own_TD", torch.cat((cosine_TP, cosine_TP), dim=-1), persistent=False)
        self.register_buffer("others_TD", torch.cat((sine_TP, -sine_TP), dim=-1), persistent=False)
        self.own_TD: Tensor
        self.others_TD: Tensor

    def forward(self, x: Tensor, positions: Tensor | slice) -> Tensor:
        """Turns `[B, T, ..., D]`, whose tokens stand at `positions`, `[T]` or `[B, T]`."""
        between = (1,) * (x.dim() - 3)
        here = self.own_TD[positions], self.others_TD[positions]
        own, others = (f.view(*f.shape[:-1], *between, f.shape[-1]).to(x.dtype) for f in here)
        turned: Tensor = _Turn.apply(x, own, others)  # type: ignore[no-untyped-call]
        return turned


class Smear(nn.Module):
    """Adds to each token's embedding that of the one before it, weighted a channel, from zero."""

    def __init__(self, n_embd: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_embd))

    def forward(self, x_BTC: Tensor, before_B1C: Tensor | None) -> Tensor:
        """`[B, T, C]` to `[B, T, C]`.

        Args:
            x_BTC: embeddings.
            before_B1C: that of the token before the first one; None at the beginning of a text.
        """
        if before_B1C is None:
            before_B1C = torch.zeros_like(x_BTC[:, :1])
        return x_BTC + self.weight * torch.cat((before_B1C, x_BTC[:, :-1]), dim=1)
