"""The samples of a result as a list, for one sample and for several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["SAMPLE_FIELDS", "samples_of"]

# Fields that are lists with one entry per sample in a result with `texts`.
SAMPLE_FIELDS = (
    "finish_reason", "matched", "offset", "completion_tokens", "parsed", "error", "speculation", "token_ids",
    "logprobs",
)  # fmt: skip


def samples_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of each sample, with `text`. The result of a row that never ran is one sample."""
    if "texts" not in result:
        return [{"text": result.get("text", ""), **{key: result.get(key) for key in SAMPLE_FIELDS}}]
    fields = {key: result[key] for key in SAMPLE_FIELDS if key in result}
    return [
        {"text": text, **dict.fromkeys(SAMPLE_FIELDS), **{key: values[j] for key, values in fields.items()}}
        for j, text in enumerate(result["texts"])
    ]
