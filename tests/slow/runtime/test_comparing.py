"""Two sides on one engine: in the order of the prompts, each text as in a run of its own."""

from gencli.models.fake import FakeRunner
from tests.runtime.test_comparing import compared, compared_models


def check_twice(a, b, **options):
    twice = compared_models(a, b, (FakeRunner(), FakeRunner()), **options)
    assert twice == compared(a, b, **options), (a, b, options)


GUIDED = {"guidance": "1.5", "negative": "dog"}


def test_the_same_model_twice_is_one_model():
    check_twice("mirostat:version=2,tau=3", "repetition=1.5 | top_k=20", **GUIDED)
    check_twice("top_k=9", 'grammar:kind=regex,text="[a-z ]+"')
