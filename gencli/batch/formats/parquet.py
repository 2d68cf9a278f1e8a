"""Parquet, read with pyarrow in batches of 1000 rows."""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

from gencli.batch.extras import need_pyarrow
from gencli.batch.formats.base import Item, Unfit

__all__ = ["read_parquet"]

_ROWS = 1000


def read_parquet(stream: BinaryIO, name: str) -> Iterator[Item]:
    """Yield the records of a Parquet file in a seekable stream; the row number serves as line number."""
    need_pyarrow(name)
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(stream)
    except pa.ArrowInvalid as error:
        raise Unfit(f"is not a readable Parquet file: {str(error).rstrip('.')}") from None
    rows = (row for batch in file.iter_batches(_ROWS, use_threads=False) for row in batch.to_pylist())
    for number, row in enumerate(rows, start=1):
        yield number, _plain(row)


def _plain(value: Any) -> Any:
    """Return a value as JSON: times and decimals as text, bytes in base64, NaN and infinities as null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, decimal.Decimal | datetime.timedelta) else value
