"""Tests lie at the path of what they test: gencli/engine in tests/engine, processors in tests/processors.

A tier of the suite is a folder with the same paths below it: tests/slow, tests/nightly, tests/install.
"""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
TIERS = ("slow", "nightly", "install")
OLD_NAMES = {"gencli/drafters"}  # import what has moved, for plug-ins
# Folders of tests that are no room of the product.
OWN = {"bench", "clients", "compiled", "data", "gpu", "helpers", "models/data", "processors/vectors"}


def rooms():
    """Each folder of the two packages that has modules, and the path of its tests below tests/ or a tier."""
    for package, below in (("gencli", Path()), ("processors", Path("processors"))):
        for module in sorted((ROOT / package).rglob("__init__.py")):
            room = module.parent
            if str(room.relative_to(ROOT)) not in OLD_NAMES and list(room.glob("[!_]*.py")):
                yield below / room.relative_to(ROOT / package)


def test_every_room_has_its_tests_in_the_suite():
    pushed = (TESTS, TESTS / "slow")
    missing = [
        str(room) for room in rooms() if not any(list((tier / room).glob("test_*.py")) for tier in pushed)
    ]
    assert missing == []


def test_a_tier_has_the_paths_of_the_suite():
    known = (
        {str(room) for room in rooms()} | OWN | {str(parent) for room in rooms() for parent in room.parents}
    )
    for tier in TIERS:
        folders = {path.parent.relative_to(TESTS / tier) for path in (TESTS / tier).rglob("test_*.py")}
        assert {str(folder) for folder in folders} - known == set(), tier


def test_there_are_rooms():
    assert len(list(rooms())) > 15
