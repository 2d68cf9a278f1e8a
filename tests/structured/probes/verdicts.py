"""All probes, and what a back end makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gencli.structured.audit import shapes_of
from gencli.structured.json_schema import walk
from tests.structured.probes import applicators, arrays, marked, numbers, objects, strings, values
from tests.structured.probes.acceptor import Refused, acceptor
from tests.structured.probes.probe import Probe

__all__ = ["PROBES", "changes", "is_telling", "shapes", "table", "verdict"]

Acceptor = Callable[[str, Any], Callable[[str], bool]]

PROBES: list[Probe] = [
    probe
    for module in (values, strings, numbers, arrays, objects, applicators, marked)
    for probe in module.PROBES
]
_WORST = ("refused", "loose", "tight", "exact")


def is_telling(probe: Probe) -> bool:
    """Whether some text satisfies it: what nothing satisfies need not compile, so it shows nothing."""
    return bool(probe.accept)


def verdict(backend: str, probe: Probe, acceptor: Acceptor = acceptor) -> str:
    """exact, loose (accepts what is invalid), tight (refuses what is valid) or refused (no grammar)."""
    try:
        accepts = acceptor(backend, probe.schema)
    except Refused:
        return "refused"
    if any(map(accepts, probe.refuse)):
        return "loose"
    return "exact" if all(map(accepts, probe.accept)) else "tight"


def shapes(probe: Probe) -> set[str]:
    """The shapes of all keywords of the probe's schema."""
    return {shape for _, schema in walk(probe.schema) for _, shape in shapes_of(schema)}


def table(backend: str, probes: Iterable[Probe] = PROBES, acceptor: Acceptor = acceptor) -> dict[str, str]:
    """The worst verdict of each shape."""
    found: dict[str, str] = {}
    for probe in filter(is_telling, probes):
        new = verdict(backend, probe, acceptor)
        found[probe.shape] = min(found.get(probe.shape, new), new, key=_WORST.index)
    return dict(sorted(found.items()))


def changes(found: Mapping[str, str], recorded: Mapping[str, str]) -> dict[str, str]:
    """The shapes that are not as they were recorded, and what became of them."""
    return {
        shape: f"{recorded.get(shape)} -> {found.get(shape)}"
        for shape in found.keys() | recorded.keys()
        if found.get(shape) != recorded.get(shape)
    }
