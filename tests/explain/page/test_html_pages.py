"""Pages of all kinds in a browser: what they show, what the keyboard reaches, and that nothing else runs."""

import json
import random
import re
import zlib
from base64 import b64decode
from dataclasses import replace
from functools import partial

import pytest

from gencli.errors import GenerationError
from gencli.explain.page import (
    Axis,
    Cell,
    CompareRow,
    Measure,
    PageNode,
    branches_page,
    command,
    compare_page,
    page,
    sweep_page,
    tree_page,
)
from gencli.explain.text_sets import Node, Tree
from gencli.explain.trace_file import TracedText
from tests.explain.page.samples import NAMES, compared, forked, swept


def copied(tab):
    tab.value("Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })")
    tab.press("y")
    text = tab.value("document.getElementById('copied').value")
    tab.press("Escape")
    return text


def test_two_chains_show_where_they_part_and_differ(tab):
    tab.open(compared())
    assert tab.count(".token.parts") == 2
    tab.press("n")
    assert tab.text("#token-title") == "They differ"
    assert json.loads(copied(tab)) == {
        "pos": 1, "tv": 0.31, "kl": 0.6, "a": {"id": 2, "text": " cat"}, "b": {"id": 3, "text": " dog"},
        "decided": ["temperature"],
    }  # fmt: skip
    tab.press("n")
    assert "infinite" in tab.text("#panel")
    tab.click('.rows [data-place="1"] button')
    assert '" cat"' in tab.text("#panel")
    tab.press("b")
    assert tab.value("document.activeElement.closest('[data-text]').dataset.text") == "1"
    assert tab.troubles() == []


def test_a_grid_opens_the_text_of_a_cell(tab):
    tab.open(swept())
    tab.press("ArrowDown")
    tab.press("ArrowRight")
    assert tab.text("#token-title") == "temperature 1, min_p 0.1"
    assert tab.value("document.querySelector('blockquote').textContent.includes('(1, 1): a text')")
    tab.press("c")
    assert tab.text(".cell").startswith("0")
    tab.press("n")
    assert json.loads(copied(tab))["measures"] == {"entropy": 2.5, "tokens": 20}
    tab.click('.cell[data-row="2"][data-column="1"]')
    assert "no run" in tab.text("#panel")
    assert tab.troubles() == []


def test_branches_open_and_close(tab):
    tab.open(forked())
    assert tab.count("[role=treeitem]") == 5
    tab.press("ArrowRight")
    assert tab.text("#token-title") == '" cat"'
    tab.press("ArrowLeft")
    assert tab.count("[role=treeitem]") == 3
    tab.press("ArrowRight")
    tab.press("b")
    assert copied(tab) == "the dog"
    tab.click('[data-node="4"]')
    assert ".006" in tab.text("#panel")  # .6 of .01
    tab.press("Home")
    assert tab.text("#token-title") == "Root"
    assert tab.troubles() == []


def test_a_grid_may_have_one_axis_or_three(tab):
    axes = [Axis("a", "12"), Axis("b", "34"), Axis("c", "56")]
    for count in (1, 3):
        cells = [Cell((1,) * count, (0.5,), "text")]
        tab.open(sweep_page("A sweep", axes[:count], [Measure("m")], cells))
        assert tab.count("td.cell") == 2**count
        assert tab.count("td.cell:not(.empty)") == 1


def test_data_that_does_not_fit_is_refused():
    for make in [
        lambda: compare_page("", (None, None), [CompareRow(1, 0, 0, 1, 1), CompareRow(1, 0, 0, 1, 1)], {}),
        lambda: sweep_page("", [Axis("a", ["1"])], [Measure("m")], [Cell((1,), (1,), "")]),
        lambda: sweep_page("", [Axis("a", ["1"])], [Measure("m")], [Cell((0,), (1, 2), "")]),
        lambda: sweep_page("", [], [Measure("m")], []),
        lambda: tree_page("", [PageNode(0, None, None, "")], {}),
    ]:
        with pytest.raises(GenerationError):
            make()


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
    (text,) = traced(*chain, "--max-tokens", "12", "Once upon a time", model="tiny")
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


KINDS = ("texts", "compare", "sweep", "tree")
HOSTILE = (
    "</script><script>window.owned=1</script><img src=x onerror=window.owned=1>\u202e\x1b[2J\u2066%DATA%"
)
CONTRASTS = """(() => {
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgb = (colours) => {
    pixel.clearRect(0, 0, 1, 1);
    for (const one of colours) { pixel.fillStyle = one; pixel.fillRect(0, 0, 1, 1); }
    return [...pixel.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => colour.map((c) => linear(c / 255))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !node.checkVisibility()) continue;
    if (node.closest("script, .hidden, option, dialog:not([open])")) continue;
    const backs = [];
    for (let one = node; one; one = one.parentElement) backs.unshift(getComputedStyle(one).backgroundColor);
    const levels = [rgb([...backs, getComputedStyle(node).color]), rgb(backs)].map(luminance);
    const ratio = (Math.max(...levels) + 0.05) / (Math.min(...levels) + 0.05);
    if (ratio < 4.5) found.push([ratio.toFixed(2), node.className, walk.currentNode.data.slice(0, 30)]);
  }
  return found;
})()"""


@pytest.fixture
def html(texts):
    """A function: the page of a kind."""
    made = {"texts": lambda: page(texts), "compare": compared, "sweep": swept, "tree": forked}
    return lambda kind: made[kind]()


