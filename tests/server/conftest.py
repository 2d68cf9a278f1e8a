"""A server in process on the fake or the bundled model, asked through starlette's client."""

import json
from contextlib import ExitStack, closing, contextmanager

import pytest
from starlette.testclient import TestClient

from gencli.config.layers import gather
from gencli.runtime.compiled_grammars import grammar_env, make_compiler
from gencli.runtime.model_loading import StoringReporter
from gencli.runtime.wiring import load_model
from gencli.server.asgi_app import make_app
from gencli.server.served_models import Models
from gencli.server.serving import Conditions, Serving

LETTERS = list(range(97, 107))


@contextmanager
def serve(conditions=None, names=("",), notice=lambda text: None, **settings):
    """Yield a client of a server with one model for each name; its attribute `serving` is the first."""
    with (
        loaded_models(conditions, names, notice, **settings) as models,
        TestClient(make_app(models), base_url="http://localhost") as client,
    ):
        client.serving = models.get(None)
        yield client


@contextmanager
def loaded_models(conditions=None, names=("",), notice=lambda text: None, **settings):
    """Yield the models of a server, which have not started."""
    settings = gather({"model": "fake", **settings}, {})
    conditions = conditions or Conditions()
    with ExitStack() as stack:
        servings = []
        for name in names:
            loaded, _ = load_model(settings, StoringReporter(), companions=True, rows=8)
            compiler = stack.enter_context(closing(make_compiler(grammar_env(loaded), 30.0)))
            servings.append(Serving(settings, loaded, compiler, conditions, name=name, notice=notice))
        yield Models(*servings)


@pytest.fixture(scope="session")
def fake():
    with serve() as client:
        yield client


@pytest.fixture(scope="session")
def tiny():
    with serve(model="tiny", dtype="float32") as client:
        yield client


def events(reply):
    """The JSON documents of a stream, which has to end with [DONE]."""
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    *data, done = [line.removeprefix("data: ") for line in reply.text.split("\n\n")[:-1]]
    assert done == "[DONE]"
    return [json.loads(one) for one in data]


def post(client, path, **body):
    """The reply to a body, which has to be a 200."""
    reply = client.post(f"/v1/{path}", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def refusal(client, path, **body):
    """The error of a body, which has to be a 400."""
    reply = client.post(f"/v1/{path}", json=body)
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]


def idle(serving):
    """Whether nothing is left in the engine or in the count of calls."""
    return serving.thread.num_open == 0 and serving.admission.num_samples == 0
