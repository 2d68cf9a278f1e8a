"""Cases of responses, tokens, keys and limits that the suites of other servers have."""

from tests.server.test_cases_others import ASK, SCHEMA


def test_the_format_of_a_response(tiny):
    for form, text in [(SCHEMA, '"foooooo"'), ({"type": "text"}, None), (None, None)]:
        body = tiny.post("/v1/responses", json={**ASK, "text": {"format": form} if form else {}}).json()
        (item,) = body["output"]
        assert text is None or item["content"][0]["text"] == text, form
        assert body["id"].startswith("resp_"), form
        assert item["id"].startswith("msg_"), form
