"""Values of an explanation for one row of logits, as Python numbers. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from processors.catalog import Draw

if TYPE_CHECKING:
    from processors.explain_rows import KeptLogits


Weighed = tuple[int, float]  # an id and its probability
Changed = tuple[int, float, float]  # an id, its logit before and after


@dataclass(frozen=True, slots=True)
class Place:
    """Rank and probability of a token in a distribution, and a summary of the distribution.

    `p`, `rank`: probability and rank of the token; 1 is the most likely, ties by lowest id. A masked token
    has p 0 and no rank. `entropy` is in nats, `alive` the number of unmasked ids. `top`: the most likely ids
    with their probabilities, `others`: the sum of all other probabilities.
    """

    p: float
    rank: int | None
    logit: float
    entropy: float
    alive: int
    top: tuple[Weighed, ...]
    others: float


@dataclass(frozen=True, slots=True)
class StageView:
    """Effect of one stage on the distribution, and on the chosen token.

    `mass_kept`: probability, before the stage, of the ids that it kept. `removed`: the most likely ids that
    it masked, with their probabilities before it. `changed`: the ids whose logits it changed most, for a
    stage of the phase `adjust`. `acted`: whether any logit changed; if not, `why_not` has the reason, in a
    few words.
    """

    name: str
    params: str
    acted: bool
    alive: tuple[int, int]
    mass_kept: float
    after: Place
    removed: tuple[Weighed, ...] = ()
    changed: tuple[Changed, ...] = ()
    note: str = ""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Race:
    """The draw: its method, the runner-up, and the runner-up's distance.

    `margin`: difference of noisy logits (gumbel), of logits (greedy), or distance of the uniform number from
    the nearer end of the token's interval, beyond which the runner-up lies (multinomial). None if there is
    one id only; negative if the draw gives another token, which is then the runner-up.
    """

    kind: Draw
    margin: float | None
    runner_up: int | None


@dataclass(frozen=True, slots=True)
class Mask:
    """The stages of the phase `constrain` that masked ids, and how many ids they masked together."""

    constrained_by: tuple[str, ...]
    n_masked: int


@dataclass(frozen=True, slots=True)
class Forgone:
    """The token that the same draw would have chosen without truncation, and the stage that removed it."""

    id: int
    p_raw: float
    removed_by: str


@dataclass(frozen=True, slots=True, repr=False)
class RowView:
    """One token: its rank under the model and at the draw, the stages between, and which of them decided.

    `decided_by`: stages without which the same draw would have chosen another token, `instead`: these tokens,
    None where every id would be masked. `wins_without`: if the draw gives another token (a draft accepted by
    a lossy policy), the stages without which the draw would have given this one. `surprise` is -log2 of the
    probability under the model, in bits. `kept`: the row's largest logits, if the request keeps them.
    """

    token: int
    raw: Place
    stages: tuple[StageView, ...]
    final: Place
    surprise: float
    race: Race
    decided_by: tuple[str, ...]
    mask: Mask
    forgone: Forgone | None
    instead: tuple[int | None, ...] = ()
    wins_without: tuple[str, ...] = ()
    kept: KeptLogits | None = None

    def __repr__(self) -> str:
        raw = f"token={self.token}, p={self.raw.p:.3g}, rank={self.raw.rank}"
        return f"RowView({raw}, decided_by={self.decided_by})"
