"""The fixtures of tests/server, and the server of tests/clients, which starts as a fork here."""

import pytest

from tests.clients.conftest import TINY, serving
from tests.helpers.quick import quick_gencli
from tests.server.conftest import fake, tiny


@pytest.fixture(scope="session")
def server(own_folders, tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server"), *TINY, program=quick_gencli()) as address:
        yield address
