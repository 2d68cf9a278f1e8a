"""The installed back ends do what the recorded table says, and each shape has probes of both kinds."""

from gencli.structured.audit.support import SUPPORT
from tests.structured.audit.test_probes import BACKENDS
from tests.structured.probes.acceptor import VERSIONS
from tests.structured.probes.verdicts import changes, table


def test_the_installed_back_end_is_as_recorded():
    for backend in BACKENDS:
        changed = changes(table(backend), SUPPORT[backend].shapes)
        assert not changed, (
            f"{backend} {VERSIONS[backend]} changed: run scripts/probe_backends.py and read the diff"
        )
