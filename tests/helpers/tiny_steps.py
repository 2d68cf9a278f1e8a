"""What `tiny` draws from while it writes texts with a profile, and its logits by transformers there."""

from functools import cache

import torch
from transformers import AutoModelForCausalLM

from gencli.config.job import make_job, make_request
from gencli.config.layers import gather
from gencli.core.events import Token
from gencli.models.files.local_models import find_local
from gencli.runtime.llm import LLM

__all__ = ["far_steps", "steps"]

# The first ids of each; so all texts of a position are equally long.
PROMPTS = (
    "Once upon a time, there was", "One winter, a fox saw a", "Mood: sad\nStory: There", "Dear Mia, I am",
    "Sentence: Nora is a 41 year old", "List: five fruits", "Count from 3 to 6:", "Question: Who is it?",
    "The baker of the village", "Every morning the old man", "In a small house by the", "The dog ran to the",
    "It was a cold day and", "Tom and Lily went to", "A king had three sons.", '"Hello," said the little',
    "Deep in the forest lived a", "She had a red ball and", "The story of a brave fox", "1, 2, 3, 4, 5",
)  # fmt: skip
LENGTH, STEPS = 5, 30
KNOWN = 256  # ids of which each step is known; of the others, if any are left, their sum


@cache
def _writer():
    return LLM("tiny", dtype="float32", max_batch=len(PROMPTS))


@cache
def _model():
    return AutoModelForCausalLM.from_pretrained(find_local("tiny"), dtype=torch.float32)


@torch.inference_mode()
def steps(profile, **given):
    """Return for each position ids [R, T], logits [R, V] of transformers' model for them, and log p [R, V].

    p is what gencli drew the next id from, 0 for ids that are not among the likeliest `KNOWN`. A text that
    has ended is no longer among the R.
    """
    texts, entries = _written(profile, given)
    found = []
    for step in range(STEPS):
        going = [number for number, rows in enumerate(entries) if len(rows) > step]
        if not going:
            break
        ids = torch.tensor([texts[number][: LENGTH + step] for number in going])
        logits = _model()(ids).logits[:, -1].clone()
        own = torch.full_like(logits, -torch.inf)
        for row, number in zip(own, going, strict=True):
            top = entries[number][step].processed_top
            row[[one.id for one in top]] = torch.tensor([one.processed for one in top])
        found.append((ids, logits, own))
    return found


def far_steps(pairs):
    """Return the share of rows that differ, of pairs of log p [R, V] from `steps` and others' logits [R, V].

    The ids that the record of a step has not are compared by the sum of their probabilities.
    """
    far, count = 0, 0
    for own, theirs in pairs:
        known = own > -torch.inf
        gap = torch.where(known, own.double().exp() - theirs.double().softmax(-1), 0)
        far += int((torch.maximum(gap.abs().amax(-1), gap.sum(-1).abs()) > 1e-4).sum())
        count += len(own)
    assert count > 300
    return far / count


def _written(profile, given):
    """Return the ids of each text and the log-probabilities of its output tokens."""
    llm = _writer()
    job = make_job(gather({"compat": profile, "max_tokens": STEPS, "logprobs": KNOWN, **given}, {}))
    texts = [list(llm.tokenizer.encode(prompt)[:LENGTH]) for prompt in PROMPTS]
    for number, text in enumerate(texts):
        llm.engine.submit(make_request(job, str(number), tuple(text), number, llm.tokenizer))
    entries = [[] for _ in texts]
    for event in llm.engine.run():
        if isinstance(event, Token):
            texts[int(event.request)].extend(event.ids)
            entries[int(event.request)].extend(event.logprobs)
    return texts, entries
