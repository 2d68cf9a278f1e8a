"""Whatever a beam was forked from, it is scored as if it had been alone from the beginning."""

from dataclasses import replace

import pytest

from gencli.core.events import Finish, Token
from gencli.engine.beam_search import log_probabilities
from gencli.engine.slot_state import admission
from gencli.models.other_runners import FakeRunner
from gencli.text.tokenizer import ByteTokenizer
from processors.base import Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rows import Rows
from tests.engine.beams.harness import LETTERS, engine, request

CHAINS = {
    "ban": Chain.parse(LETTERS + '|ban=["ab","dd","c a"]'),
    "penalties": Chain.parse(LETTERS + "|repetition=1.4|frequency=0.6|presence=0.3"),
    "window": Chain.parse(LETTERS + "|repetition:penalty=1.5,scope=output,window=3,exempt=[97]"),
    "bias": Chain.parse(LETTERS + "|min_tokens=6|bias=[[97,1.5],[257,2.0]]"),
    "grammar": Chain.parse("frequency=0.6").with_stage(
        "grammar", kind="regex", text="([abc]{2,3} ){2,4}(done|over)?"
    ),
    "choice": Chain.parse("presence=0.4").with_stage(
        "grammar", kind="choice", text='["abcd", "abce", "bcde", "bcdea", "edcba"]', backend="trie"
    ),
}


def fresh_logprob(table, one, ids):
    """The sum of logprobs of these tokens, each step with stages that know nothing of beams."""
    tokenizer = ByteTokenizer()
    history, pipeline = History(slots=1), Pipeline(Env(258, tokenizer, tokenizer.eos_ids))
    history.admit(0, one.prompt_ids)
    pipeline.admit(0, one.chain, admission(one, 1024))
    total, last = 0.0, one.prompt_ids[-1]
    for token in ids:
        rows = pipeline.prepare(Rows.build(history, [0]))
        logprobs = log_probabilities(pipeline(table[last][None], rows))
        forced = [entry.forced for entry in pipeline.preview(0, [token])]
        total, last = total + logprobs[0, token].item(), token
        history.append([0], [[token]], [forced])
        pipeline.commit(0, [token])
    return total


def test_every_beam_has_the_score_that_it_has_alone():
    for name in CHAINS:
        runner = FakeRunner(258, eos_ids=(257,))
        one = request("Hello", width=5, n=3, max_tokens=14)
        one = replace(one, chain=CHAINS[name])
        on = engine(runner=runner)
        on.submit(one)
        events = list(on.run())
        found = [event.ids for event in events if isinstance(event, Token)]
        (ends, *_) = [event.candidates for event in events if isinstance(event, Finish)]
        assert len(found) == 3, name
        for ids, candidate in zip(found, ends, strict=False):
            assert candidate.logprob == pytest.approx(fresh_logprob(runner.table, one, ids), abs=1e-4), name
