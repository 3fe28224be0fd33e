"""The GPT: nanoGPT's model, and what can be changed in it.

`arch = "gpt2"` is GPT-2 with learned positions, pre-norm blocks and GELU; the ingredients of `arch =
"modern"` (model/modern.py) each replace one part of it.

Given nanoGPT's weights and batch, the loss agrees with nanoGPT's to floating-point noise, and parameters
have its names (`transformer.h.0.attn.c_attn.weight`), so that its checkpoints fit. The loss is computed
inside `forward`, so that a compiled model never hands out the logits, which at GPT-2's vocabulary are the
largest tensor of all.

Source: Radford et al. 2019 (GPT-2); initialization: standard deviation 0.02, and 0.02 / sqrt(2·n_layer)
for projections into the residual stream, which 2·n_layer of them add up in.

Shapes: B batch, T tokens, C n_embd, V vocab_size.
"""

import functools
import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from gptwright.arithmetic.shape import ModelShape
from gptwright.kernels.library import BUILDS, Kernels, require_kernels
from gptwright.model.attention import CausalSelfAttention
from gptwright.model.cache import KeyValueCache, Pass
from gptwright.model.dropout import Dropout
from gptwright.model.fused.block import BlockWeights, fused_block, fused_drop
from gptwright.model.fused.loss import fused_loss, fused_losses
from gptwright.model.fused.norm import fused_norm
from gptwright.model.fused.recipe import Recipe
from gptwright.model.linear import Linear
from gptwright.model.loss import chunked_cross_entropy, chunked_losses
from gptwright.model.modern import EPSILON, RMSNorm, Rotary, Smear, relu2, rms_norm
from gptwright.model.tied import TableGradient, embed

INITIAL_STD = 0.02
LAYER_NORM_EPSILON = 1e-5


class LayerNorm(nn.Module):
    """Layer norm over the channels, its bias optional."""

    def __init__(self, n_embd: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_embd))
        self.bias = nn.Parameter(torch.zeros(n_embd)) if bias else None

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Normalizes `[B, T, C]` over C."""
        return F.layer_norm(x_BTC, self.weight.shape, self.weight, self.bias, LAYER_NORM_EPSILON)


def new_norm(shape: ModelShape) -> nn.Module:
    """The norm of this shape's blocks."""
    return RMSNorm() if shape.ingredients.rms_norm else LayerNorm(shape.n_embd, bias=shape.bias)


class MLP(nn.Module):
    """Two linear layers with GELU or squared ReLU between, four times as wide inside."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.relu2 = shape.ingredients.relu2
        self.c_fc = Linear(shape.n_embd, 4 * shape.n_embd, bias=shape.bias)
        self.c_proj = Linear(4 * shape.n_embd, shape.n_embd, bias=shape.bias)
        self.dropout = Dropout(shape.dropout)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """`[B, T, C]` to `[B, T, C]`."""
        h_BTF = self.c_fc(x_BTC)
        h_BTF = relu2(h_BTF) if self.relu2 else F.gelu(h_BTF)
        y_BTC: Tensor = self.dropout(self.c_proj(h_BTF))
        return y_BTC


class Block(nn.Module):
    """Attention, then the MLP, each on a normalized copy and added back."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.ln_1 = new_norm(shape)
        self.attn = CausalSelfAttention(shape)
        self.ln_2 = new_norm(shape)
        self.mlp = MLP(shape)

    def forward(
        self,
        x_BTC: Tensor,
        *,
        layer: int,
        cached: Pass | None = None,
        rotary: Rotary | None = None,
        recipe: Recipe | None = None,
    ) -> Tensor:
        """`[B, T, C]` to `[B, T, C]`; with a recipe as one operation."""
        if recipe is not None:
            return fused_block(x_BTC, self._weights(), recipe)
        x_BTC = x_BTC + self.attn(self.ln_1(x_BTC), layer=layer, cached=cached, rotary=rotary)
        y_BTC: Tensor = x_BTC + self.mlp(self.ln_2(x_BTC))
        return y_BTC

    def _weights(self) -> BlockWeights:
        return BlockWeights(
            norm_1=getattr(self.ln_1, "weight", None),
            norm_1_bias=getattr(self.ln_1, "bias", None),
            attn=self.attn.c_attn.weight,
            attn_bias=self.attn.c_attn.bias,
            attn_proj=self.attn.c_proj.weight,
            attn_proj_bias=self.attn.c_proj.bias,
            norm_2=getattr(self.ln_2, "weight", None),
            norm_2_bias=getattr(self.ln_2, "bias", None),
            fc=self.mlp.c_fc.weight,
            fc_bias=self.mlp.c_fc.bias,
            fc_proj=self.mlp.c_proj.weight,
            fc_proj_bias=self.mlp.c_proj.bias,
        )


