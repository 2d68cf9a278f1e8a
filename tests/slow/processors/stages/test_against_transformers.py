"""Where transformers means the same, its warpers give the same logits."""

import torch
from transformers.generation.logits_process import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    ExponentialDecayLengthPenalty,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows

NUM_IDS, PROMPT, OUTPUT = 7, 20, 12


def theirs_and_ours(processor, chain, num_rows):
    """Many rows at once: random texts over a few ids, logits with ties, extreme values and masked ones."""
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(NUM_IDS, (num_rows, PROMPT + OUTPUT), generator=random)
    ids[::3] %= 2
    logits = (
        torch.randn(num_rows, NUM_IDS + 2, generator=random) * torch.tensor([1.0, 1e-30, 1e4])[ids[:, :1] % 3]
    )
    logits[1::4] = logits[1::4].round()
    logits[torch.rand(logits.shape, generator=random) < 0.1] = -torch.inf
    pipeline, history = Pipeline(Env(NUM_IDS + 2, eos_ids=(1, 4))), History()
    for slot, row in enumerate(ids.tolist()):
        prompt = tuple(row[:PROMPT])
        history.admit(slot, prompt)
        pipeline.admit(slot, chain, Admission(prompt))
        pipeline.commit(slot, row[PROMPT:])
    history.append(range(num_rows), ids[:, PROMPT:].tolist())
    ours = pipeline(logits, Rows.build(history, range(num_rows)))
    return processor(ids)(ids, logits.clone()), ours


BIASES = [[[1], 2.0], [[2, 0], -3.0], [[0, 2, 0], 1.5], [[1, 1, 1, 5], -7.0], [[5], 0.25], [[0] * 4, 9.0]]


CHAINS = [
    ("repetition=1.3", lambda ids: RepetitionPenaltyLogitsProcessor(1.3)),
    (
        "repetition:penalty=0.4,window=9",
        lambda ids: RepetitionPenaltyLogitsProcessor(0.4, prompt_ignore_length=PROMPT + OUTPUT - 9),
    ),
    (
        "repetition:penalty=0.625,scope=prompt",
        lambda ids: EncoderRepetitionPenaltyLogitsProcessor(1.6, ids[:, :PROMPT]),
    ),
    *((f"no_repeat_ngram={n}", lambda ids, n=n: NoRepeatNGramLogitsProcessor(n)) for n in (1, 2, 3, 9)),
    *(
        (
            f"no_repeat_ngram:n={n},scope=prompt",
            lambda ids, n=n: EncoderNoRepeatNGramLogitsProcessor(n, ids[:, :PROMPT]),
        )
        for n in (1, 2, 4)
    ),
    ("length_decay=[5,1.2]", lambda ids: ExponentialDecayLengthPenalty((5, 1.2), [1, 4], PROMPT)),
    ("length_decay=[5,0.7]", lambda ids: ExponentialDecayLengthPenalty((5, 0.7), [1, 4], PROMPT)),
    ("length_decay=[12,1.2]", lambda ids: ExponentialDecayLengthPenalty((12, 1.2), [1, 4], PROMPT)),
    (f"sequence_bias={BIASES}".replace(" ", ""), lambda ids: SequenceBiasLogitsProcessor(BIASES)),
]


def check(num_rows):
    for chain, processor in CHAINS:
        expected, found = theirs_and_ours(processor, Chain.parse(chain), num_rows)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_stages_that_look_at_the_history_agree():
    check(300)
