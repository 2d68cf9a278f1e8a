"""Measure what the masks of each back end enforce on tests/data/schemas.jsonl.

    python scripts/measure_schemas.py [--verbose]

For each schema every instance is fed to the compiled grammar. exact: all valid ones are accepted and all
invalid ones refused; loose: an invalid one is accepted; tight: a valid one is refused; refused: it does not
compile. The last lines count where the audit claimed more than was seen.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from gencli.structured.choose import Candidate, candidate, choose  # noqa: E402
from tests.structured.probes.acceptor import Refused, acceptor  # noqa: E402

CORPUS = ROOT / "tests" / "data" / "schemas.jsonl"
BACKENDS = ("xgrammar", "llguidance")
KINDS = ("exact", "loose", "tight", "refused")


@dataclass(frozen=True)
class Case:
    """A schema and its sorted instances."""

    name: str
    schema: Any
    valid: list[Any]
    invalid: list[Any]


def cases() -> Iterator[Case]:
    """All of the corpus."""
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        yield Case(**json.loads(line))


def observed(backend: str, schema: Any, case: Case) -> str:
    """What the mask of a schema does with the instances of a case."""
    try:
        accepts = acceptor(backend, schema)
    except Refused:
        return "refused"
    if any(accepts(json.dumps(one, ensure_ascii=False)) for one in case.invalid):
        return "loose"
    return "exact" if all(accepts(json.dumps(one, ensure_ascii=False)) for one in case.valid) else "tight"


def claim(one: Candidate) -> str:
    """What the audit says of a candidate."""
    return "exact" if one.is_exact else "loose" if one.loose else "tight"


def is_wrong(claimed: str, seen: str) -> bool:
    """Whether the audit claimed more than was seen."""
    return seen == "refused" or (claimed != "loose" and seen == "loose") or (claimed == "exact" and seen != "exact")


def text_of(plan: Any) -> Any:
    return json.loads(plan.variants[0].constraint.text)


def main() -> None:
    corpus = list(cases())
    columns: dict[str, Callable[[Case], str]] = {}
    wrong: list[str] = []

    def judged(backend: str, rewrite: bool) -> Callable[[Case], str]:
        def column(case: Case) -> str:
            one = candidate(case.schema, backend, rewrite=rewrite)
            seen = observed(backend, json.loads(one.variant.constraint.text), case)
            if is_wrong(claim(one), seen):
                wrong.append(f"{backend} {'rewritten' if rewrite else 'raw'} {case.name}: {claim(one)}, seen {seen}")
            return seen

        return column

    def chosen(rewrite: bool) -> Callable[[Case], str]:
        def column(case: Case) -> str:
            plan = choose(case.schema, rewrite=rewrite)
            return observed(plan.variants[0].constraint.backend, text_of(plan), case)

        return column

    for backend in BACKENDS:
        columns[f"{backend}, as given"] = lambda case, backend=backend: observed(backend, case.schema, case)  # type: ignore[misc]
        columns[f"{backend}, without what it refuses"] = judged(backend, False)
        columns[f"{backend}, rewritten"] = judged(backend, True)
    columns["the better of the two, as given"] = lambda case: min(
        (observed(backend, case.schema, case) for backend in BACKENDS), key=KINDS.index
    )
    columns["choice, not rewritten"] = chosen(False)
    columns["choice, rewritten"] = chosen(True)
    print(f"{len(corpus)} schemas, {sum(len(case.valid) + len(case.invalid) for case in corpus)} instances")
    print(f"| | {' | '.join(KINDS)} |\n|---|{'---|' * len(KINDS)}")
    for name, column in columns.items():
        seen = {case.name: column(case) for case in corpus}
        counts = Counter(seen.values())
        print(f"| {name} | {' | '.join(f'{100 * counts[kind] / len(corpus):.1f} %' for kind in KINDS)} |")
        if "--verbose" in sys.argv:
            print(*(f"  {case}: {kind}" for case, kind in seen.items() if kind != "exact"), sep="\n")
    for rewrite in (False, True):
        taken = Counter(choose(case.schema, rewrite=rewrite).variants[0].audit.backend for case in corpus)
        claims = [[candidate(case.schema, name, rewrite=rewrite).is_exact for case in corpus] for name in BACKENDS]
        parts = [f"{name} taken for {taken[name]}, called exact for {sum(own)}" for name, own in zip(BACKENDS, claims, strict=True)]
        print(f"{'rewritten' if rewrite else 'not rewritten'}: {'; '.join(parts)}; either {sum(map(max, *claims))}")
    print(f"the audit claimed too much: {len(wrong)}", *wrong, sep="\n  ")


if __name__ == "__main__":
    main()
