"""The page at /: one file without network access, and the content security policy that enforces this."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path


@cache
def page() -> tuple[bytes, dict[str, str]]:
    """Return the page and its headers. The policy allows its script and style by hash, and no others."""
    text = Path(__file__).with_name("index.html").read_text(encoding="utf-8")
    script, style = (_hash(text, tag) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), {"content-security-policy": policy, "referrer-policy": "no-referrer"}


def _hash(text: str, tag: str) -> str:
    element = re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    assert element is not None
    return f"sha256-{base64.b64encode(hashlib.sha256(element[1].encode()).digest()).decode()}"
