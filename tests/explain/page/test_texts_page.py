"""The page of traced texts: it is driven by keys and the mouse, in Chromium without network."""

import json
import random
from dataclasses import replace

from gencli.explain.page import page

CURRENT = '.token[aria-selected="true"]'


def place(tab):
    return int(tab.value(f"document.querySelector('{CURRENT}').dataset.at"))


def stage(tab):
    return tab.value("Number(document.querySelector('.stages .chosen').dataset.stage)")


def grown(records, count):
    """So many records, each unlike the others in all of its numbers and ids."""
    rng = random.Random(1)

    def other(value, known):
        if isinstance(value, float) and value not in (0.0, 1.0):
            return known.setdefault(value, float(f"{value * rng.uniform(0.9, 1):.6g}"))
        if isinstance(value, dict):
            return {key: other(one, known) for key, one in value.items()}
        if isinstance(value, list):
            rest = [other(one, known) for one in value[1:]]
            is_named = len(value) > 1 and type(value[0]) is int and isinstance(value[1], str)
            first = known.setdefault(("id", value[0]), rng.randrange(32_000)) if is_named else None
            return [other(one, known) for one in value] if first is None else [first, *rest]
        return value

    for position in range(count):
        yield {**other(records[position % len(records)], {}), "pos": position}


def test_keys_lead_from_token_to_token_and_from_stage_to_stage(tab, texts):
    records = texts[0].records
    tab.open(page(texts))
    steps = [("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", len(records) - 1), ("Home", 0)]
    for key, expected in steps:
        tab.press(key)
        assert place(tab) == expected
        assert tab.value(f"document.activeElement === document.querySelector('{CURRENT}')")
    decided = [record["pos"] for record in records if record["decided_by"]]
    tab.press("n")
    assert place(tab) == next(at for at in [*decided, *decided] if at > 0)
    surprising = [record["pos"] for record in records if record["surprise"] >= 4]
    tab.press("u")
    assert place(tab) in surprising
    assert stage(tab) == 0
    tab.press("ArrowDown")
    tab.press("ArrowDown")
    tab.press("ArrowUp")
    assert stage(tab) == 1
    assert tab.text("#after-title") == f"After {records[0]['stages'][0]['name']}"
    assert tab.text("#said").startswith("After ")
    assert tab.troubles() == []


def test_keys_choose_text_colour_theme_and_details(tab, texts):
    tab.open(page(texts))
    tab.press("c")
    assert tab.value("document.querySelector('[name=mode]:checked').value") == "rank"
    tab.press("t")
    assert tab.value("document.documentElement.className") == "dark"
    tab.press("b")
    assert tab.text(".lane h2") == "prompt 1.2"
    tab.press("ArrowRight")
    tab.press("a")
    assert tab.value("document.activeElement.id") == "alternatives"
    tab.press("Escape")
    assert tab.value(f"document.activeElement === document.querySelector('{CURRENT}')")
    tab.press("Enter")
    assert tab.value("document.activeElement.id") == "token-title"
    tab.press("?")
    assert tab.value("document.getElementById('keys').open")
    tab.press("n")  # the dialog has the keys
    assert place(tab) == 1


def test_f_finds_a_text_over_tokens(tab, texts):
    words = [{**one, "id": 1000 + one["pos"], "text": f"W{one['pos'] % 5} "} for one in texts[0].records]
    tab.open(page([replace(texts[0], records=tuple(words))]))
    tab.press("f")
    for letter in "3 w4":
        tab.press(letter)
    for number, found in enumerate((3, 8, 13, 18, 3)):
        tab.press("Enter", text="\r")
        assert tab.text("#found") == f"{number % 4 + 1} of 4"
        assert place(tab) == found
    tab.press("Escape")
    assert tab.value(f"document.activeElement === document.querySelector('{CURRENT}')")


def test_the_record_and_the_command_are_copied(tab, texts):
    tab.open(page(texts))
    tab.press("End")
    tab.value("Object.defineProperty(navigator, 'clipboard', { value: undefined })")  # as on plain HTTP
    tab.press("y")
    record = json.loads(tab.value("document.getElementById('copied').value"))
    own = {key: value for key, value in texts[0].records[-1].items() if key not in ("v", "kind")}
    assert record == own
    tab.press("Escape")
    tab.press("Y")
    assert tab.value("document.getElementById('copied').value").startswith(
        "gencli run --model fake --seed 3 "
    )


def test_the_mouse_chooses_tokens_stages_and_places_of_the_chart(tab, texts):
    tab.open(page(texts))
    tab.click('.token[data-at="7"]')
    assert place(tab) == 7
    tab.click('.stages tbody tr[data-stage="2"] button')
    assert stage(tab) == 2
    tab.click(".chart svg")
    assert place(tab) == len(texts[0].records) // 2
    tab.value(
        "Object.assign(document.getElementById('slider'), { value: 3 }).dispatchEvent(new Event('input'))"
    )
    assert stage(tab) == 3
    chip = next(i for i, one in enumerate(texts[0].records[0]["stages"]) if one["name"] == "top_k")
    tab.click(f".chain li:nth-child({chip + 1}) button")
    assert "top_k" in texts[0].records[place(tab)]["decided_by"]


def test_two_texts_stand_side_by_side(tab, texts):
    tab.open(page(texts))
    tab.value(
        "Object.assign(document.getElementById('beside'), { value: 1 }).dispatchEvent(new Event('change'))"
    )
    one, other = ([record["id"] for record in text.records] for text in texts)
    parts = next(at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    assert tab.value(
        "[...document.querySelectorAll('.token.parts')].map((node) => Number(node.dataset.at))"
    ) == [parts, parts]
    tab.click('[data-text="1"] .token[data-at="4"]')
    assert tab.count(".token.lit") == 2
    assert tab.value(f"document.querySelector('{CURRENT}').closest('[data-text]').dataset.text") == "1"
    assert place(tab) == 4


def test_alternatives_name_the_stage_that_removed_each(tab, texts):
    record = next(one for one in texts[0].records if any(stage["removed"] for stage in one["stages"]))
    stage = next(stage for stage in record["stages"] if stage["removed"])
    tab.open(page(texts))
    for _ in range(record["pos"]):
        tab.press("ArrowRight")
    rows = tab.value("[...document.querySelectorAll('.others tbody tr')].map((row) => row.innerText)")
    assert any(f"removed by {stage['name']}" in row for row in rows)
    runner = record["draw"]["runner_up"]
    assert runner is None or any("runner-up" in row for row in rows)


def test_two_thousand_tokens_of_a_model_have_less_than_a_megabyte(tab, traced):
    cuts = ("--top-k", "40", "--min-p", "0.02", "--top-p", "0.95")
    chain = ("--temperature", "1.3", "--repetition-penalty", "1.2", *cuts)
    (text,) = traced(*chain, "--max-tokens", "40", "Once upon a time", model="tiny")
    html = page([replace(text, records=tuple(grown(text.records, 2000)))])
    assert len(html.encode()) < 1_000_000
    tab.open(html)
    assert tab.count(".token[data-at]") == 2000
    tab.press("End")
    top, bottom = tab.value(
        f"(({{ top, bottom }}) => [top, bottom])(document.querySelector('{CURRENT}').getBoundingClientRect())"
    )
    assert 0 <= top < bottom <= 900
    assert tab.troubles() == []
