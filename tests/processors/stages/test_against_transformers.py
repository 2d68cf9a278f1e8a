"""Where transformers means the same, its warpers give the same logits."""

import torch
from transformers.generation.logits_process import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    ExponentialDecayLengthPenalty,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows

WIDTH = 500
IDS = torch.tensor([[3, 4, 4, 9, 120, 499, 3]])
ROWS = [3 * torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed)) for seed in range(20)]


def agree(run, name, params, theirs, **text):
    """Same support and same values, on rows without ties."""
    for row in ROWS:
        ours = torch.tensor(run(name, params, row.tolist(), **text))
        expected = theirs(IDS, row[None].clone())[0]
        torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-6)


def test_top_p(run):
    for p in [0.0, 0.1, 0.5, 0.9, 0.99]:
        agree(run, "top_p", {"p": p}, TopPLogitsWarper(p))


def test_top_p_keeps_a_minimum(run):
    for keep in [2, 30]:
        agree(run, "top_p", {"p": 0.05, "keep": keep}, TopPLogitsWarper(0.05, min_tokens_to_keep=keep))


def test_min_p(run):
    for p in [0.001, 0.05, 0.3, 1.0]:
        agree(run, "min_p", {"p": p}, MinPLogitsWarper(p))


def test_top_k(run):
    for k in [1, 7, 499, 900]:
        agree(run, "top_k", {"k": k}, TopKLogitsWarper(k))


def test_repetition(run):
    for penalty in [0.7, 1.2, 5.0]:
        theirs = RepetitionPenaltyLogitsProcessor(penalty)
        text = {"prompt": IDS[0, :3].tolist(), "output": IDS[0, 3:].tolist()}
        agree(run, "repetition", {"penalty": penalty}, theirs, **text)


def test_temperature(run):
    for temperature in [0.2, 1.7]:
        for row in ROWS:
            ours = torch.tensor(run("temperature", {"temperature": temperature}, row.tolist()))
            theirs = TemperatureLogitsWarper(temperature)(IDS, row[None].clone())[0]
            # Their largest logit is not moved to 0, so their float32 is coarser.
            torch.testing.assert_close(ours, theirs - theirs.max(), rtol=1e-6, atol=1e-5)


def test_suppress(run):
    agree(run, "suppress", {"ids": [4, 7]}, SuppressTokensLogitsProcessor([4, 7]))


def test_min_tokens(run):
    for count in [3, 4]:
        theirs = MinNewTokensLengthLogitsProcessor(4, count, eos_token_id=[8], device="cpu")
        text = {"prompt": IDS[0, :4].tolist(), "output": IDS[0, 4:].tolist(), "eos_ids": (8,)}
        agree(run, "min_tokens", {"count": count}, theirs, **text)


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


def test_stages_that_look_at_the_history_agree_on_thousands_of_rows():
    check(10_000)
