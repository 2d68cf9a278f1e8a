"""Output formats, one module for each; all are registered here."""

from __future__ import annotations

from collections.abc import Mapping

from gencli.batch.outputs.base import OutputFormat
from gencli.batch.outputs.folder import TEXTS
from gencli.batch.outputs.jsonl import JSONL, OPENAI
from gencli.batch.outputs.parquet import PARQUET
from gencli.batch.outputs.table import CSV, TSV

__all__ = ["OUTPUT_FORMATS"]

OUTPUT_FORMATS: Mapping[str, OutputFormat] = {
    known.name: known for known in (JSONL, OPENAI, CSV, TSV, PARQUET, TEXTS)
}
