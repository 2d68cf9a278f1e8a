"""The README's pictures show what their commands print."""

import json
import re
from dataclasses import replace

from scripts import make_page_pictures, make_pictures
from scripts.make_pictures import FOLDER, PICTURES, THEMES
from tests.helpers.quick import quick_gencli

STALE = "run scripts/make_pictures.py"
FILES = {(picture, theme): FOLDER / f"{picture.name}-{theme}.svg" for picture in PICTURES for theme in THEMES}


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


def test_a_picture_is_small_and_loads_nothing_from_elsewhere():
    for path in FILES.values():
        svg = path.read_text(encoding="utf-8")
        assert len(svg) < 40_000, path
        assert set(re.findall(r"https?://[^\"' )]+", svg)) <= {"http://www.w3.org/2000/svg"}, path
        assert not re.search(r"url\((?!#)|<script|@import|@font-face|href=", svg), path


def test_the_readme_shows_each_picture_for_light_and_dark_pages():
    page = (FOLDER.parent.parent / "README.md").read_text(encoding="utf-8")
    for path in FILES.values():
        assert f"docs/pictures/{path.name}" in page
    assert page.count("prefers-color-scheme: dark") == len(PICTURES)


def test_the_pictures_are_those_of_the_script():
    pages = {f"{name}.png" for name in make_page_pictures.NAMES}
    assert {path.name for path in FOLDER.iterdir()} == pages | {path.name for path in FILES.values()}


def test_a_picture_of_a_page_is_small_and_shown():
    for name in make_page_pictures.NAMES:
        assert (FOLDER / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name
        assert (FOLDER / f"{name}.png").stat().st_size < 150_000, name
        assert f"pictures/{name}.png" in (FOLDER.parent / "explain.md").read_text(encoding="utf-8"), name
