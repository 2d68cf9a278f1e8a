"""Two sides on one engine: in the order of the prompts, each text as in a run of its own."""

from tests.slow.runtime.test_comparing import GUIDED, check_twice


def test_the_same_model_twice_is_one_model_whatever_the_chains():
    for options in ({}, GUIDED):
        check_twice("temperature=1.3 | top_k=50", "top_k=3", **options)
        check_twice("temperature=0", "top_p=0.9", **options)
    check_twice("mirostat:version=2,tau=3", "repetition=1.5 | top_k=20")
    check_twice("top_k=9", 'grammar:kind=regex,text="[a-z ]+"', **GUIDED)
