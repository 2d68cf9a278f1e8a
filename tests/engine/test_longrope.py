"""Long-rope models in the engine: each text is that of fresh passes, in any company."""

from functools import cache

import torch

from gencli.core.events import Error, Finish, Token
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.models.hf_runner import HFRunner
from gencli.text.tokenizer import ByteTokenizer
from processors.chain import Chain
from tests.engine.harness import ends_of, events_of, ids_of
from tests.models.fresh import FreshRunner
from tests.models.tiny_models import SWITCH, VOCAB, long_rope

COUNT = 10


LENGTHS = (30, SWITCH - 3, SWITCH, SWITCH + 1, 70, 90)


_NOISE = torch.Generator().manual_seed(7)


# All begin alike, and go on by repeating themselves, so that drafters have something to say.
_HEAD, _WORD = (torch.randint(3, VOCAB, (size,), generator=_NOISE).tolist() for size in (20, 7))


PROMPTS = [tuple([*_HEAD, length, *_WORD * 15][:length]) for length in LENGTHS]


torch.set_num_threads(1)


@cache
def model():
    return long_rope("phi3")


def requests(**rest):
    chain = Chain.parse("temperature=0.7")
    return [
        Request(str(number), prompt, chain=chain, seed=number, limits=Limits(COUNT), **rest)
        for number, prompt in enumerate(PROMPTS)
    ]


def run(runner, asked, *, max_batch=8, **options):
    """Ids by request and sample."""
    events = events_of(asked, on=Engine(runner, ByteTokenizer(), max_batch=max_batch, **options))
    assert not [event for event in events if isinstance(event, Error)]
    return dict.fromkeys(ends_of(events), ()) | ids_of(events)


def runner(max_lanes=16):
    return HFRunner(model(), max_lanes=max_lanes)


def test_turns_of_a_session_cross_the_switch():
    chain = Chain.parse("temperature=0")
    for one in (runner(), FreshRunner(model())):
        on, texts, prompt = Engine(one, ByteTokenizer(), max_batch=2), [], PROMPTS[0]
        for turn in range(5):
            on.submit(Request(str(turn), prompt, chain=chain, limits=Limits(5), session="a"))
            ids = [i for event in on.run() if isinstance(event, Token) for i in event.ids]
            texts.append(ids)
            prompt = (*prompt, *ids, 7, 8, 9)
        if isinstance(one, HFRunner):
            found = texts
    assert len(prompt) > SWITCH + 10
    assert found == texts


def test_a_beginning_is_copied_on_one_side_of_the_switch_only():
    head = (*_HEAD, *_WORD * 3)
    asked = [Request(str(n), (*head, 5, *_WORD * n), limits=Limits(2)) for n in (0, 2, 0, 2)]
    engine = Engine(runner(), ByteTokenizer(), max_batch=4)
    for number, one in enumerate(asked):
        engine.submit(Request(str(number), one.prompt_ids, limits=Limits(2)))
    ends = {event.request: event.cached_tokens for event in engine.run() if isinstance(event, Finish)}
    assert [ends[str(number)] > 0 for number in range(4)] == [False, False, True, True]
