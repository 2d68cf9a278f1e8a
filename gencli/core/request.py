"""What a caller asks for: one frozen value per request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from processors.catalog import Draw
from processors.chain import Chain
from processors.policy import MATCH, Verification

__all__ = ["FIXED_DRAFTS", "Beams", "Drafting", "Guidance", "Jump", "Limits", "Request", "Stops"]

Jump = Literal["auto", "off"]
FIXED_DRAFTS = 4  # at a time, where their number decides the text and none is given


@dataclass(frozen=True, slots=True)
class Stops:
    """What ends a text early, besides the end-of-text ids."""

    ids: tuple[int, ...] = ()
    strings: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    include: bool = False
    loop: int = 0  # repetitions of a pattern that count as a loop; 0 is off


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a text may become: output tokens, and seconds since the request was submitted."""

    max_tokens: int = 512
    max_time: float | None = None

    def is_over(self, seconds: float) -> bool:
        """Whether this long is too long."""
        return self.max_time is not None and seconds >= self.max_time


@dataclass(frozen=True, slots=True)
class Beams:
    """A beam search: how many texts it follows at once, and how finished ones are compared.

    The score is the sum of logprobs divided by length ** length_penalty. The search ends when no beam can
    beat the worst of `width` finished texts; with `early_stopping` as soon as there are so many.
    """

    width: int
    length_penalty: float = 1.0
    early_stopping: bool = False


@dataclass(frozen=True, slots=True)
class Drafting:
    """Whose guesses a request takes: a drafter's name, none, or "" for whatever the engine has.

    At most `tokens` at a time (None: as many as pay), none that the drafter gives less than `min_p`; which
    of them stand is for `verification`.
    """

    drafter: str = ""
    tokens: int | None = None
    min_p: float = 0.0
    verification: Verification = MATCH


@dataclass(frozen=True, slots=True)
class Guidance:
    """How far to move away from what a companion expects (processors.guidance has the formula).

    The companion is the model itself behind `negative` (None: behind the prompt's last token), or the model
    that `amateur` names behind the prompt. `scale` >= 0 is 1 for no change, `cutoff` in 0..1 masks what is
    that much less likely than the best.
    """

    scale: float = 1.0
    negative: tuple[int, ...] | None = None
    cutoff: float = 0.0
    amateur: str = ""

    @property
    def is_on(self) -> bool:
        """Whether it changes anything, and so needs a companion."""
        return self.scale != 1 or self.cutoff > 0

    def companion_prompt(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """What the companion is fed before the output, for a request with this prompt."""
        if self.amateur:
            return prompt
        return prompt[-1:] if self.negative is None else self.negative


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and everything that decides its output.

    `seed` is the request's own seed, derived from the run's seed and the row key; sample j of `n`
    draws with derive(seed, j). `draw` is the sampler's method. Requests of one `session` follow each
    other: what their prompts have in common is read once. With `beams` nothing is drawn, and the samples
    are the best `n` texts of a search; with `best_of` they are the best `n` of so many samples.
    """

    id: str
    prompt_ids: tuple[int, ...]
    chain: Chain = field(default_factory=Chain)
    seed: int = 0
    draw: Draw = "gumbel"
    n: int = 1
    stops: Stops = field(default_factory=Stops)
    limits: Limits = field(default_factory=Limits)
    session: str = ""
    jump: Jump = "auto"
    finish_open: bool = False
    beams: Beams | None = None
    best_of: int | None = None
    drafting: Drafting = field(default_factory=Drafting)
    guidance: Guidance = field(default_factory=Guidance)

    @property
    def verification(self) -> Verification:
        """How its drafts are verified. A greedy draw is no distribution: rejection is `match` there."""
        wanted = self.drafting.verification
        return MATCH if self.draw == "greedy" and wanted.policy == "rejection" else wanted

    @property
    def drafts_decide(self) -> bool:
        """Whether the text is another one with other drafts; with `match` it is not."""
        return self.verification.policy != MATCH.policy

    @property
    def num_drafts(self) -> int | None:
        """Drafts at a time; None for as many as pay, which the clock decides and so never where drafts do."""
        return FIXED_DRAFTS if self.drafting.tokens is None and self.drafts_decide else self.drafting.tokens
