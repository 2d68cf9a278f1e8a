"""What holds for all kinds of pages: theirs alone is what runs, and everyone can read and reach it."""

import re
from dataclasses import replace

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


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_asks_for_nothing_and_its_policy_refuses_nothing_of_it(tab, html, kind):
    written = html(kind)
    tab.open(written)
    assert [url[:7] for url in tab.requests()] == ["file://"]
    assert tab.troubles() == []
    assert "default-src 'none'" in written
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|src=|@import|url\(|unsafe", written)
    assert tab.value("document.documentElement.lang") == "en"


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_refuses_scripts_and_styles_that_are_not_the_page_s(tab, html, kind):
    tab.open(
        html(kind).replace("</body>", "<script>window.owned = 1</script><p style='color: red'></p></body>")
    )
    assert tab.value("window.owned") is None
    assert len(tab.troubles()) == 2


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_texts_have_contrast_in_both_themes(tab, html, kind, dark):
    tab.open(html(kind), dark=dark)
    for key in ("n", "ArrowDown", "c"):
        tab.press(key)
        assert tab.value(CONTRASTS) == []
    tab.press("?")
    assert tab.value(CONTRASTS) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_narrow_screen_scrolls_in_one_direction(tab, html, kind):
    tab.open(html(kind), width=400)
    tab.press("n")
    assert tab.value("document.documentElement.scrollWidth") <= 400
    assert tab.value(
        "document.getElementById('panel').scrollWidth <= document.getElementById('panel').clientWidth"
    )
    tab.click("#sheet")
    assert tab.value("document.getElementById('sheet').getAttribute('aria-expanded')") == "false"
    assert not tab.value("document.getElementById('panel').checkVisibility()")


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_the_keyboard_reaches_has_a_name(tab, html, kind):
    tab.open(html(kind))
    names = tab.names()
    assert len(names) > 5
    assert [role for role, name in names if not name] == []


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_moves_for_those_who_want_no_motion(tab, html, kind):
    tab.open(html(kind), reduced=True)
    durations = "[...document.querySelectorAll('*')].map((node) => getComputedStyle(node).transitionDuration)"
    assert set(tab.value(durations)) == {"0s"}


def attacked(traced, text):
    """The traced text with another in all of its places."""

    def stage(own):
        return {**own, "note": text, "params": text, "name": text}

    records = tuple(
        {**record, "text": text, "stages": [*map(stage, record["stages"])]} for record in traced.records
    )
    return replace(traced, head={**traced.head, "prompt": text, "model": text, "run": text}, records=records)


@pytest.mark.parametrize("text", [HOSTILE, "x" * 10_000], ids=["markup", "long"])
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_texts_are_only_text(tab, texts, kind, text):
    names = dict.fromkeys(NAMES, text)
    hostile = [attacked(one, text) for one in texts]
    made = {
        "texts": lambda: page(hostile),
        "compare": lambda: compared(names),
        "sweep": lambda: swept(text),
        "tree": lambda: forked(names, text),
    }
    for width in (1200, 400):
        tab.open(made[kind](), width=width)
        for key in ("n", "ArrowRight", "ArrowDown", "c"):
            tab.press(key)
        assert tab.value("window.owned") is None
        assert (tab.count("img"), tab.count("script")) == (0, 2)
        shown = tab.value("document.body.innerText")
        assert not re.search("[\u202e\x1b\u2066]", shown)
        assert tab.value("document.documentElement.scrollWidth") <= width
        assert tab.troubles() == []
