"""The linear layer, and how generation gets all threads of a CPU to work on a single token.

A matrix times one vector reads every weight once, so its time is bytes over bandwidth; but on the CPUs
measured MKL does it in one thread, which draws half the bandwidth that two do. As a batch of products, one
a thread, each over its share of the output rows, all threads read. Every output is the same dot product by
the same kernel, so the result is bit-identical.

Measured (2 cores of an AMD EPYC, torch 2.13, float32): one row times 768 × 50304 in 10.4 → 5.6 ms; a 124M
model generates 23 → 32 tokens/s from an empty context and 21 → 28 at 900. `benchmarks/generation.py` measures
the whole again.
"""

import torch
from torch import Tensor, nn

# Smaller matrices stay in a core's cache, where a second thread costs more than it brings.
LEAST_WEIGHTS = 2**17


class Linear(nn.Linear):
    """`nn.Linear`, sped up for a single row on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """`[..., in_features]` to `[..., out_features]`."""
        if x.numel() == self.in_features and self._is_worth_sharing(x):
            return self._shared(x)
        return super().forward(x)

    def _is_worth_sharing(self, row: Tensor) -> bool:
        return (
            not torch.compiler.is_compiling()
            and row.device.type == "cpu"
            and row.dtype == torch.float32
            and self.weight.numel() >= LEAST_WEIGHTS
            and torch.get_num_threads() > 1
            and not torch.is_autocast_enabled("cpu")
        )

    def _shared(self, row: Tensor) -> Tensor:
        """The product for one row, the output rows dealt out to the threads."""
        threads = torch.get_num_threads()
        even = self.out_features // threads * threads
        shares = self.weight[:even].view(threads, even // threads, self.in_features)
        rows = row.reshape(1, 1, self.in_features).expand(threads, 1, self.in_features)
        y = torch.bmm(rows, shares.transpose(1, 2)).flatten()
        if even < self.out_features:
            y = torch.cat([y, self.weight[even:] @ row.flatten()])
        if self.bias is not None:
            y = y + self.bias
        return y.view(*row.shape[:-1], self.out_features)
