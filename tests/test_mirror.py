"""Tests lie at the path of what they test: gencli/engine in tests/engine, processors in tests/processors.

Tests of a large room may lie in folders below it. A tier of the suite is a folder with the same paths below
it: tests/slow, tests/nightly, tests/install.
"""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
TIERS = ("slow", "nightly", "install")
# Folders of tests that are no room of the product.
OWN = {"bench", "clients", "compiled", "data", "gpu", "helpers", "models/data", "processors/vectors"}


def rooms():
    """Each folder of the two packages that has modules, and the path of its tests below tests/ or a tier."""
    for package, below in (("gencli", Path()), ("processors", Path("processors"))):
        for module in sorted((ROOT / package).rglob("__init__.py")):
            room = module.parent
            if list(room.glob("[!_]*.py")):
                yield below / room.relative_to(ROOT / package)


def test_every_room_has_its_tests_in_the_suite():
    pushed = (TESTS, TESTS / "slow")
    missing = [
        str(room) for room in rooms() if not any(list((tier / room).rglob("test_*.py")) for tier in pushed)
    ]
    assert missing == []


def test_folders_of_tests_are_rooms_or_below_one():
    known = {str(room) for room in rooms()} | OWN
    for tier in (TESTS, *(TESTS / name for name in TIERS)):
        folders = {path.parent.relative_to(tier) for path in tier.rglob("test_*.py")} - {Path()}
        strange = [
            str(folder)
            for folder in folders
            if folder.parts[0] not in TIERS and not known & {str(one) for one in (folder, *folder.parents)}
        ]
        assert strange == [], tier


def test_there_are_rooms():
    assert len(list(rooms())) > 15
