"""What `schema_in_prompt` does to extraction by a model: ranks of keys, validity, length, right values.

    python scripts/measure_schema_prompt.py MODEL [--raw] [--max-tokens 400]

Greedy, in float32. A key token has a byte of an object's key; its rank is that under the model, without
the mask. A value is right if it equals the expected one, texts without regard to case.
"""

from __future__ import annotations

import argparse
import re
import statistics
import warnings
from collections.abc import Iterator
from typing import Any

from gencli import LLM, SamplingParams
from gencli.errors import GencliWarning
from gencli.runtime.completion import Sample

UNLIKELY = 20  # rank
TEXT, WHOLE, NUMBER, BOOL = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))
DATE, MAIL = ({"type": "string", "format": name} for name in ("date", "email"))
DAYS = "Monday Tuesday Wednesday Thursday Friday".split()


def record(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    shape = {"type": "object", "properties": properties, "required": [*properties]}
    return {**shape, "additionalProperties": False}


def some(items: Any, **limits: int) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": items, **limits}


def one_of(*values: str) -> dict[str, Any]:
    """Return the schema of listed texts."""
    return {"enum": [*values]}


# Schema, text, and what the text says of it.
CASES: tuple[tuple[dict[str, Any], str, dict[str, Any]], ...] = (
    (
        record(full_name=TEXT, age=WHOLE, occupation=TEXT, home_city=TEXT),
        "Nora Lindqvist is a 41 year old pilot from Quito.",
        {"full_name": "Nora Lindqvist", "age": 41, "occupation": "pilot", "home_city": "Quito"},
    ),
    (
        record(
            invoice_number=TEXT,
            issue_date=DATE,
            vendor=TEXT,
            total_amount=NUMBER,
            currency=one_of("EUR", "USD", "GBP"),
        ),
        "Invoice INV-2041 from Hartmann GmbH, dated 2026-03-14. Amount due: 1250.50 EUR.",
        {
            "invoice_number": "INV-2041",
            "issue_date": "2026-03-14",
            "vendor": "Hartmann GmbH",
            "total_amount": 1250.5,
            "currency": "EUR",
        },
    ),
    (
        record(
            customer=TEXT,
            items=some(record(product=TEXT, quantity=WHOLE, unit_price=NUMBER), minItems=1),
            is_gift=BOOL,
        ),
        "Maria Lopez ordered 2 coffee mugs at 9.50 each and 1 teapot at 24.00. It is a gift.",
        {
            "customer": "Maria Lopez",
            "items": [
                {"product": "coffee mugs", "quantity": 2, "unit_price": 9.5},
                {"product": "teapot", "quantity": 1, "unit_price": 24.0},
            ],
            "is_gift": True,
        },
    ),
    (
        record(title=TEXT, day=one_of(*DAYS), start_time=TEXT, attendees=some(TEXT), room=TEXT),
        "The budget review is on Thursday at 14:30 in room B12 with Anna, Ravi and Chen.",
        {
            "title": "budget review",
            "day": "Thursday",
            "start_time": "14:30",
            "attendees": ["Anna", "Ravi", "Chen"],
            "room": "B12",
        },
    ),
    (
        record(flight_number=TEXT, origin=TEXT, destination=TEXT, departs=TEXT, seat=TEXT),
        "You are booked on LH454 from Frankfurt to San Francisco, departure 10:05, seat 34K.",
        {
            "flight_number": "LH454",
            "origin": "Frankfurt",
            "destination": "San Francisco",
            "departs": "10:05",
            "seat": "34K",
        },
    ),
    (
        record(
            product_name=TEXT,
            rating={"type": "integer", "minimum": 1, "maximum": 5},
            sentiment=one_of("positive", "neutral", "negative"),
            would_recommend=BOOL,
        ),
        "I love the AeroPress. 5 stars, and I tell all of my friends to buy one.",
        {"product_name": "AeroPress", "rating": 5, "sentiment": "positive", "would_recommend": True},
    ),
    (
        record(
            severity=one_of("low", "medium", "high", "critical"),
            component=TEXT,
            summary=TEXT,
            affected_users=WHOLE,
        ),
        "Critical: the login page is down since 8 o'clock and 3000 users cannot sign in.",
        {"severity": "critical", "component": "login page", "affected_users": 3000},
    ),
    (
        record(
            dish=TEXT,
            servings=WHOLE,
            ingredients=some(record(ingredient=TEXT, amount=TEXT), minItems=1),
            minutes=WHOLE,
        ),
        "Pancakes for 4: 200 g flour, 2 eggs, 300 ml milk. Ready in 25 minutes.",
        {
            "dish": "Pancakes",
            "servings": 4,
            "ingredients": [
                {"ingredient": "flour", "amount": "200 g"},
                {"ingredient": "eggs", "amount": "2"},
                {"ingredient": "milk", "amount": "300 ml"},
            ],
            "minutes": 25,
        },
    ),
    (
        record(name=TEXT, email=MAIL, phone=TEXT, company=TEXT),
        "Best regards, Tom Becker, Nordwind AG, tom.becker@nordwind.example, +49 30 1234567",
        {
            "name": "Tom Becker",
            "email": "tom.becker@nordwind.example",
            "phone": "+49 30 1234567",
            "company": "Nordwind AG",
        },
    ),
    (
        record(location=TEXT, temperature_celsius=NUMBER, conditions=TEXT, wind_kmh=NUMBER),
        "It is 18.5 degrees Celsius and cloudy in Oslo, with wind of 22 km/h.",
        {"location": "Oslo", "temperature_celsius": 18.5, "conditions": "cloudy", "wind_kmh": 22},
    ),
    (
        record(title=TEXT, author=TEXT, year_published=WHOLE, isbn=TEXT),
        "The Left Hand of Darkness by Ursula K. Le Guin was published in 1969, ISBN 978-0441478125.",
        {
            "title": "The Left Hand of Darkness",
            "author": "Ursula K. Le Guin",
            "year_published": 1969,
            "isbn": "978-0441478125",
        },
    ),
    (
        record(
            position=TEXT,
            employer=TEXT,
            salary_min=WHOLE,
            salary_max=WHOLE,
            remote_allowed=BOOL,
            skills=some(TEXT),
        ),
        "Brightline is looking for a data engineer who knows Python and SQL. Salary 60000 to 75000, remote "
        "work is possible.",
        {
            "position": "data engineer",
            "employer": "Brightline",
            "salary_min": 60000,
            "salary_max": 75000,
            "remote_allowed": True,
            "skills": ["Python", "SQL"],
        },
    ),
    (
        record(
            street_address=TEXT, bedrooms=WHOLE, floor_area_m2=NUMBER, has_garden=BOOL, asking_price=WHOLE
        ),
        "12 Mill Lane: 3 bedrooms, 96 square metres, with a garden, for 320000.",
        {
            "street_address": "12 Mill Lane",
            "bedrooms": 3,
            "floor_area_m2": 96,
            "has_garden": True,
            "asking_price": 320000,
        },
    ),
    (
        record(
            patient_name=TEXT,
            symptoms=some(TEXT),
            duration_days=WHOLE,
            medication={"type": ["string", "null"]},
        ),
        "Mr. Okafor has had a cough and a fever for 6 days. He takes no medication.",
        {
            "patient_name": "Mr. Okafor",
            "symptoms": ["cough", "fever"],
            "duration_days": 6,
            "medication": None,
        },
    ),
    (
        record(home_team=TEXT, away_team=TEXT, score=record(home=WHOLE, away=WHOLE), scorers=some(TEXT)),
        "Arsenal beat Everton 3-1 at home. Goals by Saka, Rice and Jesus; Doucoure scored for the guests.",
        {
            "home_team": "Arsenal",
            "away_team": "Everton",
            "score": {"home": 3, "away": 1},
            "scorers": ["Saka", "Rice", "Jesus", "Doucoure"],
        },
    ),
    (
        record(common_name=TEXT, scientific_name=TEXT, is_endangered=BOOL, habitats=some(TEXT)),
        "The snow leopard (Panthera uncia) is endangered and lives in mountains and on high plateaus.",
        {
            "common_name": "snow leopard",
            "scientific_name": "Panthera uncia",
            "is_endangered": True,
            "habitats": ["mountains", "high plateaus"],
        },
    ),
    (
        record(sender=TEXT, recipient=TEXT, amount=NUMBER, reference=TEXT, booked_on=DATE),
        "On 2026-05-02 Elif Kaya sent 480.00 to Stadtwerke Kiel, reference 7731-B.",
        {
            "sender": "Elif Kaya",
            "recipient": "Stadtwerke Kiel",
            "amount": 480.0,
            "reference": "7731-B",
            "booked_on": "2026-05-02",
        },
    ),
    (
        record(
            language_code=one_of("en", "de", "fr", "es"),
            confidence={"type": "number", "minimum": 0, "maximum": 1},
            is_question=BOOL,
        ),
        "Wo ist der Bahnhof?",
        {"language_code": "de", "is_question": True},
    ),
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield path and value of each part that has no parts."""
    if not isinstance(value, dict | list):
        yield path, value
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(item, (*path, key))


def is_right(value: Any, path: tuple[Any, ...], wanted: Any) -> bool:
    """Whether the document has the expected value at the path."""
    try:
        for key in path:
            value = value[key]
    except (LookupError, TypeError):
        return False
    if isinstance(wanted, str) and isinstance(value, str):
        return wanted.lower() == value.strip().lower()
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


def key_ranks(sample: Sample, token_bytes: Any) -> Iterator[int]:
    """Yield the rank of each token with a byte of a key."""
    pieces = [token_bytes[entry.chosen.id] for entry in sample.logprobs]
    keys = [match.span(1) for match in re.finditer(rb'"((?:[^"\\]|\\.)*)"\s*:', b"".join(pieces))]
    start = 0
    for piece, entry in zip(pieces, sample.logprobs, strict=True):
        if any(begin < start + len(piece) and start < end for begin, end in keys):
            yield entry.rank
        start += len(piece)


def measure(llm: LLM, shown: str, *, is_raw: bool, max_tokens: int) -> str:
    """Return a row of the table."""
    values = {"temperature": 0, "max_tokens": max_tokens, "logprobs": 0, "schema_in_prompt": shown}
    params = [SamplingParams(json_schema=schema, **values) for schema, _, _ in CASES]
    if is_raw:
        outs = llm.generate([f"Text: {text}\nJSON:" for _, text, _ in CASES], params)
    else:
        ask = "Extract the data from this text: {}"
        outs = llm.chat([[{"role": "user", "content": ask.format(text)}] for _, text, _ in CASES], params)
    samples = [out.samples[0] for out in outs]
    ranks = [rank for sample in samples for rank in key_ranks(sample, llm.tokenizer.token_bytes)]
    judged = [
        is_right(sample.value, *leaf)
        for sample, (_, _, wanted) in zip(samples, CASES, strict=True)
        for leaf in leaves(wanted)
    ]
    cells = (
        shown,
        f"{statistics.mean(ranks):.1f}",
        f"{sum(rank > UNLIKELY for rank in ranks) / len(ranks):.1%}",
        f"{sum(sample.error is None for sample in samples)} of {len(samples)}",
        f"{sum(judged)} of {len(judged)}",
        f"{statistics.mean(sample.completion_tokens for sample in samples):.0f}",
        f"{statistics.mean(sample.prompt_tokens for sample in samples):.0f}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--raw", action="store_true", help="no chat template")
    parser.add_argument("--max-tokens", type=int, default=400)
    options = parser.parse_args()
    warnings.simplefilter("ignore", GencliWarning)
    with LLM(options.model, dtype="float32") as llm:
        print("| shown | mean rank of keys | rank > 20 | valid | right | output tokens | prompt tokens |")
        print("|---|---|---|---|---|---|---|")
        for shown in ("off", "on"):
            print(measure(llm, shown, is_raw=options.raw, max_tokens=options.max_tokens), flush=True)


if __name__ == "__main__":
    main()
