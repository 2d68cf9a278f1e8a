"""`gencli serve` as a process: it says where it answers, and drains at SIGTERM."""

import json
import signal
import time
import urllib.request

import pytest

from tests.slow.cli.commands.test_serve import ask, serve


def test_a_second_signal_ends_running_requests_with_an_error(serve):
    process, url = serve("--shutdown-timeout", "600", model="tiny-draft")
    body = {"prompt": "hi", "seed": 3, "max_tokens": 900, "ignore_eos": True, "stream": True, "n": 8}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        reply.readline()
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        *_, error, done = filter(None, reply.read().decode().split("\n"))
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "shutdown"
    assert done == "data: [DONE]"
    assert process.wait(60) == 0


def test_the_text_is_that_of_a_run(serve, gencli):
    _, url = serve("--top-p", "0.7")
    reply = ask(f"{url}/v1/completions", {"prompt": "hi", "seed": 3, "max_tokens": 20})
    flags = ("--seed", "3", "--top-p", "0.7", "--max-tokens", "20")
    text = gencli("run", "-m", "fake", *flags, "hi").out
    assert reply["choices"][0]["text"] + "\n" == text


def test_a_key_comes_from_the_environment_or_a_file(serve, tmp_path, gencli):
    key = tmp_path / "key"
    key.write_text("secret\n")
    _, url = serve("--api-key-file", str(key))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(f"{url}/v1/completions", {"prompt": "a"})
    assert ask(f"{url}/tokenize", {"prompt": "a"}, [("x-api-key", "secret")])["tokens"] == [97]
    key.write_text("")
    assert "is empty" in gencli("serve", "--model", "fake", "--api-key-file", key).err


def test_a_signal_while_a_model_is_loaded_ends_the_server(spawn):
    for number in (signal.SIGTERM, signal.SIGINT):
        process = spawn("serve", "--model", "tiny", "--port", "0", own=True, text=True)
        assert "Listening at" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(60) == 130
        assert process.stderr.read().strip() == "Interrupted."


def test_the_browser_is_opened_once_the_server_answers(serve, tmp_path):
    script, asked = tmp_path / "browser", tmp_path / "asked"
    script.write_text(f'#!/bin/sh\necho "$1" > {asked}.new\nmv {asked}.new {asked}\n')
    script.chmod(0o755)
    process, url = serve("--open", env={"BROWSER": str(script)})
    while not asked.exists():
        assert process.poll() is None
    assert asked.read_text() == f"{url}/\n"
    assert urllib.request.urlopen(f"{url}/").status == 200
