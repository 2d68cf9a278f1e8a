"""The compat profiles for tests: rows through their chains."""

import torch

from gencli.config.job import make_job
from gencli.config.layers import gather
from gencli.config.run_options import profiles
from processors.base import Admission, Env
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows

__all__ = ["OF_LLAMA_CPP", "PROFILES", "far_rows", "own_rows", "random_rows"]

PROFILES = profiles()
# The stages that tests/config/test_compat_llama_cpp.py compares with llama.cpp's own code.
OF_LLAMA_CPP = (
    *("repetition", "frequency", "presence", "top_n_sigma", "top_k", "typical", "top_p", "min_p", "xtc"),
    *("temperature", "dynamic_temperature"),
)


def own_rows(profile, logits, prompts, outputs=None, **given):
    """Return logits [R, V] as the chain of a profile with these options makes them, a slot for each row."""
    job = make_job(gather({"compat": profile, **given}, {}))
    history, pipeline = History(), Pipeline(Env(logits.shape[1]))
    for slot, prompt in enumerate(map(tuple, prompts.tolist())):
        history.admit(slot, prompt)
        pipeline.admit(slot, job.chain, Admission(prompt))
        if outputs is not None:
            ids = tuple(outputs[slot].tolist())
            history.append([slot], [ids])
            pipeline.commit(slot, ids)
    return pipeline(logits.clone(), Rows.build(history, list(range(len(logits)))))


def random_rows(count, vocab, *, ties, extremes=False, seed=7):
    """Return prompts [R, 8] and logits [R, V]: flat and peaked rows, some masked, with ties or without.

    `extremes`: some rows are of the size of 1e30, nearly flat, or have one possible id.
    """
    generator = torch.Generator().manual_seed(seed + ties)
    logits = torch.randn(count, vocab, generator=generator) * torch.rand(count, 1, generator=generator) * 8
    logits = (logits * 2).round() / 2 if ties else logits
    logits[: count // 4, ::3] = -torch.inf
    logits[count // 4 : count // 3] *= 50
    if extremes:
        logits[1::40] *= 1e30
        logits[2::40] *= 0.05
        logits[3::40, :-1] = -torch.inf
    return torch.randint(vocab, (count, 8), generator=generator), logits


def far_rows(one, other, *, ties):
    """Return the number of rows whose distributions differ; with ties any of equal tokens may be cut."""
    one, other = one.double().softmax(-1), other.double().softmax(-1)
    if ties:
        one, other = one.sort(-1).values, other.sort(-1).values
    return int(((one - other).abs().amax(-1) > 1e-4).sum())
