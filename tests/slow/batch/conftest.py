"""The fixtures of tests/batch."""

from tests.batch.conftest import bench
