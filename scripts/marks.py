"""Replace marked parts of pages."""

from pathlib import Path

__all__ = ["write_between"]


def write_between(page: Path, mark: str, text: str) -> None:
    """Replace the text between the comments of a mark on a page."""
    begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    page.write_text(before + begin + text + "\n" + end + rest.partition(end)[2], encoding="utf-8")
