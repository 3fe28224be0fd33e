"""The linear layer, and how generation gets all threads of a CPU to work on one token or a few.

A matrix times one vector reads every weight once, so its time is bytes over bandwidth; but on the CPUs
measured MKL does it in one thread, which draws half the bandwidth that two do. As a batch of products, one
a thread, each over its share of the output rows, all threads read. For a few vectors, the tokens of a batch
of prompts, MKL's product of the whole matrix is slower than those of its pieces, even in one thread. Every
output is the same dot product.

Measured (2 cores of an AMD EPYC, torch 2.13, float32): one row times 768 × 50304 in 10.4 → 5.6 ms; a 124M
model generates 23 → 32 tokens/s from an empty context and 21 → 28 at 900. `benchmarks/generation.py` measures
the whole again; what pieces do for several rows is in docs/lab-notes.md.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Smaller matrices stay in a core's cache, where a second thread costs more than it brings.
LEAST_WEIGHTS = 2**17
# Beyond this many rows the products themselves take the time.
MOST_ROWS = 32
# For several rows; 8 and 64 were slower.
PIECES = 16


class Linear(nn.Linear):
    """`nn.Linear`, sped up for a few rows on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """`[..., in_features]` to `[..., out_features]`."""
        pieces = self._pieces(x)
        return self._in_pieces(x, pieces) if pieces > 1 else super().forward(x)

    def _pieces(self, x: Tensor) -> int:
        """Into how many products this one is best cut."""
        if (
            x.numel() > MOST_ROWS * self.in_features
            or torch.compiler.is_compiling()
            or x.device.type != "cpu"
            or x.dtype != torch.float32
            or self.weight.numel() < LEAST_WEIGHTS
            or torch.is_autocast_enabled("cpu")
        ):
            return 1
        threads = torch.get_num_threads()
        return threads if x.numel() == self.in_features else -(-PIECES // threads) * threads

    def _in_pieces(self, x: Tensor, pieces: int) -> Tensor:
        """The product for a few rows, the output rows dealt out."""
        even = self.out_features // pieces * pieces
        shares = self.weight[:even].view(pieces, even // pieces, self.in_features)
        rows_RI = x.reshape(-1, self.in_features)
        y_PRO = torch.bmm(rows_RI.expand(pieces, -1, -1), shares.transpose(1, 2))
        y = y_PRO.transpose(0, 1).flatten(1)
        if even < self.out_features:
            y = torch.cat([y, F.linear(rows_RI, self.weight[even:])], dim=1)
        if self.bias is not None:
            y = y + self.bias
        return y.view(*x.shape[:-1], self.out_features)
