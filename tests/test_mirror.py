"""Tests lie at the path of what they test: gencli/engine in tests/engine, processors in tests/processors."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
OLD_NAMES = {"gencli/drafters"}  # import what has moved, for plug-ins


def rooms():
    """Each folder of the two packages that has modules, and where its tests are."""
    for package, tests in (("gencli", TESTS), ("processors", TESTS / "processors")):
        for module in sorted((ROOT / package).rglob("__init__.py")):
            room = module.parent
            if str(room.relative_to(ROOT)) not in OLD_NAMES and list(room.glob("[!_]*.py")):
                yield room, tests / room.relative_to(ROOT / package)


def test_every_room_has_its_tests():
    missing = [str(tests.relative_to(ROOT)) for _, tests in rooms() if not list(tests.glob("test_*.py"))]
    assert missing == []


def test_there_are_rooms():
    assert len(list(rooms())) > 30
