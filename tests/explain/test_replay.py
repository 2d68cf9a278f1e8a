"""A chain on kept logits is the chain on all logits; which token a text names."""

import json
from dataclasses import replace

import pytest
import torch

from gencli.core.events import Token
from gencli.explain.logits_file import kept_fields, read_kept
from gencli.explain.replay import Replay
from gencli.explain.token_record import ListVocabulary
from processors.base import Admission, Env
from processors.chain import Chain
from processors.explain_rows import KeptLogits
from tests.engine.harness import TOKENIZER, engine, request

CHAIN = "repetition=1.3 | temperature=1.2 | top_k=20 | top_p=0.8"


def explained(chain, keep, **options):
    """A request with kept logits, and the views of its tokens."""
    on, one = (
        engine(),
        replace(request("the cat sat on the mat", chain=chain, max_tokens=20, **options), trace=3),
    )
    one = replace(one, keep_logits=keep)
    on.submit(one)
    views = [view for event in on.run() if isinstance(event, Token) for view in event.views]
    return one, views, Env(len(views[0].kept.rows()[0]), TOKENIZER, on.eos_ids)


def replayed(chain, one, views, env):
    """Looks and explanations of a chain along the text."""
    told = Admission(one.prompt_ids, (), one.limits.max_tokens)
    run = Replay(Chain.parse(chain), env, views[0].kept, draw=one.draw, request=told)
    for view in views:
        yield run.look(view.kept), run.explain(view.kept, view.token, count=3)
        run.commit(view.token)


def test_a_named_token_is_explained_whatever_its_rank():
    one, views, env = explained("top_k=5", 10_000)
    run = Replay(one.chain, env, views[0].kept, request=Admission(one.prompt_ids))
    ids = views[0].kept.values.argsort(descending=True).tolist()
    view = run.explain(views[0].kept, ids[30])
    assert (view.raw.rank, view.final.rank, view.final.p) == (31, None, 0)


def test_fields_are_read_as_they_were_written_and_others_refused():
    kept = KeptLogits.of(torch.randn(300, generator=torch.Generator().manual_seed(1)), 7, seed=2**63 + 5)
    again = read_kept(json.loads(json.dumps(kept_fields(kept))))
    assert torch.equal(again.ids, kept.ids)
    assert torch.equal(again.values, kept.values)
    assert (again.rest, again.vocab_size, again.seed) == (kept.rest, 300, 2**63 + 5)

    for change in [
        {"ids": "AAAA"}, {"ids": "?"}, {"ids": 3}, {"ids": "AAAAAAAAAAA="}, {"values": ""}, {"rest": "x"},
        {"rest": [1]}, {"vocab": 1}, {"vocab": 1 << 40}, {"vocab": None}, {"seed": -1}, {"seed": 1 << 64},
        {"seed": 0.5},
    ]:  # fmt: skip
        fields = kept_fields(KeptLogits.of(torch.randn(30), 2, seed=1)) | change
        with pytest.raises((TypeError, ValueError)):
            read_kept(fields)


def test_ids_have_their_texts():
    words = ListVocabulary(["a", " b"])
    assert (words.vocab_size, words.token_bytes) == (2, [b"a", b" b"])
    assert (words.encode(" b"), words.encode("c")) == ([1], [])
    assert ListVocabulary.numbered(3).token_bytes[2] == b"#2"
