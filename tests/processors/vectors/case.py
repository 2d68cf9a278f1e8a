"""`Case`: what another system's test, or a formula computed apart, says about a chain on one row."""

import math
from dataclasses import dataclass

__all__ = ["Case", "logs", "shares"]


@dataclass(frozen=True)
class Case:
    """One row through one chain. Exactly one of `kept`, `p` and `logits_after` is what the source expects.

    `logits` are the row; write `logs(0.1, 0.9)` for probabilities. `kept` are the ids that stay, `p` the
    softmax of what stays, `logits_after` the processed logits. `differs` is why gencli decides otherwise,
    with the entry of docs/contributing/semantics.md; the test then requires another result than the expected.
    """

    source: str  # file and test, as in "llama.cpp tests/test-sampling.cpp test_top_k"
    chain: str
    logits: tuple[float, ...]
    kept: tuple[int, ...] | None = None
    p: tuple[float, ...] | None = None
    logits_after: tuple[float, ...] | None = None
    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    eos: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()  # of the ids, where the chain looks at text
    seed: int = 0
    differs: str = ""
    within: float = 1e-5

    def __str__(self) -> str:
        return f"{self.source.split()[-1]}: {self.chain}"


def logs(*probabilities: float) -> tuple[float, ...]:
    """Return ln p of each, -inf for 0."""
    return tuple(math.log(p) if p else -math.inf for p in probabilities)


def shares(*weights: float) -> tuple[float, ...]:
    """Return the weights divided by their sum."""
    return tuple(weight / sum(weights) for weight in weights)
