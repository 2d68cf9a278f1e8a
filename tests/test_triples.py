"""Three options at once: each run ends with a code of the table and, where it fails, with a reason."""

import hashlib
from functools import cache
from itertools import combinations

from tests.helpers.option_walk import KEYS

NUMBER, GROUPS = 2000, 20

# --debug lets tracebacks through on purpose, and --format json with --output has its own walk.
TRIED = [key for key in KEYS if key != "debug"]


def rank(triple):
    return hashlib.blake2b(" ".join(triple).encode(), digest_size=8).digest()


@cache
def triples():
    return sorted(combinations(TRIED, 3), key=rank)[:NUMBER]


def test_every_option_is_in_some_triple():
    assert {key for triple in triples() for key in triple} == set(TRIED)
