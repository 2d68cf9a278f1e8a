"""The walk over pairs of built-in stages: both leave their mark, and the result is that of the twins.

It takes the stages from the registry and their values from the kit, so a new stage is in it.
"""

from itertools import combinations, product

import torch

from processors.catalog import BUILTIN, Phase
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.testing.checks import TEXTS, random_logits, toy_env
from processors.testing.examples import examples
from tests.processors.reference.twins import REFERENCE

__all__ = ["IN_TURN", "STAGE_PAIRS", "act_together"]

ENV = toy_env()
PARAMS = {spec.name: spec.params for spec in BUILTIN}
SEEDS = range(4)

STAGE_PAIRS = list(combinations(PARAMS, 2))
_ONE_LEFT = ("eos_above", "force", "reasoning_budget")  # stages that leave one id where they act
# Pairs of which only one acts in a step: why.
_MASKED = "The ids that end a text are masked already."
IN_TURN = {
    ("min_tokens", "ignore_eos"): "While min_tokens holds, the ids of ignore_eos are masked already.",
    **{
        (one, other): _MASKED
        for one in ("min_tokens", "ignore_eos")
        for other in ("length_decay", "length_boost")
    },
    ("min_tokens", "eos_above"): "An id that min_tokens masks is not likely.",
    ("ignore_eos", "eos_above"): "An id that ignore_eos masks is not likely.",
    ("eos_above", "no_repeat_ngram"): "What eos_above leaves are ids that end a text, which none has before.",
    ("begin_suppress", "length_decay"): "The one acts on the first token, the other from the second on.",
    **{
        (first, spec.name): "One id is left, which needs no further choice."
        for first, spec in product(_ONE_LEFT, BUILTIN)
        if spec.phase > Phase.CONSTRAIN
    },
}


def act_together(first: str, second: str) -> bool:
    """Whether there is an input on which both stages act; there their result has to be the twins'."""
    for one, other in product(examples(PARAMS[first]), examples(PARAMS[second])):
        chain = Chain(((first, one), (second, other)))
        for text, seed in product(TEXTS, SEEDS):
            logits = random_logits(1, ENV, seed=seed)
            out, acted = run(chain, text, logits)
            if acted == [True, True] or ((first, second) in IN_TURN and any(acted)):
                torch.testing.assert_close(out, composed(chain, text, logits), rtol=1e-5, atol=1e-5)
                return True
    return False


def run(chain, text, logits):
    """Processed logits, and whether each stage changed its own."""
    history, pipeline, seen = History(), Pipeline(ENV), []
    history.admit(0, text.prompt)
    history.append([0], [text.output])
    pipeline.admit(0, chain, text.admission)
    pipeline.commit(0, text.output)
    plain = pipeline._run

    def watched(call, before, rows):
        old = before.clone()
        after = plain(call, before, rows)
        seen.append(not torch.equal(old, after))
        return after

    pipeline._run = watched
    return pipeline(logits, Rows.build(history, [0])), seen


def composed(chain, text, logits):
    values = logits[0].tolist()
    for name, params in chain:
        values = REFERENCE[name](values, params, text.view(ENV, 0))
    return torch.tensor([values])
