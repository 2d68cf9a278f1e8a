"""What holds for all kinds of pages: theirs alone is what runs, and everyone can read and reach it."""

import re
from dataclasses import replace
from functools import partial

import pytest

from gencli.explain.page import page
from tests.explain.page.samples import NAMES, compared, forked, swept

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
        for text in [HOSTILE, "x" * 10_000]:
            names = dict.fromkeys(NAMES, text)
            made = {
                "texts": partial(page, [attacked(one, text) for one in texts]),
                "compare": partial(compared, names),
                "sweep": partial(swept, text),
                "tree": partial(forked, names, text),
            }
            for width in (1200, 400):
                tab.open(made[kind](), width=width)
                for key in ("n", "ArrowRight", "ArrowDown", "c"):
                    tab.press(key)
                assert tab.value("window.owned") is None, (kind, text)
                assert (tab.count("img"), tab.count("script")) == (0, 2), (kind, text)
                shown = tab.value("document.body.innerText")
                assert not re.search("[\u202e\x1b\u2066]", shown), (kind, text)
                assert tab.value("document.documentElement.scrollWidth") <= width, (kind, text)
                assert tab.troubles() == [], (kind, text)
