"""Fields that clients of other servers send: the table of docs/reference/server.md, row by row."""

import json
import re
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "server.md"
ROUTES = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3}),
    "completions": ("/v1/completions", {"prompt": "a", "max_tokens": 3}),
    "responses": ("/v1/responses", {"input": "a", "max_output_tokens": 3}),
    "tokenize": ("/tokenize", {}),
}
LIMITS = {
    "max_tokens",
    "n_predict",
    "max_completion_tokens",
    "max_new_tokens",
    "max_length",
    "max_output_tokens",
}
LONG = {"prompt": "a" * 1000, "input": "a" * 1000, "messages": [{"role": "user", "content": "a" * 990}]}


def rows():
    """Each value of the table: the fields, the routes, and what happens."""
    text = PAGE.read_text().partition("\n## Fields of other servers\n")[2].partition("\n## ")[0]
    for line in text.splitlines():
        if line.startswith('| `"'):
            sent, _, routes, outcome = (cell.strip() for cell in line.strip("|").split(" | "))
            for span in re.findall(r'`(".*?)`(?:, |$)', sent):
                yield json.loads(f"{{{span}}}"), routes.split(", "), outcome


@cache
def plain(client, route):
    path, body = ROUTES[route]
    return _text(client.post(path, json={**body, "seed": 1}).json())


def _text(reply):
    if "output" in reply:
        return reply["output"][0]["content"][0]["text"]
    choice = reply["choices"][0]
    return choice.get("text") or choice["message"]["content"]


def ask(client, route, fields):
    path, body = ROUTES[route]
    if LIMITS & fields.keys():  # the context ends soon, as the text has no limit of its own
        body = {key: LONG[key] for key in body.keys() & LONG.keys()}
    return client.post(path, json={**body, **({} if route == "tokenize" else {"seed": 1}), **fields})


def check_rows(client, kind, status):
    """Send the rows of a kind: a hint, and a value without effect, leave the text as it is."""
    found = [(fields, route, outcome) for fields, routes, outcome in rows() for route in routes]
    chosen = [row for row in found if row[2].startswith(kind)]
    assert len(chosen) > 10, kind
    for fields, route, _ in chosen:
        reply = ask(client, route, fields)
        assert reply.status_code == status, (fields, route, reply.text)
        if status == 400:
            message = reply.json()["error"]["message"]
            assert any(name in message for name in fields), (fields, route, message)
        elif kind != "effect":
            assert _text(reply.json()) == plain(client, route), (fields, route)


def test_a_refusal_names_the_field(fake):
    check_rows(fake, "refused", 400)


def test_hints_change_no_text(fake):
    check_rows(fake, "hint", 200)


def test_values_without_effect_change_no_text(fake):
    check_rows(fake, "no effect", 200)


def test_every_outcome_of_the_table_is_checked():
    assert all(outcome.startswith(("refused", "effect", "hint", "no effect")) for *_, outcome in rows())
