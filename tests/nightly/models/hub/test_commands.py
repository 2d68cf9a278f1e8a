"""The commands with models of the hub: what fetches, what refuses to, and what is said."""

import time
from hashlib import sha256

from gencli.models.files.local_models import repository_folder
from tests.models.hub.server import Fault
from tests.models.hub.test_commands import NAME, SHORT, WEIGHTS
from tests.slow.models.hub.test_commands import at_a_terminal


def test_a_process_that_is_killed_is_gone_on_with(gencli, hub, spawn):
    size = len(hub.repos["some/one"].files[WEIGHTS])
    hub.faults[WEIGHTS] = [Fault(slow=60.0)]
    process = spawn("models", "pull", "some/one", own=True)
    part = (
        repository_folder(NAME)
        / "blobs"
        / f"{sha256(hub.repos['some/one'].files[WEIGHTS]).hexdigest()}.incomplete"
    )
    while not part.exists() or part.stat().st_size < size // 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    listed = gencli("models", "list")
    assert "some/one: partial" in listed.out
    assert "gencli models pull some/one fetches the rest" in listed.out
    (row,) = (row for row in gencli("models", "list", "--format", "json").json if row["name"] == "some/one")
    assert (row["partial"], row["unfinished_bytes"]) == (True, size // 2)
    assert gencli("models", "pull", "some/one").code == 0
    assert hub.fetched(WEIGHTS)[-1] == f"bytes={size // 2}-"


def test_on_a_terminal_a_model_is_fetched_with_a_bar_and_runs(hub):
    hub.faults[WEIGHTS] = [Fault(slow=0.3)]
    code, seen = at_a_terminal("run", "-m", "some/one", *SHORT, "hi")
    assert code == 0, seen
    assert "some/one: 2.0 MB in" in seen
    assert "Fetching some/one" in seen
    assert "MB/s" in seen or "kB/s" in seen
    assert "Fetched 2.0 MB" in seen
