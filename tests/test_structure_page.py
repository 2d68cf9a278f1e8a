"""The pages of docs: files of a decode step, and names, modules and links that exist."""

import re
from pathlib import Path

from scripts.step_files import BEGIN, END, listed, traced

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
# The wheel has the presets in gencli/configs; gencli/defaults.yaml is in a user's folder of settings.
ELSEWHERE = {"gencli/configs", "gencli/defaults.yaml"}


def test_the_page_lists_the_files_of_a_decode_step():
    page = (ROOT / "docs" / "contributing" / "structure.md").read_text(encoding="utf-8")
    assert page.partition(BEGIN)[2].partition(END)[0] == listed(traced()), "run scripts/step_files.py --write"


def test_every_file_and_module_that_a_page_names_exists():
    missing = []
    for page in PAGES:
        if (
            page.name == "contract-changes.md" or page.parent.name == "decisions"
        ):  # they name former files too
            continue
        text = page.read_text(encoding="utf-8")
        paths = (
            set(re.findall(r"(?<![\w/.-])(?:gencli|processors|scripts|configs)/[\w/.-]*\w", text)) - ELSEWHERE
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
