"""The server while its models are loaded."""

import pytest
from starlette.testclient import TestClient

from gencli.server.access import AccessRules
from gencli.server.opening import loading_app


@pytest.fixture
def client():
    return TestClient(loading_app(AccessRules(key="secret")), base_url="http://localhost")


KEY = {"authorization": "Bearer secret"}


def test_what_needs_a_model_is_a_503_that_says_when_to_ask_again(client):
    cases = [("POST", "/v1/completions"), ("GET", "/v1/models"), ("GET", "/metrics"), ("POST", "/tokenize")]
    for method, path in cases:
        reply = client.request(method, path, headers=KEY)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "loading"), path
        assert int(reply.headers["retry-after"]) > 0, path
        assert client.request(method, path).status_code == 401, path


def test_what_needs_none_answers(client):
    health = client.get("/health")
    assert (health.status_code, health.json()) == (503, {"status": "loading"})
    assert "retry-after" in health.headers
    assert client.get("/version", headers=KEY).json()["version"]
    assert client.get("/").headers["content-type"].startswith("text/html")
