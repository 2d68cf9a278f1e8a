"""How often the engine's texts of three letters come, and how often they are due."""

from itertools import product

import torch

from processors.base import Admission, Env
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from tests.engine.harness import TOKENIZER
from tests.speculative.cases import outcomes

IDS, TOKENS = tuple(b"abcd"), 3
ALLOWED = f"allowed={list(IDS)}"
TEXTS = list(product(IDS, repeat=TOKENS))
CPU = torch.device("cpu")


def counted(one, **options):
    """How often each of TEXTS begins a sample of the request, and how many drafts stood."""
    found, stood = outcomes([one], **options)
    counts = dict.fromkeys(TEXTS, 0)
    for ids, _ in found.values():
        counts[ids[:TOKENS]] += 1
    return torch.tensor(list(counts.values()), dtype=torch.float64), stood


def chances(one, raw):
    """The probability of each of TEXTS, place by place through the request's chain and nothing else.

    `raw` gives the logits [V] that the chain is fed behind some output.
    """
    history, pipeline = History(slots=len(TEXTS)), Pipeline(Env(258, TOKENIZER, (257,), CPU))
    found, waiting = {(): 1.0}, [()]
    for slot, text in enumerate(waiting):  # which grows
        history.admit(slot, one.prompt_ids, seed=0)
        pipeline.admit(slot, one.chain, Admission(one.prompt_ids, max_tokens=one.limits.max_tokens))
        for place, token in enumerate(text):
            pipeline(raw(text[:place])[None], Rows.build(history, [slot]))  # for what looks at the draw
            forced = any(step.forced for step in pipeline.preview(slot, [token]))
            history.append([slot], [[token]], [[forced]])
            pipeline.commit(slot, [token])
        rows = pipeline.prepare(Rows.build(history, [slot]))
        probable = pipeline(raw(text)[None], rows)[0].double().softmax(-1).tolist()
        longer = {(*text, token): found[text] * probable[token] for token in IDS if probable[token] > 0}
        found |= longer
        waiting += [text for text in longer if len(text) < TOKENS]
    return torch.tensor([found.get(text, 0.0) for text in TEXTS], dtype=torch.float64)
