"""The README's pictures show what their commands print."""

import json
from dataclasses import replace

from scripts import make_pictures
from scripts.make_pictures import PICTURES, THEMES
from tests.helpers.quick import quick_gencli
from tests.test_pictures import FILES

STALE = "run scripts/make_pictures.py"


def texts(picture):
    """What the picture shows of the command and of its output, the same on light and dark pages."""
    light, dark = (
        make_pictures.shown_text(FILES[picture, theme].read_text(encoding="utf-8")) for theme in THEMES
    )
    assert light == dark, STALE
    command = f"$ {picture.command}\n"
    assert light.startswith(command), STALE
    return light.removeprefix(command)


def printed(text):
    """Lines without what a picture cannot show: spaces at their ends, and lines that are empty."""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_a_picture_has_the_text_that_its_command_prints():
    for picture in [one for one in PICTURES if not one.is_live]:
        assert printed(texts(picture)) == printed(make_pictures.output(picture, [str(quick_gencli())])), STALE


def test_a_live_picture_has_the_beginnings_of_the_texts_of_its_command():
    for picture in [one for one in PICTURES if one.is_live]:
        whole = json.loads(
            make_pictures.output(
                replace(picture, command=f"{picture.command} --format json"), [str(quick_gencli())]
            )
        )
        lines = printed(texts(picture))
        assert len(lines) == len(whole["texts"]), picture
        for number, (line, text) in enumerate(zip(lines, whole["texts"], strict=True), start=1):
            label, beginning = f"[1.{number}] ", line.partition("] ")[2]
            assert line.startswith(label), STALE
            assert beginning, STALE
            assert " ".join(text.split()).startswith(beginning), STALE
