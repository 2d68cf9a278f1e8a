"""A processor of transformers as a stage gives the text of the built-in one, alone and beside others."""

from gencli.plugins.plugin_registry import make_registry
from processors.testing import check_stage
from tests.engine.harness import engine, texts
from tests.plugins.test_plugin_loading import HF, asked


def test_a_transformers_processor_gives_the_text_of_the_stage_that_is_built_in():
    registry = make_registry([HF])
    requests = [asked(key, "repetition_penalty=1.7", registry) for key in "abc"]
    own = [asked(key, "repetition:penalty=1.7,exempt=[]", registry) for key in "abc"]
    assert texts(requests, on=engine(registry=registry)) == texts(own)
    assert texts(own) != texts([asked(key, "", registry) for key in "abc"])

    assert [
        result for result in check_stage(make_registry([HF]).load("repetition_penalty")) if not result.passed
    ] == []

    registry = make_registry([HF])
    chains = ["repetition_penalty=1.7", "", "repetition_penalty=0.4", "temperature=0.5"]
    requests = [asked(str(key), chain, registry) for key, chain in enumerate(chains)]
    alone = {k: v for one in requests for k, v in texts([one], on=engine(registry=registry)).items()}
    assert texts(requests, on=engine(registry=registry)) == alone
