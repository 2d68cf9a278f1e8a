"""`gencli serve` as a process: it says where it answers, and drains at SIGTERM."""

import json
import re
import signal
import socket
import threading
import urllib.request

import pytest


@pytest.fixture
def serve(spawn):
    """Start a server on a free port; return the process and its address."""

    def start(*arguments, model="fake", **options):
        process = spawn("serve", "--model", model, "--port", "0", *arguments, own=True, text=True, **options)
        for line in process.stderr:
            if found := re.search(r"answers at (\S+)/v1", line):
                return process, found[1]
        raise AssertionError("the server has ended")

    return start


def ask(url, body, headers=()):
    given = {"content-type": "application/json", **dict(headers)}
    request = urllib.request.Request(url, json.dumps(body).encode(), given)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read())


def test_sigterm_lets_running_requests_end(serve, run):
    process, url = serve("--shutdown-timeout", "60")
    body = {"prompt": "hi", "seed": 3, "max_tokens": 900, "ignore_eos": True}
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask(f"{url}/v1/completions", body)))
    asking.start()
    while not re.search(r"num_calls_open\S* 1", urllib.request.urlopen(f"{url}/metrics").read().decode()):
        pass
    process.send_signal(signal.SIGTERM)
    asking.join(60)
    assert process.wait(60) == 0
    assert answers[0]["usage"]["completion_tokens"] == 900


def test_a_model_or_port_that_cannot_be_had_ends_the_server_with_its_error(gencli):
    result = gencli("serve", "--model", "fake", "--model", "/nowhere", "--port", "0")
    assert result.code == 5
    assert "There is no folder /nowhere" in result.err
    assert "answers" not in result.err

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        gencli("serve", "--model", "fake", "--port", port).refused("The server cannot listen on")


def test_stderr_tells_once_that_an_option_of_requests_has_no_effect(serve):
    process, url = serve("--draft", "ngram")
    for _ in range(2):
        ask(f"{url}/v1/completions", {"prompt": "secret", "max_tokens": 2, "draft_tree": "auto"})
    process.send_signal(signal.SIGTERM)
    told = process.stderr.read()
    assert told.count("Notice: --draft-tree has no effect, drafts are chains: ") == 1
    assert "secret" not in told
