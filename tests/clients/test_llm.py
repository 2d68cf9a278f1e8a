"""The command `llm`, which asks endpoints of OpenAI's API, against a real server."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from gencli import LLM

pytestmark = pytest.mark.skipif(find_spec("llm") is None, reason="the package llm is not installed")


SEED = ("--option", "seed", "5", "--option", "max_tokens", "30", "--option", "temperature", "0.8")


MODELS = """\
- {{model_id: tiny, model_name: tiny, api_base: "{url}", supports_schema: true, supports_tools: true}}
- {{model_id: text, model_name: tiny, api_base: "{url}", completion: true}}
- {{model_id: responses, model_name: tiny, api_base: "{url}", responses: true, supports_schema: true}}
"""


FUNCTION = 'def add(a: int) -> int:\n    "Add."\n    return a'


@pytest.fixture(scope="module")
def folder(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("llm")
    (folder / "extra-openai-models.yaml").write_text(MODELS.format(url=server.url))
    return folder


@pytest.fixture(scope="module")
def ask(folder):
    """Run the command with the server's models; return what it writes."""
    env = os.environ | {"LLM_USER_PATH": str(folder), "OPENAI_API_KEY": "any"}

    def run(*arguments):
        command = [sys.executable, "-m", "llm", *arguments]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def answer():
    with LLM("tiny", dtype="float32") as llm:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}]
        yield llm.chat(messages, seed=5, max_tokens=30, temperature=0.8)


def test_a_streamed_chat_is_that_of_the_library_and_its_usage_is_kept(ask, answer):
    assert ask("-m", "tiny", "-s", "Be brief.", *SEED, "Hello!") == f"{answer.text}\n"
    (entry,) = json.loads(ask("logs", "-n", "1", "--json"))
    sample = answer.samples[0]
    assert (entry["input_tokens"], entry["output_tokens"]) == (sample.prompt_tokens, sample.completion_tokens)


def test_an_endpoint_needs_no_settings(ask, server, answer):
    asked = ("openai", "endpoint", server.url, "-m", "tiny", "--no-stream", "-s", "Be brief.")
    assert ask(*asked, *SEED, "Hello!") == f"{answer.text}\n"


@pytest.mark.parametrize("model", ["tiny", "responses"])
def test_a_schema_holds(ask, model):
    assert isinstance(json.loads(ask("-m", model, "--schema", "age int", "Hello!"))["age"], int)


def test_completions_and_tools(ask):
    assert ask("-m", "text", *SEED, "Once upon a time").strip()
    assert ask("-m", "tiny", "--functions", FUNCTION, *SEED, "Hello!").strip()
