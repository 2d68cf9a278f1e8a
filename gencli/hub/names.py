"""Names of models on the hub, such as Qwen/Qwen3-0.6B or Qwen/Qwen3-0.6B@v1, and of their weight files.

A valid name cannot lead out of the cache folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["COMMIT", "INDEX", "MAIN", "SIDE_FILES", "WEIGHTS", "HubName", "read_hub_name"]

MAIN = "main"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
# Patterns of configuration, tokenizer and templates.
SIDE_FILES = (
    *("*config.json", "tokenizer*.json", "vocab*.json", "added_tokens.json", "special_tokens_map.json"),
    *("chat_template*.json", "tekken.json", "*.jinja", "*.model", "*.tiktoken", "*.spm", "*.bpe"),
    *("vocab.txt", "merges.txt"),
)
COMMIT = re.compile(r"[0-9a-f]{40}")
_PART = r"[A-Za-z0-9_](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_REPO = re.compile(rf"(?:{_PART}/)?{_PART}", re.ASCII)
_GGUF = re.compile(r"[A-Za-z0-9_][\w.+-]{0,199}", re.ASCII)  # a quantization, or a file
_REVISION = re.compile(r"[A-Za-z0-9_](?:[\w./+-]{0,198}[\w+])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository and a revision: branch, tag or commit.

    `gguf`: quantization, such as Q4_0, or name of a GGUF file.
    """

    repo: str
    revision: str = MAIN
    gguf: str = ""

    def __str__(self) -> str:
        name = self.repo if self.revision == MAIN else f"{self.repo}@{self.revision}"
        return f"{name}:{self.gguf}" if self.gguf else name


def read_hub_name(text: str) -> HubName | None:
    """Parse a name: org/name, org/name@revision, org/name:Q4_0. None for a name that the hub forbids."""
    text, colon, gguf = text.partition(":")
    if colon and not _GGUF.fullmatch(gguf):
        return None
    repo, at, revision = text.partition("@")
    is_repo = (
        _REPO.fullmatch(repo)
        and "--" not in repo
        and ".." not in repo
        and not repo.endswith((".git", ".gguf"))
    )
    if not is_repo:
        return None
    if not at:
        return HubName(repo, gguf=gguf)
    is_plain = all(part and part not in (".", "..") for part in revision.split("/"))
    return HubName(repo, revision, gguf) if _REVISION.fullmatch(revision) and is_plain else None
