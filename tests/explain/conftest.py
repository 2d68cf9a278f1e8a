from tests.cli.conftest import gencli  # noqa: F401 - a fixture
