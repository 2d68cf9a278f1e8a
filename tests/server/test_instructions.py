"""`schema_in_prompt` on the server, and that every door makes the same prompt of it."""

import json

import pytest

from gencli import LLM
from gencli.batch.batch_records import Record, Row
from gencli.batch.batch_setup import row_request
from gencli.chat.chat_state import Conversation, open_chat, prompt_ids
from gencli.cli.app import main
from gencli.config.job import make_job
from gencli.config.settings import FLAG, resolve
from gencli.errors import UsageError
from gencli.helpers import once
from tests.server.conftest import serve

SCHEMA = '{"type": "object", "properties": {"name": {"type": "string"}}}'
TOOL = {"type": "function", "function": {"name": "beep", "description": "It beeps.", "parameters": {}}}
TURN = {"role": "user", "content": "Who?"}
SHOWN = {
    "schema": {"json_schema": SCHEMA, "schema_in_prompt": "on"},
    "text": {"json_schema": SCHEMA, "schema_in_prompt": "Fill in {schema}."},
    "tools": {"tools": json.dumps([TOOL])},
    "both": {"tools": json.dumps([TOOL]), "json_schema": SCHEMA, "schema_in_prompt": "on"},
}


def asked(client, **body):
    """The text of the prompt of a chat or a completion."""
    route = "chat/completions" if "messages" in body else "completions"
    reply = client.post(f"/v1/{route}", json={"max_tokens": 1, "return_token_ids": True, **body})
    assert reply.status_code == 200, reply.text
    found = reply.json()
    ids = found.get("prompt_token_ids") or found["choices"][0]["prompt_token_ids"]
    assert found["usage"]["prompt_tokens"] == len(ids)
    return ids


def refusal(client, **body):
    reply = client.post("/v1/completions", json={"max_tokens": 1, **body})
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]


@pytest.mark.filterwarnings("ignore::gencli.errors.GencliWarning")
@pytest.mark.parametrize("case", SHOWN)
@pytest.mark.parametrize("is_chat", [True, False])
def test_every_door_makes_the_same_prompt(fake, capfd, case, is_chat):
    values = SHOWN[case]
    body = {"messages": [TURN]} if is_chat else {"prompt": "Who?"}
    ids = asked(fake, **body, **values)
    text = bytes(ids).decode()
    assert ("beep" in text) == ("tools" in values and (is_chat or case == "both"))
    assert (SCHEMA in text) == ("schema_in_prompt" in values)

    flags = [word for key, value in values.items() for word in (f"--{key.replace('_', '-')}", value)]
    line = ["run", "--model", "fake", *flags, "--show-prompt", "--format", "json", "Who?"]
    assert main([*line, *(["--chat"] if is_chat else [])]) == 0
    assert json.loads(capfd.readouterr().out)["ids"] == ids

    job = make_job(resolve((FLAG, {"model": "fake", "chat": is_chat, **values})))
    row = Row(Record(0, "1", {}), "1", "Who?")
    with LLM("fake") as llm:
        assert list(row_request(row, job, llm.tokenizer).prompt_ids) == ids
        values = {**values, "max_tokens": 1, "prompt_logprobs": 0, "partial": True}
        (out,) = llm.chat([[TURN]], **values) if is_chat else llm.generate(["Who?"], **values)
        assert [entry.chosen.id for entry in out.prompt_logprobs if entry] == ids[1:]
        chat = open_chat({"model": "fake", **SHOWN[case], **({} if is_chat else {"raw": True})})
        talk = Conversation(1).asked("Who?")
        told = chat.job.instructions
        made = prompt_ids(talk, llm.tokenizer, is_raw=not is_chat, context=4096, instructions=told)
        assert list(made) == ids


def test_a_client_may_turn_it_off(fake):
    plain = asked(fake, messages=[TURN])
    assert asked(fake, messages=[TURN], tools=[TOOL]) != plain
    assert asked(fake, messages=[TURN], tools=[TOOL], schema_in_prompt="off") == plain
    assert asked(fake, messages=[TURN], json_schema=SCHEMA) == plain


def test_a_default_of_the_server_goes_with_any_request():
    with serve(schema_in_prompt="on", max_tokens=1) as client:
        assert SCHEMA in bytes(asked(client, messages=[TURN], json_schema=SCHEMA)).decode()
        assert asked(client, prompt="Who?", regex="a") == list(b"Who?")
        assert asked(client, prompt="Who?") == list(b"Who?")
        reply = client.post("/tokenize", json={"messages": [TURN], "tools": [TOOL]}).json()
        assert b"beep" in bytes(reply["tokens"])


def test_an_echo_has_the_prompt_that_the_model_read(fake):
    body = {"prompt": "Who?", "max_tokens": 1, "echo": True, "json_schema": SCHEMA, "partial": True}
    reply = fake.post("/v1/completions", json={**body, "schema_in_prompt": "{schema}"}).json()
    assert reply["choices"][0]["text"].startswith(f"{SCHEMA}\n\nWho?")


def test_what_cannot_have_a_text_before_it_is_refused(fake):
    shown = {"json_schema": SCHEMA, "schema_in_prompt": "on"}
    assert refusal(fake, prompt=[104, 105], **shown)["param"] == "schema_in_prompt"
    assert (
        refusal(fake, prompt="Who?", json_schema=SCHEMA, schema_in_prompt="x")["param"] == "schema_in_prompt"
    )
    many = refusal(fake, prompt="Who?", json_schema=SCHEMA, schema_in_prompt="{schema}" + "x" * 2**17)
    assert many["code"] == "too_large"
    with LLM("fake") as llm, pytest.raises(UsageError, match="not of token ids"):
        llm.generate_from_ids([[104, 105]], **shown)


def test_the_operator_is_told_once_who_tells_of_the_tools(fake):
    told = []
    preparer = fake.serving.preparer
    preparer._notice = once(told.append)
    for _ in range(2):
        asked(fake, messages=[TURN], tools=[TOOL])
    assert len(told) == 1
    assert "no place for tools" in told[0]
