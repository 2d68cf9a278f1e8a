"""The database of the log: one SQLite file in the user's data folder, which several processes may use."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from gencli.errors import ConfigError, UsageError
from gencli.files import NO_LINK
from gencli.json_text import to_json
from gencli.log.entry import Entry, PromptEntry

__all__ = ["SCHEMA", "add_run", "clear_log", "list_runs", "log_file", "read_run"]

SCHEMA = 1  # the version of the tables
_PATIENCE = 10.0  # seconds that another process may take to write
_HEAD = 80  # characters of a text in a list
_TABLES = (
    """CREATE TABLE runs (
        number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, version TEXT NOT NULL,
        model TEXT NOT NULL, seed TEXT NOT NULL, exit_code INTEGER NOT NULL, details TEXT NOT NULL)""",
    """CREATE TABLE prompts (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE, place INTEGER NOT NULL,
        prompt TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (run, place))""",
    """CREATE TABLE texts (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE, place INTEGER NOT NULL,
        sample INTEGER NOT NULL, text TEXT, PRIMARY KEY (run, place, sample))""",
)
_LIST = """
    SELECT number, time, version, model, seed, exit_code,
        (SELECT count(*) FROM prompts WHERE run = number) AS prompts,
        (SELECT head(prompt) FROM prompts WHERE run = number AND place = 1) AS prompt,
        (SELECT head(text) FROM texts WHERE run = number AND place = 1 AND sample = 0) AS text
    FROM runs
    WHERE :wanted = ''
        OR EXISTS (SELECT 1 FROM prompts WHERE run = number AND holds(prompt, :wanted))
        OR EXISTS (SELECT 1 FROM texts WHERE run = number AND holds(text, :wanted))
    ORDER BY number DESC LIMIT :limit"""


def log_file() -> Path:
    """Return where the log is kept."""
    from platformdirs import user_data_path

    return user_data_path("gencli") / "log.db"


def add_run(entry: Entry) -> int:
    """Keep a run; its number. Raises ConfigError if the log cannot be written."""
    path = log_file()
    with _refused(path), _opened(path, is_new=True) as database, _transaction(database):
        run = database.execute(
            "INSERT INTO runs (time, version, model, seed, exit_code, details) VALUES (?, ?, ?, ?, ?, ?)",
            (entry.time, entry.version, entry.model, str(entry.seed), entry.exit_code, entry.details()),
        ).lastrowid
        for place, one in enumerate(entry.prompts, start=1):
            database.execute(
                "INSERT INTO prompts VALUES (?, ?, ?, ?)", (run, place, one.prompt, to_json(one.record))
            )
            rows = ((run, place, sample, text) for sample, text in enumerate(one.texts))
            database.executemany("INSERT INTO texts VALUES (?, ?, ?, ?)", rows)
    return int(run or 0)


def list_runs(wanted: str, limit: int) -> Iterator[dict[str, Any]]:
    """What runs were, the last one first, with the beginnings of their first prompt and text.

    `wanted` is a text that a prompt or a text has to hold, in upper or lower case.
    """
    path = log_file()
    if not path.is_file():
        return
    with _refused(path), _opened(path) as database:
        for row in database.execute(_LIST, {"wanted": wanted.casefold(), "limit": limit}):
            yield {**dict(row), "seed": int(row["seed"])}


def read_run(name: str) -> tuple[int, Entry]:
    """Return a run by its number, or the `last` one. Raises UsageError if there is none."""
    path = log_file()
    if name != "last" and not (name.isdecimal() and len(name) < 19):
        raise UsageError(f"{name!r} is no run.", hint="Give its number, or last.")
    if path.is_file():
        with _refused(path), _opened(path) as database:
            asked = "number = ?" if name != "last" else "? = 'last' ORDER BY number DESC"
            query = f"SELECT * FROM runs WHERE {asked} LIMIT 1"
            run = database.execute(query, (name if name == "last" else int(name),)).fetchone()
            if run is not None:
                return run["number"], Entry.of(run, _prompts(database, run["number"]))
    raise UsageError(f"There is no run {name} in the log.", hint="gencli log list shows those there are.")


def clear_log(numbers: Sequence[int] = ()) -> int:
    """Remove these runs, or all, from the file as well; how many they were."""
    path = log_file()
    if not path.is_file():
        return 0
    with _refused(path), _opened(path) as database:
        database.execute("PRAGMA secure_delete = ON")
        with _transaction(database):
            if numbers:
                found = [database.execute("DELETE FROM runs WHERE number = ?", (one,)) for one in numbers]
                count = sum(cursor.rowcount for cursor in found)
            else:
                count = database.execute("DELETE FROM runs").rowcount
        database.execute("VACUUM")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return count


def _prompts(database: sqlite3.Connection, run: int) -> tuple[PromptEntry, ...]:
    texts: dict[int, list[str | None]] = {}
    for row in database.execute("SELECT place, text FROM texts WHERE run = ? ORDER BY place, sample", (run,)):
        texts.setdefault(row["place"], []).append(row["text"])
    rows = database.execute("SELECT place, prompt, record FROM prompts WHERE run = ? ORDER BY place", (run,))
    return tuple(
        PromptEntry(row["prompt"], tuple(texts.get(row["place"], ())), json.loads(row["record"]))
        for row in rows
    )


@contextmanager
def _opened(path: Path, *, is_new: bool = False) -> Iterator[sqlite3.Connection]:
    """The database, made first if `is_new` allows it; only its owner may read it."""
    if is_new:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o600))
        with suppress(OSError):
            path.chmod(0o600)  # one that was copied here may be open to others
    address = f"{path.absolute().as_uri()}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)) as database:
        database.row_factory = sqlite3.Row
        database.create_function("head", 1, lambda text: text and text[:_HEAD], deterministic=True)
        database.create_function("holds", 2, _holds, deterministic=True)
        _prepare(database, path)
        yield database


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    """Make the tables where there are none. ConfigError for the tables of a later gencli, or of others."""
    database.execute("PRAGMA foreign_keys = ON")
    if _version(database, path) == 0:
        with suppress(sqlite3.OperationalError):  # another process is making them; it works without, too
            database.execute("PRAGMA journal_mode = WAL")
        with _transaction(database):
            if _version(database, path) == 0:
                for table in _TABLES:
                    database.execute(table)
                database.execute(f"PRAGMA user_version = {SCHEMA}")


def _version(database: sqlite3.Connection, path: Path) -> int:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise ConfigError(
            f"The log {path} is of a later gencli: its tables have version {version}, known is {SCHEMA}.",
            hint="Update gencli, or move the file away.",
        )
    if version == 0 and database.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise ConfigError(f"{path} is a database, but no log of gencli.", hint="Move it away.")
    return int(version)


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk may have ended it already
            database.execute("ROLLBACK")
        raise


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Errors of the database and its file as ConfigError."""
    try:
        yield
    except (OSError, sqlite3.Error, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(f"The log {path} cannot be used: {reason}.") from error


def _holds(text: str | None, wanted: str) -> bool:
    return text is not None and wanted in text.casefold()
