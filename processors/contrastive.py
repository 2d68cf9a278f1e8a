"""The formula of contrastive search (Su et al. 2022, A Contrastive Framework for Neural Text Generation).

score(v) = (1 - alpha) p(v) - alpha max_j cos(h_v, h_j), for the K most likely tokens v. p is the distribution
after the stages, h_v the model's last hidden state after feeding v, and h_j those of all tokens before v,
prompt and output.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

__all__ = ["contrastive_scores", "directions"]


def directions(states: Tensor) -> Tensor:
    """Return states [N, H] as float32 of length 1; a state of zeros stays as it is."""
    return normalize(states.float(), dim=-1)


def contrastive_scores(probabilities: Tensor, states: Tensor, before: Tensor, alpha: float) -> Tensor:
    """Return the scores [K] float64 of K candidates.

    `probabilities` [K] float64; `states` [K, H] and `before` [L, H] are directions, L > 0.
    """
    likeness = (states @ before.T).amax(dim=1).double()
    return (1 - alpha) * probabilities - alpha * likeness
