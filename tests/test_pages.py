"""Pages, pictures and examples are what the commands print."""

import re
from pathlib import Path

from scripts import make_page_pictures
from scripts.make_pictures import FOLDER, PICTURES, THEMES
from scripts.refresh_readme import commands
from scripts.step_files import BEGIN, END, listed, traced

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

COMMANDS, MORE, STRUCTURED = (
    list(commands((ROOT / page).read_text(encoding="utf-8")))
    for page in ("README.md", "docs/cli.md", "docs/structured-output.md")
)


def test_the_readme_is_short_and_shows_the_five_main_commands():
    assert len(README.encode()) <= 7 * 1024
    shown = set(re.findall(r"gencli (run|chat|explain|batch|serve)\b", "\n".join([*COMMANDS, *scripts()])))
    assert shown == {"run", "chat", "explain", "batch", "serve"}


def test_the_python_of_the_readme_runs(capsys):
    exec(re.search(r"```python\n(.*?)```", README, re.DOTALL)[1], {})
    assert capsys.readouterr().out.count("\n") >= 2


def scripts():
    """Return the shell scripts of the README, in order: install, batch, server."""
    return re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


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


ELSEWHERE = {"serve_ray.py"}  # tests/server/test_ray.py runs it

EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").iterdir()
    if path.suffix in (".py", ".sh") and path.name not in ELSEWHERE
)


def test_there_are_examples_of_both_kinds():
    assert len(EXAMPLES) >= 8
    assert {path.suffix for path in EXAMPLES} == {".py", ".sh"}


PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
# The wheel has the presets in gencli/configs; gencli/defaults.yaml is in a user's folder of settings.
OUTSIDE = {"gencli/configs", "gencli/defaults.yaml"}


def test_the_page_lists_the_files_of_a_decode_step_which_are_few():
    page = (ROOT / "docs" / "contributing" / "structure.md").read_text(encoding="utf-8")
    runs = traced()
    assert page.partition(BEGIN)[2].partition(END)[0] == listed(runs), "run scripts/step_files.py --write"
    features = ("speculative/", "guidance", "beam_search", "contrastive", "known_tokens", "run_ahead")
    assert [path for path in runs if any(name in path for name in features)] == []
    assert len(runs) <= 20
    assert max(run.depth for run in runs.values()) <= 12
    assert sum(len(run.functions) for run in runs.values()) <= 80


def test_every_file_and_module_that_a_page_names_exists():
    missing = []
    for page in PAGES:
        if page.name == "contract-changes.md" or page.parent.name == "decisions":  # of former files too
            continue
        text = page.read_text(encoding="utf-8")
        paths = (
            set(re.findall(r"(?<![\w/.-])(?:gencli|processors|scripts|configs)/[\w/.-]*\w", text)) - OUTSIDE
        )
        paths |= set(re.findall(r"`(tests/[\w/]+\.py)`", text))
        missing += [f"{page.name}: {path}" for path in sorted(paths) if not (ROOT / path).exists()]
        for module in re.findall(r"(?:from|import) ((?:gencli|processors)(?:\.[a-z_]+)*)", text):
            path = ROOT / module.replace(".", "/")
            if not path.is_dir() and not path.with_suffix(".py").is_file():
                missing.append(f"{page.name}: {module}")
    assert missing == []


def test_every_link_of_a_page_leads_to_a_file_and_a_heading():
    broken = []
    for page in PAGES:
        for file, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
            target = page.parent / file if file else page
            if not target.exists() or (heading and heading not in _anchors(target)):
                broken.append(f"{page.name}: {file}#{heading}")
    assert broken == []


def _anchors(page):
    """Return the anchors that GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
