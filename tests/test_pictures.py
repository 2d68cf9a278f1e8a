"""The pictures of README and docs are those of their scripts, small, and shown."""

import re

from scripts import make_page_pictures
from scripts.make_pictures import FOLDER, PICTURES, THEMES

FILES = {(picture, theme): FOLDER / f"{picture.name}-{theme}.svg" for picture in PICTURES for theme in THEMES}


def test_a_picture_is_small_and_loads_nothing_from_elsewhere():
    for path in FILES.values():
        svg = path.read_text(encoding="utf-8")
        assert len(svg) < 40_000, path
        assert set(re.findall(r"https?://[^\"' )]+", svg)) <= {"http://www.w3.org/2000/svg"}, path
        assert not re.search(r"url\((?!#)|<script|@import|@font-face|href=", svg), path


def test_a_page_shows_each_picture_for_light_and_dark_pages_and_the_readme_begins_with_one():
    readme = (FOLDER.parent.parent / "README.md").read_text(encoding="utf-8")
    assert readme.startswith("# gencli\n\n<picture>")
    pages = readme + "".join(page.read_text(encoding="utf-8") for page in FOLDER.parent.glob("*.md"))
    for path in FILES.values():
        assert f"pictures/{path.name}" in pages
    assert pages.count("prefers-color-scheme: dark") == len(PICTURES)


def test_the_pictures_are_those_of_the_script():
    pages = {f"{name}.png" for name in make_page_pictures.NAMES}
    assert {path.name for path in FOLDER.iterdir()} == pages | {path.name for path in FILES.values()}


def test_a_picture_of_a_page_is_small_and_shown():
    for name in make_page_pictures.NAMES:
        assert (FOLDER / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name
        assert (FOLDER / f"{name}.png").stat().st_size < 150_000, name
        assert f"pictures/{name}.png" in (FOLDER.parent / "explain.md").read_text(encoding="utf-8"), name
