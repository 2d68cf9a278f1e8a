"""The fixtures of tests/processors/stages."""

from tests.processors.stages.conftest import kept, run, vocabulary
