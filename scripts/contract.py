"""Tell whether this tree behaves, byte for byte, as the commit in scripts/contract-base does.

    python scripts/contract.py [--no-cache] [--base COMMIT] [PART ...]

What both print, write and answer is collected as texts with names, by this script and the cases in
scripts/contract-cases.txt, each tree in processes of its own, and compared. Only what a user sees is asked:
commands, files, HTTP, public names of Python. Paths, times, random ids and versions are masked.
docs/contributing/contract-changes.md lists differences that are wanted; with any other the exit code is 1.
Linux only.
"""

import argparse
import difflib
import hashlib
import http.client
import importlib
import inspect
import json
import os
import pkgutil
import platform
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import reduce
from importlib.metadata import distributions
from operator import or_
from pathlib import Path
from types import ModuleType
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
BASE, CASES = ROOT / "scripts" / "contract-base", ROOT / "scripts" / "contract-cases.txt"
WANTED, KEPT = ROOT / "docs" / "contributing" / "contract-changes.md", ROOT / ".contract"
SECONDS, NUM_LINES, WIDTH = 300, 20, 200  # of a process; of a shown difference

Mask = tuple[re.Pattern[str], str]
# What differs from one run to the next, whatever the code does.
VOLATILE: tuple[Mask, ...] = tuple((re.compile(pattern, re.MULTILINE), new) for pattern, new in (
    (r'("timings":\s*)\{[^}]*\}', r"\1<times>"),
    (r"^(\s*)timings:\n(?:\1  .*\n)+", r"\1timings: <times>\n"),
    (r'("?\b(?:\w*seconds?|occupancy|created|created_at|completed_at)"?:\s*)\d[\d.e-]*', r"\1<time>"),
    (r"\d[\d.,]*(?= (?:(?:tok|rows)/s|s\b|ms\b))", "<time>"),
    (r"\b(in|roughly) \d+:\d\d\b", r"\1 <time>"),
    (r"^\d+ of \d+ rows?, <time> rows/s, .* full\n", ""),  # of a slow batch, every five seconds
    (r"<time> tok/s, \d+% full", "<time> tok/s, <time> full"),  # a mean over time
    (r"[\d.]+ [KMG]iB (Python and PyTorch|are free|free)\b", r"<size> \1"),
    (r"(?<= at )0x[0-9a-f]+", "<address>"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?", "<date>"),
    (r"\b(cmpl-|chatcmpl-|resp_|msg_|call_|fc_)[0-9a-f]{12,}", r"\1<id>"),
    (r"(?i)^(date|content-length|x-request-id): .*", r"\1: <masked>"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
))  # fmt: skip


def masked(text: str, places: Sequence[tuple[str, str]], volatile: Sequence[Mask] = VOLATILE) -> str:
    """Return the text without what is volatile; `places`: texts such as paths, and what stands for them."""
    text = re.sub(r'^(\{.*), "check": "(\w+)"\}$', _checked, text, flags=re.MULTILINE)
    for place, name in sorted(places, key=lambda pair: -len(pair[0])):
        text = text.replace(place, name)
    for pattern, new in volatile:
        text = pattern.sub(new, text)
    return text


def _checked(line: re.Match[str]) -> str:
    """A line of a journal ends with the checksum of the rest, which has times in it."""
    right = hashlib.blake2b(line[1].encode(), digest_size=8).hexdigest()
    return f'{line[1]}, "check": "<{"right" if line[2] == right else "wrong"}>"}}'


def sections(text: str) -> dict[str, str]:
    """Return the sections of the file of cases, by their names."""
    names = re.findall(r"^== (.*)$", text, re.MULTILINE)
    words, *rest = re.split(r"^== .*\n", text, flags=re.MULTILINE)[1:]
    values: dict[str, str] = {}

    def replaced(part: str) -> str:
        return re.sub(r"\$([A-Z]+)", lambda found: values[found[1]], part)

    for name, value in lines(words):
        values[name] = replaced(value)
    return dict(zip(names[1:], map(replaced, rest), strict=True))


def lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and rest of each line of a table; @N becomes N letters."""
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        yield name, re.sub(r"@(\d+)", lambda found: "a" * int(found[1]), rest).strip()


class Shell:
    """Runs commands in a folder, each in a fork of this process, which has imported gencli."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.aside = folder / "cwd", folder / "aside"
        self.aside.mkdir(parents=True)
        self.tables = sections(CASES.read_text())
        for title, text in self.tables.items():
            if title.startswith("file "):
                path = self.folder / title.removeprefix("file ")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    def begin(self, words: Sequence[str], stdin: str | int = "", env: dict[str, str] | None = None) -> int:
        """Return the id of a process of `gencli WORDS`; `stdin`: a text, or a descriptor."""
        if isinstance(stdin, str):
            (self.aside / "in").write_text(stdin)
            stdin = os.open(self.aside / "in" if stdin else os.devnull, os.O_RDONLY)
        if process := os.fork():
            return process
        try:
            signal.alarm(SECONDS)
            os.dup2(stdin, 0)
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(self.aside / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND), number)
            sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115
            sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
            os.chdir(self.folder)
            os.environ |= env or {}
            sys.argv = ["gencli", *words]
            code = importlib.import_module("gencli.__main__").main()
            sys.stdout.flush()
            os._exit(code)
        except BaseException:
            traceback.print_exc()
        os._exit(1)

    def end(self, process: int) -> str:
        """Wait for a process, and return exit code, stdout and stderr."""
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        out, err = ((self.aside / name).read_bytes().decode(errors="replace") for name in ("out", "err"))
        return f"exit {code}\n--- stdout\n{out}\n--- stderr\n{err}"

    def table(self, title: str) -> Iterator[tuple[str, str]]:
        """Yield the names of a table of commands, and what each gave."""
        yield from ((name, self.line(line)) for name, line in lines(self.tables[title]))

    def line(self, text: str) -> str:
        """Run a line of a table, and return what it gave, with its files."""
        text, _, names = text.partition(" => ")
        words, stdin, env = shlex.split(text), "", {}
        if words[1:2] == ["|"]:
            stdin, words = words[0].replace("\\n", "\n") + "\n", words[2:]
        while words and re.match("[A-Z_]+=", words[0]):
            key, _, env[key] = words.pop(0).partition("=")
        parts = [self.end(self.begin(words, stdin, env))]
        for path in (self.folder / name for name in names.split()):
            for file in sorted(path.rglob("*.*")) if path.is_dir() else [path]:
                content = file.read_text(errors="replace") if file.exists() else "(no such file)"
                parts.append(f"--- {file.relative_to(self.folder)}\n{_in_order(content)}")
        return "\n".join(parts)


def _in_order(content: str) -> str:
    """Return the content; the rows of a journal, which the time of compiling orders, by their number."""
    head, *rows = content.splitlines() if content.startswith('{"gencli_journal"') else [content]
    return "\n".join([head, *sorted(rows, key=lambda row: int(re.findall(r"\d+", row)[0]))])


def helps(show: Callable[[list[str]], str], *words: str) -> Iterator[tuple[str, str]]:
    """Yield words and help of gencli, of each command, and of the commands of each group."""
    text = show([*words, "--help"])
    yield " ".join(words), text
    listed = re.search(r"^Commands:\n((?: .*\n?)+)", text, re.MULTILINE)
    for name in re.findall(r"^  (\w\S*)", listed[1], re.MULTILINE) if listed and not words[1:] else ():
        yield from helps(show, *words, name)


def help_items(shell: Shell) -> Iterator[tuple[str, str]]:
    """Yield the helps, and the manual pages."""
    for name, text in helps(lambda words: shell.end(shell.begin(words))):
        yield name or "gencli", text
    yield "man", shell.line("man --output man")
    for path in sorted((shell.folder / "man").iterdir()):
        yield f"man/{path.name}", path.read_text()


def compat_items(shell: Shell) -> Iterator[tuple[str, str]]:
    """Yield the pages of docs, the profiles, a text of each, and the cases of other systems."""
    from tests.processors import vectors
    from tests.processors.vectors.run import processed

    for name in ("compat.md", "compat.csv", "vectors.md"):
        page = Path("docs", "reference", name)  # earlier trees have all three in docs
        yield f"docs/{name}", (page if page.exists() else Path("docs", name)).read_text()
    for name in sorted(path.stem for path in (ROOT / "configs" / "compat").glob("*.yaml")):
        yield f"show {name}", shell.line(f"config show --compat {name}")
        yield name, shell.line(f'run --seed 7 --max-tokens 12 --compat {name} -t 0.8 "Once upon a time"')
    seen: dict[str, int] = {}
    for case in vectors.CASES:
        seen[case.source] = number = seen.get(case.source, 0) + 1
        try:
            result = _brief(repr(processed(case).tolist()))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        yield f"vector/{case.source} {number}", f"{case.chain}\n{_brief(repr(case.logits))}\n{result}\n"


def _brief(text: str) -> str:
    """Return the text; of a long one the beginning, and a hash of the whole."""
    return text if len(text) < 2000 else f"{text[:500]} ... {hashlib.sha256(text.encode()).hexdigest()}"


def schema_items(shell: Shell) -> Iterator[tuple[str, str]]:
    """Yield the schemas in docs, files and records of their kinds, and what Python offers."""
    for path in sorted(Path("docs").glob("*.schema.json")):
        yield f"docs/{path.name}", path.read_text()
    yield from shell.table("schemas")
    for package in map(importlib.import_module, ("gencli", "processors")):
        for name in sorted(package.__all__):
            yield f"python/{package.__name__}.{name}", _described(getattr(package, name))


def _described(thing: object) -> str:
    """Return the signatures of a public name, and of the public members of a class."""
    members = inspect.getmembers(thing) if isinstance(thing, type) else []
    said = []
    for name, member in [("", thing), *(pair for pair in members if pair[0][0] != "_")]:
        with suppress(TypeError, ValueError):
            said.append(f"{name}{inspect.signature(member)}\n")
    return "".join(said) or type(thing).__name__


def command_items(shell: Shell) -> Iterator[tuple[str, str]]:
    yield from shell.table("commands")
    read, write = os.pipe()
    process = shell.begin(["run", "--seed", "7", "-"], read)
    still = 0
    while still < 5:  # it sleeps for half a second: it reads
        time.sleep(0.1)
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        still = still + 1 if state in "SZ" else 0
    os.kill(process, signal.SIGINT)
    yield "130-interrupted", shell.end(process)
    os.close(write)


def batch_items(shell: Shell) -> Iterator[tuple[str, str]]:
    """Yield what batches write. One is resumed from half of a journal, one from a damaged journal."""
    for name, line in lines(shell.tables["batch"]):
        if name == "resumed":
            journal = (shell.folder / "plain.jsonl.journal").read_text().splitlines(keepends=True)
            (shell.folder / "cut.jsonl.journal").write_text("".join(journal[:3]) + journal[3][:40])
            (shell.folder / "damaged.jsonl.journal").write_text("".join(journal[:3]).replace('"id"', '"ID"'))
        yield name, shell.line(line)


def server_items(shell: Shell) -> Iterator[tuple[str, str]]:
    for title in (title for title in shell.tables if title.startswith("server ")):
        _, name, *options = title.split()
        (shell.aside / "err").write_text("")
        process = shell.begin(["serve", "--port", "0", *options])
        pattern, ready = re.compile(r"answers? at http://[\d.]+:(\d+)/v1"), None
        while not ready and not os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            time.sleep(0.05)
            ready = pattern.search((shell.aside / "err").read_text())
        if ready:
            for item, line in lines(shell.tables[title]):
                yield f"{name}/{item}", asked(int(ready[1]), line)
            os.kill(process, signal.SIGTERM)
        yield name, shell.end(process)


def asked(port: int, line: str) -> str:
    """Return the reply to a line of a server's table: status, head, body."""
    head, _, body = line.partition(" {")
    method, path, *given = shlex.split(head)
    body = "{" + body if body else ""
    headers = {"Content-Type": "application/json"} if body else {}
    headers |= dict(text.split(":", 1) for text in given)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    with closing(connection):
        connection.request(method, path, body or None, headers)
        reply = connection.getresponse()
        text, is_stream = reply.read().decode(), "event-stream" in reply.headers.get("content-type", "")
    if path == "/metrics":
        text = re.sub(r"(?m)^(\w.*) \S+$", r"\1 <number>", text)
    return f"{reply.status} {reply.reason}\n{reply.headers}{spoken(text) if is_stream else text}"


def spoken(text: str) -> str:
    """Return a stream of events with neighbours joined, as the clock decides how many tokens an event has.

    The events of each choice are together, in the order of their numbers.
    """
    by_choice: dict[int, list[tuple[str, object]]] = {}
    for block in text.split("\n\n"):
        kind, _, data = block.rpartition("data: ")
        event, choice = data, 1000
        if data.startswith("{"):
            event = json.loads(data) | ({"sequence_number": 0} if '"sequence_number"' in data else {})
            choice = next((each["index"] for each in event.get("choices", ())), 999)
        events = by_choice.setdefault(choice, [])
        if events and events[-1][0] == kind:
            with suppress(ValueError):
                event = _joined(events[-1][1], event)
                events.pop()
        if data and not block.startswith(":"):  # a comment, sent where nothing else comes for a while
            events.append((kind, event))
    ordered = [event for choice in sorted(by_choice) for event in by_choice[choice]]
    return "".join(f"{kind}{json.dumps(event)}\n" for kind, event in ordered)


def _joined(a: object, b: object, key: str = "") -> object:
    """Return two events as one, their texts and tokens joined. Raises ValueError where they differ."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return {name: _joined(a[name], b[name], name) for name in a}
    if isinstance(a, str) and isinstance(b, str) and key in ("content", "text", "delta", "arguments"):
        return a + b
    if isinstance(a, list) and isinstance(b, list):
        is_of_parts = key in ("choices", "tool_calls") and len(a) == len(b)
        return [*map(_joined, a, b)] if is_of_parts else a + b
    if a != b:
        raise ValueError(key)
    return a


PARTS: dict[str, Callable[[Shell], Iterator[tuple[str, str]]]] = {
    "golden": lambda shell: importlib.import_module("scripts.golden_texts").outputs(),
    "help": help_items, "pages": lambda shell: shell.table("pages"), "compat": compat_items,
    "schemas": schema_items, "commands": command_items, "server": server_items, "batch": batch_items,
}  # fmt: skip
# A process of each collects these parts, in about the same time.
GROUPS = (("server", "golden"), ("commands", "help", "pages", "compat", "schemas", "batch"))


def collect(tree: Path, parts: Sequence[str], target: Path) -> None:
    """Write the texts of these parts of a tree, which is the working directory, to a file, as JSON."""
    sys.path[:] = [str(tree), *(path for path in sys.path if Path(path or ".").resolve() != ROOT / "scripts")]
    for name in ("tests", "scripts"):  # the cases are those of this tree
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [str(ROOT / name)]
    import torch

    import gencli
    import processors

    for package in (gencli, processors):
        assert Path(str(package.__file__)).is_relative_to(tree), f"{package.__file__} is not in {tree}"
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(("__main__", "lm_eval")):
                with suppress(Exception):  # what needs a package that is not there
                    importlib.import_module(module.name)
    torch.set_num_threads(1)
    places = [(str(target.parent), "<tmp>"), (str(tree), "<tree>"), (sys.prefix, "<env>"),
              (gencli.__version__, "<version>")]  # fmt: skip
    texts: dict[str, str] = {}
    for part in parts:
        for name, text in PARTS[part](Shell(target.parent / part)):
            is_fixed = part == "help" or name.startswith("docs/")  # its times are those of the text
            texts[f"{part}/{name}"] = masked(text, places, () if is_fixed else VOLATILE)
    target.write_text(json.dumps(texts))


def collected(tree: Path, parts: Sequence[str]) -> dict[str, str]:
    """Return the texts of these parts of a tree, from a process of its own with an environment of its own."""
    with tempfile.TemporaryDirectory(prefix="contract-") as folder:
        own = {f"XDG_{kind}_HOME": f"{folder}/{kind}" for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
        own |= {"HOME": folder, "HF_HOME": f"{folder}/hf", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(tree),
                "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "COLUMNS": "100", "TERM": "dumb",
                "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}  # fmt: skip
        words = [sys.executable, __file__, "--collect", target := f"{folder}/texts.json", *parts]
        done = subprocess.run(words, cwd=tree, env=own, stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode:
            raise SystemExit(f"{tree}, {parts}: exit {done.returncode}\n{done.stderr.decode()}")
        texts: dict[str, str] = json.loads(Path(target).read_text())
        return texts


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Yield a worktree of a commit in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="contract-") as folder:
        tree = Path(folder).resolve() / "base"
        git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree))


def git(*words: str) -> str:
    """Return what git prints in this tree."""
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True).strip()


def cache_path(commit: str) -> Path:
    """Return where the texts of a commit are kept, made by these cases with these packages on this CPU."""
    vectors = sorted((ROOT / "tests" / "processors" / "vectors").glob("*.py"))
    cases = [Path(__file__), CASES, ROOT / "scripts" / "golden_texts.py", *vectors]
    names = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "configs").rglob("*.yaml"))
    machine = re.findall(r"^model name.*", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    packages = sorted(f"{one.name} {one.version}" for one in distributions())
    on = [commit, names, sys.version, platform.platform(), machine[:1], packages]
    key = hashlib.sha256(repr(on).encode() + b"".join(path.read_bytes() for path in cases)).hexdigest()
    return KEPT / f"base-{key[:20]}.json"


def both(commit: str, parts: Sequence[str], *, is_cached: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of the commit and of this tree. Two processes at once collect them."""
    groups = [group for names in GROUPS if (group := [name for name in names if name in parts])]
    cache = cache_path(commit)
    kept: dict[str, str] = json.loads(cache.read_text()) if is_cached and cache.exists() else {}
    is_known = {*parts} <= {name.partition("/")[0] for name in kept}
    with nullcontext() if is_known else checkout(commit) as tree, ThreadPoolExecutor(2) as pool:
        jobs = [(one, group) for group in groups for one in (tree, ROOT) if one]
        found = [*zip(jobs, pool.map(lambda job: collected(*job), jobs), strict=True)]
    before, after = (reduce(or_, (new for job, new in found if job[0] == one), {}) for one in (tree, ROOT))
    if is_known:
        before = {name: text for name, text in kept.items() if name.partition("/")[0] in parts}
    elif is_cached:
        KEPT.mkdir(exist_ok=True)
        for old in sorted(KEPT.glob("base-*.json"), key=lambda path: path.stat().st_mtime)[:-3]:
            old.unlink()
        cache.write_text(json.dumps(kept | before))
    return before, after


def wanted(page: str) -> list[str]:
    """Return the items of the table of wanted differences: names, or patterns with *."""
    rows = re.findall(r"^\| *(.+?) *\|.*\|.*\|$", page, re.MULTILINE)
    return [row.strip("`") for row in rows[2:]]  # behind the head and its line


def matches(pattern: str, name: str) -> bool:
    """Tell whether a line of the table is about this item."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def difference(name: str, before: str | None, after: str | None) -> str:
    """Return the name and the beginning of a unified diff; both texts are left in files."""
    shown, files = [], []
    for side, text in (("base", before), ("head", after)):
        files.append(f"    {KEPT / 'differences' / quote(name, safe=' ')}.{side}")
        Path(files[-1].strip()).write_text(text or "")
        # Texts with long lines, such as JSON and pages, are cut behind commas and brackets.
        cut, whole = re.sub(r"([,;{}>\]]) ?\b", r"\1\n", text or ""), text or ""
        shown.append((cut if any(line[WIDTH:] for line in whole.split("\n")) else whole).split("\n"))
    diff = [*difflib.unified_diff(*shown, "base", "head", lineterm="", n=1)]
    rest = [f"    ... {len(diff) - NUM_LINES} more lines"] if len(diff) > NUM_LINES else []
    return "\n".join([name, *(f"    {line[:WIDTH]}" for line in diff[:NUM_LINES]), *rest, *files])


def compare(before: dict[str, str], after: dict[str, str], patterns: Sequence[str]) -> int:
    """Print a line for each part, the differences, and what the table says; return the exit code."""
    shutil.rmtree(KEPT / "differences", ignore_errors=True)
    (KEPT / "differences").mkdir(parents=True)
    names = list(dict.fromkeys([*before, *after]))
    differing = [name for name in names if before.get(name) != after.get(name)]
    declared = {name for name in differing if any(matches(pattern, name) for pattern in patterns)}
    for name in differing:
        said = difference(name, before.get(name), after.get(name))
        print(f"{'WANTED' if name in declared else 'DIFFERS'} {said}")
    idle = [one for one in patterns if not any(matches(one, name) for name in differing)]
    for pattern in idle:
        print(f"IDLE {pattern}: {WANTED.name} lists it, and nothing that it names differs")
    for part in dict.fromkeys(name.partition("/")[0] for name in names):
        of = [name.startswith(f"{part}/") for name in names]
        wrong = sum(name.startswith(f"{part}/") for name in differing)
        fine = sum(name.startswith(f"{part}/") for name in declared)
        print(f"{part:10}{sum(of):5} items{wrong:5} differ{fine:5} of them wanted")
    print(f"{len(names)} items, {len(differing)} differ, {len(declared)} of them wanted")
    return 1 if idle or set(differing) - declared else 0


def main() -> int:
    """Collect, compare, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--base", default=BASE.read_text().strip(), metavar="COMMIT")
    parser.add_argument("--no-cache", action="store_true", help="collect the base anew, and do not keep it")
    parser.add_argument("--collect", type=Path, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if unknown := set(told.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if told.collect:
        collect(Path.cwd(), told.parts, told.collect)
        return 0
    start, parts = time.monotonic(), [name for name in PARTS if not told.parts or name in told.parts]
    before, after = both(git("rev-parse", told.base), parts, is_cached=not told.no_cache)
    patterns = wanted(WANTED.read_text())
    patterns = [one for one in patterns if not told.parts or one.partition("/")[0] in ("*", *told.parts)]
    code = compare(before, after, patterns)
    used = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    print(f"{time.monotonic() - start:.0f} s, {used:.0f} s of the CPU")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
