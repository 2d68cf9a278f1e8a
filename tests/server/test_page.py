"""The page at /, in headless Chromium: it generates, shows the chain, alternatives, errors, and stops."""

import re

from gencli.server.access import AccessRules
from gencli.server.serving import Conditions
from tests.server.conftest import serve


def test_the_page_is_the_same_file_on_every_server_and_needs_no_key(fake):
    with serve(Conditions(rules=AccessRules(key="secret")), names=("a name",)) as client:
        reply = client.get("/")
        assert (reply.status_code, reply.content) == (200, fake.get("/").content)
        assert client.post("/").status_code == 405
        assert client.get("/", headers={"host": "evil.example"}).status_code == 403
        assert client.get("/page").status_code == 401


def test_the_page_loads_nothing_and_runs_only_its_own_script(fake):
    reply = fake.get("/")
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert not re.search(r"https?://|src=|@import", reply.text)
    assert reply.text.count("<script>") == 1
