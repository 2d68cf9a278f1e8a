"""Measure what the masks of each back end enforce on tests/data/schemas.jsonl.

    python scripts/measure_schemas.py [--verbose] [--extra-properties] [--property-order any] [--orders]

Each instance of a schema is fed to the compiled grammar. exact: all valid instances are accepted and all
invalid ones refused; loose: an invalid one is accepted; tight: a valid one is refused; refused: the schema
does not compile. "Not rewritten" is the schema without the keywords that the back end refuses. The last lines
count schemas where the audit claims more than was observed. --orders adds each instance with several
properties a second time, with the properties of all its objects reversed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from gencli.structured.backend_choice import BackendCandidate, candidate, choose  # noqa: E402
from gencli.structured.output_spec import PlanRequest, Variant  # noqa: E402
from tests.structured.probes.acceptor import Refused, acceptor  # noqa: E402

CORPUS = ROOT / "tests" / "data" / "schemas.jsonl"
OPTIONS = {
    "extra": "--extra-properties" in sys.argv,
    "any_order": "any" in sys.argv[sys.argv.index("--property-order") :]
    if "--property-order" in sys.argv
    else False,
}
BACKENDS = ("xgrammar", "llguidance")
FORMS = {False: "not rewritten", True: "rewritten"}
KINDS = ("exact", "loose", "tight", "refused")


@dataclass(frozen=True)
class Case:
    """A schema and its classified instances."""

    name: str
    schema: Any
    valid: list[Any]
    invalid: list[Any]


def cases() -> Iterator[Case]:
    """Yield the corpus."""
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        yield Case(**json.loads(line))


def turned(value: Any) -> Any:
    """Return the value with the properties of all its objects reversed."""
    if isinstance(value, dict):
        return {name: turned(below) for name, below in reversed(value.items())}
    return [turned(item) for item in value] if isinstance(value, list) else value


def in_both_orders(case: Case) -> Case:
    """Return the case with each reversible instance in both orders."""
    both = {json.dumps(one): one for value in case.valid for one in (value, turned(value))}
    others = {json.dumps(one): one for value in case.invalid for one in (value, turned(value))}
    return Case(case.name, case.schema, list(both.values()), list(others.values()))


def observed(backend: str, schema: Any, case: Case) -> str:
    """Return what the mask of a schema does with the instances of a case."""
    try:
        accepts = acceptor(backend, schema)
    except Refused:
        return "refused"
    if any(accepts(json.dumps(one, ensure_ascii=False)) for one in case.invalid):
        return "loose"
    return "exact" if all(accepts(json.dumps(one, ensure_ascii=False)) for one in case.valid) else "tight"


def claim(one: BackendCandidate) -> str:
    """Return what the audit claims about a candidate."""
    return "exact" if one.is_exact else "loose" if one.loose else "tight"


def is_wrong(claimed: str, seen: str) -> bool:
    """Whether the audit claims more than was observed."""
    return (
        seen == "refused"
        or (claimed != "loose" and seen == "loose")
        or (claimed == "exact" and seen != "exact")
    )


def raw(backend: str, case: Case) -> str:
    """Return the given schema as it is, for a back end."""
    return observed(backend, case.schema, case)


def better(case: Case) -> str:
    """Return the given schema as it is, for the better back end."""
    return min((raw(backend, case) for backend in BACKENDS), key=KINDS.index)


def masked(one: Variant, case: Case) -> str:
    """Return a variant for its back end."""
    return observed(one.constraint.backend, json.loads(one.constraint.text), case)


def formed(backend: str, rewrite: bool, case: Case) -> str:
    """Return the rewritten schema for one back end."""
    return masked(candidate(case.schema, backend, PlanRequest(rewrite=rewrite, **OPTIONS)).variant, case)


def chosen(rewrite: bool, case: Case) -> str:
    """Return the variant that gencli chooses."""
    return masked(choose(case.schema, PlanRequest(rewrite=rewrite, **OPTIONS)).variants[0], case)


def rows() -> Iterator[tuple[str, Callable[[Case], str]]]:
    """Yield the rows of the table."""
    for backend in BACKENDS:
        yield f"{backend}, as given", partial(raw, backend)
        for rewrite, name in FORMS.items():
            yield f"{backend}, {name}", partial(formed, backend, rewrite)
    yield "the better of the two, as given", better
    for rewrite, name in FORMS.items():
        yield f"choice, {name}", partial(chosen, rewrite)


def claimed_too_much(corpus: list[Case]) -> Iterator[str]:
    """Yield the cases where the audit claims more than was observed."""
    for case in corpus:
        for backend in BACKENDS:
            for rewrite, name in FORMS.items():
                one = candidate(case.schema, backend, PlanRequest(rewrite=rewrite, **OPTIONS))
                seen = masked(one.variant, case)
                if is_wrong(claim(one), seen):
                    yield f"{backend}, {name}: {case.name} is called {claim(one)}, seen {seen}"


def choices(corpus: list[Case], rewrite: bool) -> str:
    """Count how often each back end is chosen, and is called exact."""
    taken = Counter(
        choose(case.schema, PlanRequest(rewrite=rewrite, **OPTIONS)).variants[0].audit.backend
        for case in corpus
    )
    told = []
    for name in BACKENDS:
        exact = sum(
            candidate(case.schema, name, PlanRequest(rewrite=rewrite, **OPTIONS)).is_exact for case in corpus
        )
        told.append(f"{name} is called exact for {exact}, taken for {taken[name]}")
    return "; ".join(told)


def main() -> None:
    corpus = list(map(in_both_orders, cases()) if "--orders" in sys.argv else cases())
    print(f"{len(corpus)} schemas, {sum(len(case.valid) + len(case.invalid) for case in corpus)} instances")
    print(f"| | {' | '.join(KINDS)} |\n|---|{'---|' * len(KINDS)}")
    for name, column in rows():
        seen = {case.name: column(case) for case in corpus}
        counts = Counter(seen.values())
        print(f"| {name} | {' | '.join(f'{100 * counts[kind] / len(corpus):.1f} %' for kind in KINDS)} |")
        if "--verbose" in sys.argv:
            print(*(f"  {case}: {kind}" for case, kind in seen.items() if kind != "exact"), sep="\n")
    for rewrite, name in FORMS.items():
        print(f"{name}: {choices(corpus, rewrite)}")
    wrong = list(claimed_too_much(corpus))
    print(f"the audit claims too much: {len(wrong)}", *wrong, sep="\n  ")


if __name__ == "__main__":
    main()
