"""The log of runs: entries that reproduce a run's bytes (except code and models), and their database, one
SQLite file in the user's data folder, usable by several processes.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

from gencli.config.layers import Recipe
from gencli.errors import ConfigError, UsageError
from gencli.files import NO_LINK, check_regular, open_regular
from gencli.json_text import to_json

_COLUMNS = ("time", "version", "model", "seed", "exit_code", "prompts")


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """A prompt, its texts (None for a sample without a result), and the other fields of its JSON record."""

    prompt: str
    texts: tuple[str | None, ...]
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A run. `time` is UTC; `folder` is the working directory at its start.

    `preset` reproduces the run together with `code`, the flags that name code. `models` maps option keys to
    name, revision and SHA-256 of the weights; `files` maps option keys to path and SHA-256, None for a pipe.
    """

    time: str
    version: str
    model: str
    seed: int
    exit_code: int
    folder: str
    preset: str
    settings: Mapping[str, Any]
    chain: list[dict[str, str]]
    code: Mapping[str, Any]
    models: Mapping[str, Any]
    files: Mapping[str, Any]
    prompts: tuple[PromptEntry, ...]

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.preset, self.code, self.files)

    def details(self) -> str:
        """Return the fields without a column of their own, as JSON."""
        return to_json({key: value for key, value in asdict(self).items() if key not in _COLUMNS})

    @classmethod
    def of(cls, row: Mapping[str, Any], prompts: tuple[PromptEntry, ...]) -> Entry:
        """Return the run of a database row. Raises ValueError for damaged details."""
        columns = {key: row[key] for key in ("time", "version", "model", "exit_code")}
        try:
            return cls(**columns, seed=int(row["seed"]), prompts=prompts, **json.loads(row["details"]))
        except TypeError:
            raise ValueError(f"run {row['number']} is damaged") from None


SCHEMA = 1  # the version of the tables
_TIMEOUT = 10.0  # seconds to wait for another process that writes
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
    WHERE :query = ''
        OR EXISTS (SELECT 1 FROM prompts WHERE run = number AND contains(prompt, :query))
        OR EXISTS (SELECT 1 FROM texts WHERE run = number AND contains(text, :query))
    ORDER BY number DESC LIMIT :limit"""


def log_file() -> Path:
    """Return the path of the log."""
    from platformdirs import user_data_path

    return user_data_path("gencli") / "log.db"


def add_run(entry: Entry) -> int:
    """Add a run and return its number. Raises ConfigError if the log cannot be written."""
    path = log_file()
    with _opened(path, is_new=True) as database, _transaction(database):
        run = database.execute(
            "INSERT INTO runs (time, version, model, seed, exit_code, details) VALUES (?, ?, ?, ?, ?, ?)",
            (entry.time, entry.version, entry.model, str(entry.seed), entry.exit_code, entry.details()),
        ).lastrowid
        for index, prompt in enumerate(entry.prompts, start=1):
            record = to_json(prompt.record)
            database.execute("INSERT INTO prompts VALUES (?, ?, ?, ?)", (run, index, prompt.prompt, record))
            rows = ((run, index, sample, text) for sample, text in enumerate(prompt.texts))
            database.executemany("INSERT INTO texts VALUES (?, ?, ?, ?)", rows)
    return int(run or 0)


def list_runs(query: str, limit: int) -> Iterator[dict[str, Any]]:
    """Yield the runs, latest first, each with the beginning of its first prompt and text.

    Only runs with `query` in a prompt or a text are listed; case is ignored, "" lists all.
    """
    path = log_file()
    if not os.path.lexists(path):
        return
    with _opened(path) as database:
        for row in database.execute(_LIST, {"query": query.casefold(), "limit": limit}):
            yield {**dict(row), "seed": int(row["seed"])}


def read_run(name: str) -> tuple[int, Entry]:
    """Return number and entry of a run, by its number or "last". Raises UsageError if there is none."""
    path = log_file()
    if name != "last" and not (name.isdecimal() and len(name) < 19):
        raise UsageError(f"{name!r} is not a run.", hint="Give its number, or last.")
    if os.path.lexists(path):
        with _opened(path) as database:
            condition = "number = ?" if name != "last" else "? = 'last' ORDER BY number DESC"
            query = f"SELECT * FROM runs WHERE {condition} LIMIT 1"
            run = database.execute(query, (name if name == "last" else int(name),)).fetchone()
            if run is not None:
                return run["number"], Entry.of(run, _prompts(database, run["number"]))
    raise UsageError(f"There is no run {name} in the log.", hint="gencli log list shows all runs.")


def clear_log(numbers: Sequence[int] = ()) -> int:
    """Remove these runs, or all, and their bytes in the file. Return the number of removed runs."""
    path = log_file()
    if not os.path.lexists(path):
        return 0
    with _opened(path) as database:
        database.execute("PRAGMA secure_delete = ON")
        with _transaction(database):
            if numbers:
                query = "DELETE FROM runs WHERE number = ?"
                count = sum(database.execute(query, (number,)).rowcount for number in numbers)
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
    prompts = ((prompt, tuple(texts.get(index, ())), json.loads(record)) for index, prompt, record in rows)
    return tuple(starmap(PromptEntry, prompts))


@contextmanager
def _opened(path: Path, *, is_new: bool = False) -> Iterator[sqlite3.Connection]:
    """Open the database; `is_new` creates it if needed. Only its owner may read it.

    Errors of the database and its file, also those of the block, are raised as ConfigError.
    """
    address = f"{path.absolute().as_uri()}?mode=rw"
    try:
        if is_new:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o600)
            try:
                check_regular(handle)
            finally:
                os.close(handle)
            with suppress(OSError):
                path.chmod(0o600)  # a copied file may be readable by others
        else:
            open_regular(path).close()
        with closing(sqlite3.connect(address, uri=True, timeout=_TIMEOUT, isolation_level=None)) as database:
            database.row_factory = sqlite3.Row
            database.create_function("head", 1, lambda text: text and text[:_HEAD], deterministic=True)
            database.create_function("contains", 2, _contains, deterministic=True)
            _prepare(database, path)
            yield database
    except (OSError, sqlite3.Error, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(f"The log {path} cannot be used: {reason}.") from error


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    """Create missing tables. Raises ConfigError for tables of a later gencli or of another program."""
    database.execute("PRAGMA foreign_keys = ON")
    if _version(database, path) == 0:
        with suppress(sqlite3.OperationalError):  # another process creates them; WAL is optional
            database.execute("PRAGMA journal_mode = WAL")
        with _transaction(database):
            if _version(database, path) == 0:
                for table in _TABLES:
                    database.execute(table)
                database.execute(f"PRAGMA user_version = {SCHEMA}")


def _version(database: sqlite3.Connection, path: Path) -> int:
    # Asked first: another process may create tables and version, at once, between the two questions.
    has_tables = database.execute("SELECT 1 FROM sqlite_master").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise ConfigError(
            f"The log {path} is of a later gencli: its tables have version {version}, not {SCHEMA}.",
            hint="Update gencli, or move the file away.",
        )
    if version == 0 and has_tables:
        raise ConfigError(f"{path} is a database, but not a log of gencli.", hint="Move it away.")
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


def _contains(text: str | None, query: str) -> bool:
    return text is not None and query in text.casefold()
