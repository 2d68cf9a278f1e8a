"""Two sides on one engine: in the order of the prompts, each text as in a run of its own."""

from gencli.config.job import make_requests
from gencli.core.events import Finish
from gencli.models.other_runners import FakeRunner
from gencli.text.tokenizer import ByteTokenizer
from tests.engine.harness import engine
from tests.runtime.test_comparing import PROMPTS, compared, compared_models, jobs


def check_twice(a, b, **options):
    twice = compared_models(a, b, (FakeRunner(), FakeRunner()), **options)
    assert twice == compared(a, b, **options), (a, b, options)


GUIDED = {"guidance": "1.5", "negative": "dog"}


def test_the_same_model_twice_is_one_model():
    check_twice("mirostat:version=2,tau=3", "repetition=1.5 | top_k=20", **GUIDED)
    check_twice("top_k=9", 'grammar:kind=regex,text="[a-z ]+"')


def test_each_text_is_that_of_a_run():
    a = "temperature=1.3 | top_k=50"
    for b in ("mirostat:version=2,tau=3", "temperature=0"):
        found = compared(a, b)
        assert [(one.id, one.prompt) for one in found] == [(str(n), p) for n, p in enumerate(PROMPTS, 1)], b
        for side, job in zip("ab", jobs(a, b), strict=True):
            on = engine()
            for request in make_requests(job, PROMPTS, ByteTokenizer()):
                on.submit(request)
            ends = {event.request: event for event in on.run() if isinstance(event, Finish)}
            for one in found:
                assert getattr(one, side).text == ends[one.id].text, b
                assert len(getattr(one, side).tokens) == ends[one.id].completion_tokens, b


def test_the_texts_part_where_the_places_do_first():
    for one in compared("temperature=1.3 | top_k=50", "top_k=3"):
        first = next(place for place in one.places if place.is_parted)
        assert one.parted_at == first.pos
        assert one.b.tokens[first.pos] == first.b
        assert len(one.places) == len(one.a.tokens)


def test_places_are_the_same_in_any_company():
    a, b = "repetition=1.3 | top_k=50", "dry=0.8 | top_k=9"
    assert compared(a, b)[0] == compared(a, b, PROMPTS[:1], on=engine(max_batch=1))[0]
