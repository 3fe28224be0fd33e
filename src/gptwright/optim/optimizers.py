"""AdamW as nanoGPT sets it up, and Muon for the blocks' matrices with AdamW for the rest.

With AdamW, tensors of two or more dimensions (linear weights and embedding tables) decay; norms and biases do
not. With Muon, only the blocks' matrices do; tables, head and vectors have AdamW without decay.

This is torch's own fused AdamW, called as a function. Its class imports torch's compiler at the first update,
compiled or not, which takes 1.8 s of every start (docs/lab-notes.md) and a tenth of a run of twenty seconds.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from gptwright.config.schema import TrainConfig
from gptwright.optim.muon import orthogonalized_each, update_scale


class Optimizer:
    """Updates parameters in groups, each by its own rule; state and groups are laid out as torch's are.

    Args:
        groups: each with `params`, `kind` (`adamw` or `muon`), `lr`, `lr_scale` (times the run's learning
            rate) and `weight_decay`, and what its kind needs.
        fused: AdamW in one pass over the memory.
        matmul_dtype: of Muon's products.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], *, fused: bool, matmul_dtype: torch.dtype = torch.float32
    ) -> None:
        self.param_groups = list(groups)
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self.fused = fused
        self.matmul_dtype = matmul_dtype

    @property
    def takes_found_inf(self) -> bool:
        """Whether `step` can be told on the device to change nothing.

        Muon can where a device works beside the host, which would otherwise wait for it each step; on a CPU
        there is nobody to wait for, and looking first saves a pass over the gradients.
        """
        kinds = ((group["kind"], p.device.type) for group in self.param_groups for p in group["params"])
        return self.fused and all(kind == "adamw" or device != "cpu" for kind, device in kinds)

    @torch.no_grad()
    def step(self, *, found_inf: Tensor | None = None) -> None:
        """One update from the gradients that are there.

        Args:
            found_inf: 1 on the device leaves weights, moments and step counts as they are; 0 or None does
                not. Only where `takes_found_inf`.
        """
        for group in self.param_groups:
            given = [p for p in group["params"] if p.grad is not None]
            if given and group["kind"] == "muon":
                self._muon(group, given, found_inf)
            elif given:
                self._adamw(group, given, found_inf)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients, or fills them with zeros."""
        for parameter in self.parameters():
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad.zero_()

    def parameters(self) -> list[Tensor]:
        """All of them, group after group."""
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def restore(self, parameter: Tensor, moments: Mapping[str, Tensor], step: float) -> None:
        """Puts a parameter's moments back as they were after `step` updates."""
        kept = {name: value.to(parameter.device, parameter.dtype) for name, value in moments.items()}
        place = parameter.device if self.fused else torch.device("cpu")
        self.state[parameter] = {"step": torch.tensor(step, device=place), **kept}

    def _state_of(self, parameters: list[Tensor], *moments: str) -> list[dict[str, Tensor]]:
        for parameter in parameters:
            if parameter not in self.state:
                self.restore(parameter, {name: torch.zeros_like(parameter) for name in moments}, 0.0)
        return [self.state[parameter] for parameter in parameters]

    def _adamw(self, group: dict[str, Any], parameters: list[Tensor], found_inf: Tensor | None) -> None:
        states = self._state_of(parameters, "exp_avg", "exp_avg_sq")
        adamw(
            parameters,
            [p.grad for p in parameters if p.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=self.fused,
            found_inf=found_inf,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )

    def _muon(self, group: dict[str, Any], parameters: list[Tensor], found_inf: Tensor | None) -> None:
        """Nesterov momentum, made orthogonal."""
        momentum, rate = group["momentum"], group["lr"]
        gradients = [p.grad for p in parameters if p.grad is not None]
        states = self._state_of(parameters, "momentum")
        averages = [state["momentum"] for state in states]
        made: Any = 1.0 if found_inf is None else 1.0 - found_inf
        if found_inf is not None:
            # An average drawn towards itself stays what it is, and so does what a refused gradient is not in.
            refused = found_inf.bool()
            gradients = [torch.where(refused, a, g) for a, g in zip(averages, gradients, strict=True)]
        # A list of it, because a tensor alone would be read as a number, for which the host waits.
        torch._foreach_add_(
            [state["step"] for state in states], made if found_inf is None else [made] * len(states)
        )
        torch._foreach_lerp_(averages, gradients, 1 - momentum)
        directions = torch._foreach_lerp(gradients, averages, momentum)
        pieces = [list(d.chunk(group["pieces"][p])) for p, d in zip(parameters, directions, strict=True)]
        orthogonal = iter(
            orthogonalized_each(
                [piece for own in pieces for piece in own], steps=group["steps"], dtype=self.matmul_dtype
            )
        )
        torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"] * made)
        for parameter, own in zip(parameters, pieces, strict=True):
            for target in parameter.chunk(len(own)):
                far = -rate * update_scale(*target.shape)
                if found_inf is None:
                    target.add_(next(orthogonal), alpha=far)
                else:
                    target.addcmul_(next(orthogonal), made, value=far)


def build_optimizer(
    model: nn.Module, config: TrainConfig, *, fused: bool, matmul_dtype: torch.dtype = torch.float32
) -> Optimizer:
    """The optimizer of a config over a model's parameters.

    Args:
        model: a GPT; blocks' matrices are known by their names.
        config: `optimizer`, learning rates, weight decay, betas.
        fused: AdamW in one kernel.
        matmul_dtype: of Muon's products; float32 where bfloat16 is not in the hardware.
    """
    named = list(model.named_parameters())
    shared = {"kind": "adamw", "lr_scale": 1.0, "betas": (config.beta1, config.beta2), "eps": 1e-8}
    if config.optimizer == "adamw":
        groups = [
            {**shared, "params": [p for _, p in named if p.dim() >= 2], "weight_decay": config.weight_decay},
            {**shared, "params": [p for _, p in named if p.dim() < 2], "weight_decay": 0.0},
        ]
    else:
        matrices = {name: p for name, p in named if p.dim() == 2 and name.startswith("transformer.h.")}
        groups = [
            {
                "kind": "muon",
                "params": list(matrices.values()),
                "lr_scale": config.muon_learning_rate / config.learning_rate,
                "weight_decay": config.weight_decay,
                "momentum": config.muon_momentum,
                "steps": config.muon_steps,
                # Query, key and value are three matrices that happen to be stored as one.
                "pieces": {p: 3 if name.endswith("c_attn.weight") else 1 for name, p in matrices.items()},
            },
            {**shared, "params": [p for name, p in named if name not in matrices], "weight_decay": 0.0},
        ]
    optimizer = Optimizer(groups, fused=fused, matmul_dtype=matmul_dtype)
    set_learning_rate(optimizer, config.learning_rate)
    return optimizer


def set_learning_rate(optimizer: Optimizer, value: float) -> None:
    """Gives every parameter group its share of this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = value * group["lr_scale"]


def set_momentum(optimizer: Optimizer, value: float) -> None:
    """Gives Muon this momentum."""
    for group in optimizer.param_groups:
        if group["kind"] == "muon":
            group["momentum"] = value
