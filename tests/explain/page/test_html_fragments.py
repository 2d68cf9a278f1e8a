"""What notebooks show of an explained text and of a comparison: static, escaped, in legible colours."""

import base64
import re
from html.parser import HTMLParser

import pytest

from gencli.explain.chain_comparison import ComparedPlace, Comparison, SideOutput
from gencli.explain.trace_file import Trace, TracedText
from processors.explain_rows import Divergence
from tests.explain.page.test_html_pages import CONTRASTS, HOSTILE

DRAWN = "<script>performance.mark('drawn')</script>"


class Tags(HTMLParser):
    """Collects the tags, attributes and texts of HTML; a void tag and a wrong nesting are errors."""

    def __init__(self, html):
        super().__init__()
        self.found, self.attributes, self.text, self._open = set(), set(), "", []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1] != "style":
            self.text += data


def compared(names, prompt="Once"):
    near, far = Divergence(0.01, 0.01, 0.01), Divergence(0.7, 2.0, 1.0)
    places = (ComparedPlace(0, 1, 1, (), (), near), ComparedPlace(1, 2, 3, ("min_p",), ("top_k",), far))
    sides = SideOutput((1, 2), "ab", "length"), SideOutput((1, 3, 9), "ac", "eos")
    return Comparison("1", prompt, *sides, places, names)


@pytest.fixture
def hostile(texts):
    """Values whose texts, chain, reasons and names are all hostile."""
    text, packed = texts[0], base64.b64encode(HOSTILE.encode()).decode()
    own = {"text": HOSTILE, "bytes": packed, "decided_by": [HOSTILE], "instead": [[5, HOSTILE]]}
    records = [{**record, **own} for record in text.records]
    head = {**text.head, "prompt": HOSTILE, "model": HOSTILE}
    return (
        Trace(records),
        TracedText(head, tuple(records), HOSTILE),
        compared({1: HOSTILE, 2: HOSTILE, 3: HOSTILE}, HOSTILE),
    )


def test_a_fragment_has_tags_of_text_alone_and_asks_for_nothing(hostile):
    tags = {"div", "style", "p", "span", "details", "summary", "table", "thead", "tbody", "tr", "th", "td"}
    for value in hostile:
        html = value._repr_html_()
        read = Tags(html)
        assert read.found <= tags
        assert read.attributes <= {"class", "dir", "data-level", "title"}
        assert not re.search(r"https?:|@import|url\(", html)
        assert not set("\u202e\x1b\u2066") & set(html)
        assert "<script>" in read.text
        assert "\n" not in repr(value)
        assert len(repr(value)) < 200


def test_a_browser_shows_a_fragment_without_running_or_fetching_anything(tab, hostile):
    for value in hostile:
        for dark in (False, True):
            tab.open(f"<!doctype html>{value._repr_html_()}{DRAWN}", dark=dark)
            tab.click("summary")
            assert tab.value("window.owned") is None
            assert len(tab.requests()) == 1
            assert tab.value(CONTRASTS) == [], (type(value), dark)
            colours = tab.value(
                "['0', '3'].map((one) => getComputedStyle("
                "document.querySelector(`.legend [data-level='${one}']`)).backgroundColor)"
            )
            assert len(set(colours)) == 2


def test_tokens_have_the_level_of_their_probability_and_say_what_decided_them(texts):
    records = texts[0].records
    html = texts[0]._repr_html_()
    found = re.findall(r'<span class="token" data-level="(\d)" title="([^"]*)">', html)
    assert len(found) == len(records)
    for record, (level, title) in zip(records, found, strict=True):
        p = record["raw"]["p"]
        assert int(level) == (p < 0.5) + (p < 0.1) + (p < 0.02)
        assert (f"decided by {', '.join(record['decided_by'])}" in title) == bool(record["decided_by"])
    count = sum(bool(record["decided_by"]) for record in records)
    assert f"{count} of {len(records)} tokens decided by a stage" in html
    assert repr(Trace(records)) == f"Trace({len(records)} tokens, {count} decided by a stage)"
    assert repr(texts[1]) == f"TracedText(run='1', sample=1, {len(texts[1].records)} tokens, reason='length')"


def test_a_character_of_several_tokens_is_whole(texts):
    first, second, *rest = (dict(record) for record in texts[0].records)
    for record, byte in ((first, b"\xc3"), (second, b"\xa9")):
        record |= {"text": "\ufffd", "bytes": base64.b64encode(byte).decode()}
    assert "é" in Tags(Trace([first, second, *rest])._repr_html_()).text


def test_both_texts_of_a_comparison_are_shown_and_where_they_part():
    names = {1: "the", 2: " cat", 3: " dog"}
    html = compared(names)._repr_html_()
    assert "1 of 2 tokens chosen differently" in html
    assert html.count('class="token parts"') == 2
    assert "⟨id 9⟩" in html
    assert Tags(html).text.endswith("1' cat'' dog'0.7min_p, top_k")
    assert repr(compared(names)) == ("Comparison(prompt='Once', 2 tokens, 1 chosen differently, parted_at=1)")
