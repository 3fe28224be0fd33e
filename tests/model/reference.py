"""GPT-2's loss and every gradient in float64 numpy, from the formulas alone.

Written for the tests; it shares nothing with the torch model but the names of the weights. Each layer gives
its output and a function from the output's gradient to the input's; on its way that function adds the
gradients of the layer's own weights. Sources: Radford et al. 2019 for the layers, Ba et al. 2016 for layer
norm, Hendrycks and Gimpel 2016 for GELU in its exact form.

Shapes: B batch, T tokens, C width, H heads, D = C / H, V vocabulary; s and t run over tokens.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Backward = Callable[[Array], Array]
Step = tuple[Array, Backward]

_erf = np.vectorize(math.erf, otypes=[np.float64])


class Reference:
    """One forward and backward pass over weights that have nanoGPT's names.

    The head is tied to the token table where there is no `lm_head.weight`; a bias that is not there is 0.
    """

    def __init__(self, weights: Mapping[str, Array], *, n_head: int) -> None:
        self.weights = weights
        self.n_head = n_head
        self.n_layer = 1 + max(int(name.split(".")[2]) for name in weights if ".h." in name)
        self.head = "lm_head.weight" if "lm_head.weight" in weights else "transformer.wte.weight"
        self.gradients: dict[str, Array] = {name: np.zeros_like(value) for name, value in weights.items()}
        self.logits_BTV: Array = np.zeros(0)

    def loss(self, tokens_BT: Ids, targets_BT: Ids) -> float:
        """The mean cross-entropy in nats; leaves `gradients` and `logits_BTV` behind."""
        x_BTC, embed_back = self._embed(tokens_BT)
        backs: list[Backward] = []
        for layer in range(self.n_layer):
            block = f"transformer.h.{layer}"
            for norm, inner in (("ln_1", self._attention), ("ln_2", self._mlp)):
                normed_BTC, norm_back = self._norm(f"{block}.{norm}", x_BTC)
                y_BTC, inner_back = inner(block, normed_BTC)
                x_BTC = x_BTC + y_BTC
                backs.append(_residual(norm_back, inner_back))
        x_BTC, norm_back = self._norm("transformer.ln_f", x_BTC)
        backs.append(norm_back)
        self.logits_BTV, head_back = self._matrix(self.head, x_BTC)
        loss, gradient = _cross_entropy(self.logits_BTV, targets_BT)
        gradient = head_back(gradient)
        for back in reversed(backs):
            gradient = back(gradient)
        embed_back(gradient)
        return loss

    def _embed(self, tokens_BT: Ids) -> tuple[Array, Callable[[Array], None]]:
        wte, wpe = "transformer.wte.weight", "transformer.wpe.weight"
        T = tokens_BT.shape[1]

        def back(d_BTC: Array) -> None:
            np.add.at(self.gradients[wte], tokens_BT, d_BTC)
            self.gradients[wpe][:T] += d_BTC.sum(axis=0)

        return self.weights[wte][tokens_BT] + self.weights[wpe][:T], back

    def _matrix(self, name: str, x: Array) -> Step:
        """y = x Wᵀ over the last axis."""
        weight = self.weights[name]

        def back(d: Array) -> Array:
            self.gradients[name] += d.reshape(-1, d.shape[-1]).T @ x.reshape(-1, x.shape[-1])
            return d @ weight

        return x @ weight.T, back

    def _plus_bias(self, name: str, step: Step) -> Step:
        y, inner_back = step
        if name not in self.weights:
            return step

        def back(d: Array) -> Array:
            self.gradients[name] += d.reshape(-1, d.shape[-1]).sum(axis=0)
            return inner_back(d)

        return y + self.weights[name], back

    def _linear(self, name: str, x: Array) -> Step:
        return self._plus_bias(f"{name}.bias", self._matrix(f"{name}.weight", x))

    def _norm(self, name: str, x: Array) -> Step:
        """y = w (x − mean) / √(variance + 1e-5) + b over the last axis."""
        scale = self.weights[f"{name}.weight"]
        centred = x - x.mean(axis=-1, keepdims=True)
        inverse = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
        unit = centred * inverse

        def back(d: Array) -> Array:
            self.gradients[f"{name}.weight"] += (d * unit).reshape(-1, unit.shape[-1]).sum(axis=0)
            d_unit = d * scale
            along = (d_unit * unit).mean(axis=-1, keepdims=True)
            backed: Array = inverse * (d_unit - d_unit.mean(axis=-1, keepdims=True) - unit * along)
            return backed

        return self._plus_bias(f"{name}.bias", (unit * scale, back))

    def _mlp(self, block: str, x: Array) -> Step:
        inside, first_back = self._linear(f"{block}.mlp.c_fc", x)
        below = 0.5 * (1 + _erf(inside / math.sqrt(2)))
        density = np.exp(-(inside**2) / 2) / math.sqrt(2 * math.pi)
        y, second_back = self._linear(f"{block}.mlp.c_proj", inside * below)
        return y, lambda d: first_back(second_back(d) * (below + inside * density))

    def _attention(self, block: str, x_BTC: Array) -> Step:
        B, T, C = x_BTC.shape
        D = C // self.n_head
        qkv, qkv_back = self._linear(f"{block}.attn.c_attn", x_BTC)
        # [B, T, 3C] to three of [B, H, T, D]: queries first, then keys, then values; heads side by side.
        q, k, v = qkv.reshape(B, T, 3, self.n_head, D).transpose(2, 0, 3, 1, 4)
        scores = np.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(D)
        scores[..., np.triu(np.ones((T, T), dtype=bool), k=1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        heads = np.einsum("bhts,bhsd->bhtd", weights, v)
        y, proj_back = self._linear(f"{block}.attn.c_proj", heads.transpose(0, 2, 1, 3).reshape(B, T, C))

        def back(d: Array) -> Array:
            d_heads = proj_back(d).reshape(B, T, self.n_head, D).transpose(0, 2, 1, 3)
            d_weights = np.einsum("bhtd,bhsd->bhts", d_heads, v)
            d_scores = weights * (d_weights - (d_weights * weights).sum(axis=-1, keepdims=True))
            d_scores /= math.sqrt(D)
            d_q = np.einsum("bhts,bhsd->bhtd", d_scores, k)
            d_k = np.einsum("bhts,bhtd->bhsd", d_scores, q)
            d_v = np.einsum("bhts,bhtd->bhsd", weights, d_heads)
            return qkv_back(np.stack([d_q, d_k, d_v]).transpose(1, 3, 0, 2, 4).reshape(B, T, 3 * C))

        return y, back


def _residual(norm_back: Backward, inner_back: Backward) -> Backward:
    return lambda d: d + norm_back(inner_back(d))


def _cross_entropy(logits_BTV: Array, targets_BT: Ids) -> tuple[float, Array]:
    """The mean of −log softmax at the targets, and its gradient (softmax − one-hot) / number."""
    rows = logits_BTV.reshape(-1, logits_BTV.shape[-1])
    number = np.arange(len(rows))
    shifted = rows - rows.max(axis=-1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    gradient = np.exp(log_probabilities)
    gradient[number, targets_BT.ravel()] -= 1
    loss = -float(log_probabilities[number, targets_BT.ravel()].mean())
    return loss, gradient.reshape(logits_BTV.shape) / len(rows)
