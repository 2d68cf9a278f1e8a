"""Texts that are banned with rewind never appear, and what appears is what a plain loop finds."""

import json
from dataclasses import replace

import pytest

from gencli.core.request import Beams, Drafting
from gencli.errors import UsageError
from processors.chain import Chain
from processors.request_values import Verification
from processors.stages.masks import MOST_REWINDS, BanParams
from tests.engine.harness import Token, ends_of, engine, events_of, generate, request
from tests.engine.test_guidance import Remembering

LETTERS = f"allowed=[{','.join(str(byte) for byte in b'abcdef ')}]"


SEEDS, WORDS, FREE = range(4), ("ab", "ec", "dad"), Chain.parse(LETTERS)


def ban(texts, **rest):
    return BanParams(tuple(texts), rewind=True, **rest)


def asked(texts, *, seed=0, prompt="Hello", chain=LETTERS, max_tokens=60, grammar=None, **rest):
    one = request(prompt, seed=seed, key=f"{seed} {prompt} {texts}", max_tokens=max_tokens, **rest)
    stages = (*Chain.parse(chain).stages, ("ban", ban(texts)), *((("grammar", grammar),) if grammar else ()))
    return replace(one, chain=Chain(stages))


def run(requests, **options):
    """The text of each sample, which is that of its Token events joined."""
    events, streamed = events_of(requests, **{"runner": Remembering()} | options), {}
    for event in events:
        if isinstance(event, Token):
            key = event.request, event.sample
            streamed[key] = streamed.get(key, "") + event.text
    ends = ends_of(events)
    assert {key: end.text for key, end in ends.items()} == {key: streamed.get(key, "") for key in ends}
    return ends


def text(one, **options):
    return run([one], **options)[one.id, 0].text


def test_after_many_ways_back_the_texts_are_masked():
    firsts = bytes(range(40, 40 + 2 * MOST_REWINDS)).decode().replace("a", "")
    texts = tuple(first + "a" for first in firsts)
    likely = f'allowed={json.dumps([*firsts.encode(), 97, 122])} | bias={{"97":99,"122":50}}'
    one = asked(texts, chain=f"{likely}", max_tokens=10, prompt="z")
    runner = Remembering()
    found = text(one, runner=runner)
    assert not any(banned in found for banned in texts)
    assert len(found) == 10
    assert runner.steps <= 10 * (MOST_REWINDS + 2)


def test_what_cannot_go_back_is_refused_and_where_every_id_is_banned_the_error_names_ban():
    rejecting = Drafting(tokens=2, verification=Verification("rejection"))
    for change in ({"beams": Beams(2), "n": 1}, {"drafting": rejecting}):
        with pytest.raises(UsageError, match="A ban with rewind and .* do not go together"):
            engine().submit(replace(asked(("a",)), **change))
    one = asked(("a", "b", "c"), chain="allowed=[97,98,99]")
    error = generate([one])[one.id, 0]
    assert "No token is left to choose from" in error.message
    assert "ban" in error.message
