"""All probes, and what a back end makes of them."""

from __future__ import annotations

from gencli.structured.audit.shapes import shapes_of
from gencli.structured.schema.refs import walk
from tests.structured.probes import applicators, arrays, numbers, objects, strings, values
from tests.structured.probes.acceptor import Refused, acceptor
from tests.structured.probes.probe import Probe

__all__ = ["PROBES", "is_telling", "shapes", "table", "verdict"]

PROBES: list[Probe] = [
    probe for module in (values, strings, numbers, arrays, objects, applicators) for probe in module.PROBES
]
_WORST = ("refused", "loose", "tight", "exact")


def is_telling(probe: Probe) -> bool:
    """Whether some text satisfies it: what nothing satisfies need not compile, so it shows nothing."""
    return bool(probe.accept)


def verdict(backend: str, probe: Probe) -> str:
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


def table(backend: str) -> dict[str, str]:
    """The worst verdict of each shape."""
    found: dict[str, str] = {}
    for probe in filter(is_telling, PROBES):
        new = verdict(backend, probe)
        found[probe.shape] = min(found.get(probe.shape, new), new, key=_WORST.index)
    return dict(sorted(found.items()))