def test_a_page_asks_for_nothing_and_its_policy_refuses_nothing_of_it(tab, html):
    for kind in KINDS:
        written = html(kind)
        tab.open(written)
        assert [url[:7] for url in tab.requests()] == ["file://"], kind
        assert tab.troubles() == [], kind
        assert "default-src 'none'" in written, kind
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|src=|@import|url\(|unsafe", written), kind
        assert tab.value("document.documentElement.lang") == "en", kind


def test_a_policy_refuses_scripts_and_styles_that_are_not_the_page_s(tab, html):
    for kind in KINDS:
        tab.open(
            html(kind).replace(
                "</body>", "<script>window.owned = 1</script><p style='color: red'></p></body>"
            )
        )
        assert tab.value("window.owned") is None, kind
        assert len(tab.troubles()) == 2, kind


def test_texts_have_contrast_in_both_themes(tab, html):
    for kind in KINDS:
        for dark in [False, True]:
            tab.open(html(kind), dark=dark)
            for key in ("n", "ArrowDown", "c"):
                tab.press(key)
                assert tab.value(CONTRASTS) == [], (kind, dark)
            tab.press("?")
            assert tab.value(CONTRASTS) == [], (kind, dark)


def test_a_narrow_screen_scrolls_in_one_direction(tab, html):
    for kind in KINDS:
        tab.open(html(kind), width=400)
        tab.press("n")
        assert tab.value("document.documentElement.scrollWidth") <= 400, kind
        assert tab.value(
            "document.getElementById('panel').scrollWidth <= document.getElementById('panel').clientWidth"
        ), kind
        tab.click("#sheet")
        assert tab.value("document.getElementById('sheet').getAttribute('aria-expanded')") == "false", kind
        assert not tab.value("document.getElementById('panel').checkVisibility()"), kind


def test_all_that_the_keyboard_reaches_has_a_name(tab, html):
    for kind in KINDS:
        tab.open(html(kind))
        names = tab.names()
        assert len(names) > 5, kind
        assert [role for role, name in names if not name] == [], kind


def test_nothing_moves_for_those_who_want_no_motion(tab, html):
    for kind in KINDS:
        tab.open(html(kind), reduced=True)
        durations = (
            "[...document.querySelectorAll('*')].map((node) => getComputedStyle(node).transitionDuration)"
        )
        assert set(tab.value(durations)) == {"0s"}, kind


def attacked(traced, text):
    """The traced text with another in all of its places."""

    def stage(own):
        return {**own, "note": text, "params": text, "name": text}

    records = tuple(
        {**record, "text": text, "stages": [*map(stage, record["stages"])]} for record in traced.records
    )
    return replace(traced, head={**traced.head, "prompt": text, "model": text, "run": text}, records=records)


def test_hostile_texts_are_only_text(tab, texts):
    for kind in KINDS:
        for text, width in ((HOSTILE, 1200), ("x" * 10_000, 400)):
            names = dict.fromkeys(NAMES, text)
            made = {
                "texts": partial(page, [attacked(one, text) for one in texts]),
                "compare": partial(compared, names),
                "sweep": partial(swept, text),
                "tree": partial(forked, names, text),
            }
            tab.open(made[kind](), width=width)
            for key in ("n", "ArrowRight", "ArrowDown", "c"):
                tab.press(key)
            assert tab.value("window.owned") is None, (kind, text)
            assert (tab.count("img"), tab.count("script")) == (0, 2), (kind, text)
            shown = tab.value("document.body.innerText")
            assert not re.search("[\u202e\x1b\u2066]", shown), (kind, text)
            assert tab.value("document.documentElement.scrollWidth") <= width, (kind, text)
            assert tab.troubles() == [], (kind, text)


HEAD = {"prompt": "P", "model": "m", "seed": 1}
NODES = [
    Node(0, None, 0, "", "one two three", (1, 2, 3)),
    Node(1, 0, 1, " x", " x y", (9, 8), kept=3, p=0.25),
    Node(2, 0, 2, " z", " z", (7,), kept=7, p=0.5),
    Node(3, 1, 2, " q", " q", (6,), kept=5, p=0.1),
    Node(4, 1, 1, " w", " w", (5,), kept=3, p=0.2),
    Node(5, 0, 0, "o", "other", (4,), kept=0, p=0.01),
    Node(6, 2, 3, "!", "!", (3,), kept=9, p=0.9),
]


def read(page):
    """The data of a page."""
    packed = re.search(r'id="data"[^>]*>([^<]+)<', page)[1]
    return json.loads(zlib.decompress(b64decode(packed)))


def test_branches_are_the_texts():
    tree = Tree(HEAD, {one.id: one for one in NODES})
    nodes = read(branches_page(tree))["nodes"]
    parents = {parent for parent, *_ in nodes}

    def text(index):
        return (text(nodes[index][0]) if nodes[index][0] >= 0 else "") + nodes[index][3]

    ends = {text(index) for index in range(len(nodes)) if index not in parents}
    assert ends == {tree.text(one) for one in (0, 1, 3, 4, 5, 6)}
    assert {(token, p) for _, token, p, _ in nodes if token is not None} == {
        (one.ids[0], one.p) for one in NODES[1:]
    }


def test_there_is_no_command_where_the_trace_has_too_little():
    head = {"run": "2", "sample": 0, "model": "tiny", "prompt": "b", "draw": "gumbel", "seed": 1, "chain": []}
    text = TracedText(head, (), "eos")
    assert command(text, [text]) == ""  # the noise of a second prompt comes behind a first
    for chain in ([{"grammar": {}}], [{"no_such": {}}], "top_k", [3]):
        text = TracedText({**head, "run": "1", "chain": chain}, (), "eos")
        assert command(text, [text]) == ""
    text = TracedText({**head, "run": "1"}, (), "eos")
    assert command(text, [text]).endswith(" -- b")