class GPT(nn.Module):
    """The whole model. Build it under a fixed seed for the same weights anywhere."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        made_of = shape.ingredients
        parts = {"wte": nn.Embedding(shape.vocab_size, shape.n_embd)}
        if not made_of.rope:
            parts["wpe"] = nn.Embedding(shape.block_size, shape.n_embd)
        self.transformer = nn.ModuleDict(
            parts
            | {
                "drop": Dropout(shape.dropout),
                "h": nn.ModuleList(Block(shape) for _ in range(shape.n_layer)),
                "ln_f": new_norm(shape),
            }
        )
        head_size = shape.n_embd // shape.n_head
        self.rotary = Rotary(head_size, shape.block_size, shape.rope_base) if made_of.rope else None
        self.smear = Smear(shape.n_embd) if made_of.smear else None
        self.lm_head = Linear(shape.n_embd, shape.vocab_size, bias=False)
        if shape.tie_weights:
            self.transformer["wte"].weight = self.lm_head.weight
        self._chunked_loss, self._chunked_losses = chunked_cross_entropy, chunked_losses
        self._built: dict[torch.dtype, Kernels] = {}
        self._initialize()

    def compiled(self) -> Callable[..., Tensor]:
        """This model under torch.compile, which would write the loops over chunks of the loss out.

        Each shape is compiled by itself: a second one would otherwise be made for any size, which is slower.
        """
        if self.shape.loss_chunk:
            self._chunked_loss = torch.compiler.disable(chunked_cross_entropy)  # type: ignore[no-untyped-call]
            self._chunked_losses = torch.compiler.disable(chunked_losses)  # type: ignore[no-untyped-call]
        return cast("Callable[..., Tensor]", torch.compile(self, dynamic=False))

    def _initialize(self) -> None:
        """GPT-2's deviations; an untied table whose rows are normalized anyway starts with unit variance."""
        made_of = self.shape.ingredients
        residual_std = INITIAL_STD / math.sqrt(2 * self.shape.n_layer)
        for name, parameter in self.named_parameters():
            into_stream = name.endswith("c_proj.weight")
            if made_of.zero_init and (into_stream or name == "lm_head.weight") and not self._tied(name):
                nn.init.zeros_(parameter)
            elif made_of.rms_norm and name == "transformer.wte.weight" and not self._tied(name):
                nn.init.normal_(parameter, mean=0.0, std=1.0)
            elif parameter.dim() >= 2:
                nn.init.normal_(parameter, mean=0.0, std=residual_std if into_stream else INITIAL_STD)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def _tied(self, name: str) -> bool:
        return self.shape.tie_weights and not name.startswith("transformer.h.")

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.lm_head.weight.device

    def hidden(
        self, tokens_BT: Tensor, cached: Pass | None = None, table: TableGradient | None = None
    ) -> Tensor:
        """The normalized residual stream `[B, T, C]` after the last block.

        Args:
            tokens_BT: ids, at most `block_size` together with what the cache holds.
            cached: what came before, continued by these tokens.
            table: where the head of this pass leaves the gradient of a tied table.
        """
        recipe = self.recipe(tokens_BT.shape[1]) if cached is None else None
        x_BTC = self._embedded(tokens_BT, cached, table)
        x_BTC = self.transformer["drop"](x_BTC) if recipe is None else fused_drop(x_BTC, recipe)
        again = self.shape.gradient_checkpointing and torch.is_grad_enabled()
        for layer, block in enumerate(self._blocks()):
            call = functools.partial(block, layer=layer, cached=cached, rotary=self.rotary, recipe=recipe)
            x_BTC = checkpoint(call, x_BTC, use_reentrant=False) if again else call(x_BTC)
        norm = self.transformer["ln_f"]
        if recipe is not None:
            return fused_norm(x_BTC, getattr(norm, "weight", None), getattr(norm, "bias", None), recipe)
        y_BTC: Tensor = norm(x_BTC)
        return y_BTC

    def _kernels(self) -> Kernels | None:
        """Our own that make this pass, in the dtype of its products; None where torch does."""
        if not self.shape.kernels or torch.compiler.is_compiling() or self.device.type != "cpu":
            return None
        lowered = torch.is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if lowered else self.lm_head.weight.dtype
        if dtype in BUILDS and dtype not in self._built:
            self._built[dtype] = require_kernels(dtype)
        return self._built.get(dtype)

    def recipe(self, tokens: int) -> Recipe | None:
        """How our own kernels make the blocks of a pass over so many tokens; None where torch does."""
        if (kernels := self._kernels()) is None:
            return None
        made_of, rotary = self.shape.ingredients, self.rotary
        return Recipe(
            kernels=kernels,
            n_head=self.shape.n_head,
            relu2=made_of.relu2,
            norm_epsilon=EPSILON if made_of.rms_norm else LAYER_NORM_EPSILON,
            qk_epsilon=EPSILON if made_of.qk_norm else None,
            rotary=None if rotary is None else (rotary.own_TD[:tokens], rotary.others_TD[:tokens]),
            dropout=self.shape.dropout if self.training else 0.0,
        )

    def _embedded(self, tokens_BT: Tensor, cached: Pass | None, table: TableGradient | None) -> Tensor:
        """Tokens as `[B, T, C]`, with their positions unless those are rotary."""
        if table is None:
            x_BTC: Tensor = self.transformer["wte"](tokens_BT)
        else:
            x_BTC = embed(self.lm_head.weight, tokens_BT, table)
        if self.rotary is None:
            everything = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
            positions = everything if cached is None else cached.positions
            x_BTC = x_BTC + self.transformer["wpe"](positions)
        if self.shape.ingredients.rms_norm:
            x_BTC = rms_norm(x_BTC)
        if self.smear is not None:
            x_BTC = self.smear(x_BTC, None if cached is None else cached.before(x_BTC))
        return x_BTC

    def _blocks(self) -> nn.ModuleList:
        blocks = self.transformer["h"]
        assert isinstance(blocks, nn.ModuleList)
        return blocks

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor, *, per_window: bool = False) -> Tensor:
        """Cross-entropy in nats a token: a scalar, or `[B]` with one mean a window."""
        table = TableGradient() if self._has_one_gradient_a_table() else None
        hidden_NC, targets_N = self.hidden(tokens_BT, table=table).flatten(0, 1), targets_BT.flatten()
        head, chunk, kernels = self.lm_head.weight, self.shape.loss_chunk, self._kernels()
        if kernels is not None:
            if torch.is_grad_enabled() and not per_window:
                return fused_loss(hidden_NC, head, targets_N, kernels, table, chunk)
            losses = fused_losses(hidden_NC, head, targets_N, kernels, chunk)
        elif chunk and torch.is_grad_enabled():
            losses = self._chunked_loss(hidden_NC, head, targets_N, chunk, table)
        elif chunk:
            losses = self._chunked_losses(hidden_NC, head, targets_N, chunk)
        else:
            reduction = "none" if per_window else "mean"
            losses = F.cross_entropy(self.lm_head(hidden_NC), targets_N, reduction=reduction)
        if per_window:
            return losses.view(targets_BT.shape).mean(dim=1)
        return losses.mean()

    def _has_one_gradient_a_table(self) -> bool:
        """Whether the embedding adds to the head's gradient: a GPU would in no order, a graph has its way."""
        return (
            self.shape.tie_weights
            and (self.shape.loss_chunk > 0 or self._kernels() is not None)
            and self.device.type == "cpu"
            and torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
        )

    def logits(self, tokens_BT: Tensor) -> Tensor:
        """Logits `[B, T, V]` of the token after each."""
        logits_BTV: Tensor = self.lm_head(self.hidden(tokens_BT))
        return logits_BTV

    def next_logits(self, tokens_BT: Tensor, cached: Pass | None = None) -> Tensor:
        """Logits `[B, V]` of the token after the last one."""
        logits_BV: Tensor = self.lm_head(self.hidden(tokens_BT, cached)[:, -1])
        return logits_BV

    def new_cache(self, rows: int = 1, *, capacity: int | None = None) -> KeyValueCache:
        """An empty cache for `rows` sequences of `capacity` tokens; None: `block_size`."""
        return KeyValueCache(
            n_layer=self.shape.n_layer,
            rows=rows,
            n_head=self.shape.n_head,
            capacity=capacity or self.shape.block_size,
            head_size=self.shape.n_embd // self.shape.n_head,
            device=self.device,
            dtype=self.lm_head.weight.dtype,
        )
