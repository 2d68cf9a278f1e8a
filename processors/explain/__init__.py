"""What each stage of a chain did to a row of logits, which stage decided the token, and who came next."""

from __future__ import annotations

from processors.explain.rows import explain_rows
from processors.explain.view import Place, Race, RowView, StageView

__all__ = ["Place", "Race", "RowView", "StageView", "explain_rows"]
