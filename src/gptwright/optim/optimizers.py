"""AdamW with weight decay on matrices only, as nanoGPT sets it up.

Tensors of two or more dimensions (linear weights and both embedding tables) decay; layer norms and biases
do not. The fused update is one pass over the memory instead of several, on CPU and CUDA alike.
"""

import torch
from torch import nn

from gptwright.config.schema import TrainConfig


def build_adamw(model: nn.Module, config: TrainConfig, *, fused: bool) -> torch.optim.AdamW:
    """AdamW over the model's parameters in two groups: decayed, then not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=fused)


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Gives every parameter group this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = value
