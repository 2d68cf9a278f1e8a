"""Several models in one server: chosen by name, counted apart."""

import pytest

from gencli.errors import UsageError
from gencli.server.serve_options import served_names
from gencli.server.serving import Conditions
from tests.server.conftest import serve

ASKED = {"prompt": "hi", "max_tokens": 5, "seed": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
def both():
    with serve(names=("a", 'b"')) as client:
        yield client


def test_a_request_names_its_model(both):
    for body, name in ((ASKED, "a"), ({**ASKED, "model": ""}, "a"), ({**ASKED, "model": 'b"'}, 'b"')):
        assert both.post("/v1/completions", json=body).json()["model"] == name
    assert [model["id"] for model in both.get("/v1/models").json()["data"]] == ["a", 'b"']
    assert both.get("/v1/models/a").json()["id"] == "a"
    assert both.get("/props", params={"model": 'b"'}).json()["model_path"] == 'b"'
    assert both.get("/props").json()["model_path"] == "a"


def test_an_unknown_name_is_a_404_that_names_what_is_known(both):
    cases = [
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/responses", {"input": "a"}),
        ("/v1/chain", {}),
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": [97]}),
    ]
    for path, more in cases:
        reply = both.post(path, json={"model": "c", **more})
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found"), path
        assert "Known: a, b" in reply.json()["error"]["message"], path


def test_an_unknown_name_in_a_query_is_a_404_too(both):
    for path in ("/props", "/tokenizer_info"):
        assert both.get(path, params={"model": "c"}).status_code == 404


def test_metrics_are_apart_with_one_type_line_each(both):
    def generated():
        lines = both.get("/metrics").text.splitlines()
        kinds = [line for line in lines if line.startswith("#")]
        assert len(kinds) == len(set(kinds))
        found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return [
            float(found[f'gencli_generation_tokens_total{{model_name="{name}"}}']) for name in ("a", 'b\\"')
        ]

    before = generated()
    both.post("/v1/completions", json={**ASKED, "model": 'b"'})
    assert generated() == [before[0], before[1] + 5]


def test_a_full_model_leaves_room_to_the_other():
    both = serve(Conditions(max_queue=0), names=("a", "b"), max_batch=1)
    with both as client, client.serving.admission.enter():
        assert client.post("/v1/completions", json={**ASKED, "model": "a"}).status_code == 429
        assert client.post("/v1/completions", json={**ASKED, "model": "b"}).status_code == 200


def test_names_are_the_given_ones_then_those_of_folders():
    assert served_names(["/x/one", "org/two"], ["1"]) == ["1", "org/two"]
    assert served_names(["./one"], []) == ["one"]
    with pytest.raises(UsageError, match="served_name"):
        served_names(["one"], ["1", "2"])
    with pytest.raises(UsageError, match="Two models"):
        served_names(["/x/one", "/y/one"], [])
