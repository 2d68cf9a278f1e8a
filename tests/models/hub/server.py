"""A hub on this machine: the model API, and files, large ones on a second server; with faults on demand."""

import json
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 2000  # bytes from which a file is stored by its SHA-256, on the other server


@dataclass
class Fault:
    """What one answer does wrong: another status, an end after some bytes, other bytes, a wait."""

    status: int = 0
    headers: dict = field(default_factory=dict)
    cut: int | None = None
    body: bytes | None = None
    no_range: bool = False
    wait: float = 0.0
    slow: float = 0.0  # seconds between halves


@dataclass
class Repo:
    files: dict
    commit: str = COMMIT
    revisions: tuple = ("main",)
    status: int = 200
    error: str = ""  # X-Error-Code
    listed: dict = field(default_factory=dict)  # what the listing says in place of the truth

    def info(self):
        return {"id": "x", "sha": self.commit, "siblings": [self.sibling(path) for path in self.files]}

    def sibling(self, path):
        data = self.files[path]
        entry = {"rfilename": path, "size": len(data), "blobId": git_hash(data)}
        if len(data) >= LARGE:
            digest = sha256(data).hexdigest()
            entry["lfs"] = {"size": len(data), "sha256": digest, "pointerSize": 130}
        return {**entry, **self.listed.get(path, {})}


def git_hash(data):
    return sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """`repos` by name; `faults` by file name, one for each answer until none is left; `log` of requests."""

    def __init__(self):
        self.repos, self.faults, self.log = {}, {}, []
        self._servers = [self._serve(_Handler), self._serve(_Handler)]
        self.url, self.cdn = (f"http://127.0.0.1:{server.server_address[1]}" for server in self._servers)

    def _serve(self, handler):
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads, server.hub = True, self
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def close(self):
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def fetched(self, path):
        """The requests for a file's bytes: their Range headers, None for the whole file."""
        return [
            headers.get("Range") for where, headers in self.log if where.endswith(path) and "cdn" in where
        ]

    def paths(self):
        return [where for where, _ in self.log]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        hub.log.append((path, self.headers))
        with suppress(BrokenPipeError, ConnectionResetError):
            if path.startswith("/api/models/"):
                self._api(hub, path.removeprefix("/api/models/"))
            elif path.startswith("/cdn/"):
                repo, _, file = path.removeprefix("/cdn/").partition("//")
                self._bytes(hub, hub.repos[repo], file)
            elif "/resolve/" in path:
                self._resolve(hub, path)
            else:
                self._answer(404, {"X-Error-Code": "RepoNotFound"})

    def _api(self, hub, path):
        name, _, revision = path.partition("/revision/")
        repo = hub.repos.get(name)
        if fault := self._fault(hub, "api"):
            return self._broken(fault)
        if repo is None:
            return self._answer(404, {"X-Error-Code": "RepoNotFound"})
        if repo.status != 200:
            return self._answer(repo.status, {"X-Error-Code": repo.error} if repo.error else {})
        if revision not in (*repo.revisions, repo.commit):
            return self._answer(404, {"X-Error-Code": "RevisionNotFound"})
        return self._answer(200, {"Content-Type": "application/json"}, json.dumps(repo.info()).encode())

    def _resolve(self, hub, path):
        name, _, rest = path[1:].partition("/resolve/")
        commit, _, file = rest.partition("/")
        repo = hub.repos[name]
        if commit != repo.commit or file not in repo.files:
            return self._answer(404, {"X-Error-Code": "EntryNotFound"})
        data = repo.files[file]
        headers = {"X-Repo-Commit": repo.commit, "ETag": f'"{git_hash(data)}"'}
        if len(data) < LARGE:
            return self._bytes(hub, repo, file, headers)
        linked = {"X-Linked-Size": str(len(data)), "X-Linked-Etag": f'"{sha256(data).hexdigest()}"'}
        return self._answer(302, {**headers, **linked, "Location": f"{hub.cdn}/cdn/{name}//{file}"})

    def _bytes(self, hub, repo, file, headers=()):
        data, status, headers = repo.files[file], 200, dict(headers)
        fault = self._fault(hub, file) or Fault()
        if fault.status:
            return self._broken(fault)
        data = data if fault.body is None else fault.body
        wanted = self.headers.get("Range")
        if wanted and not fault.no_range:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            if begin >= len(data):
                return self._answer(416, {})
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
            data, status = data[begin:], 206
        return self._answer(status, headers, data, fault)

    def _fault(self, hub, key):
        faults = hub.faults.get(key, [])
        return faults.pop(0) if faults else None

    def _broken(self, fault):
        if fault.wait:
            threading.Event().wait(fault.wait)
        self._answer(fault.status or 200, fault.headers, fault.body or b"")

    def _answer(self, status, headers, data=b"", fault=None):
        fault = fault or Fault()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data)), **fault.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if fault.wait:
            threading.Event().wait(fault.wait)
        if fault.slow:
            for half in (data[: len(data) // 2], data[len(data) // 2 :]):
                self.wfile.write(half)
                self.wfile.flush()
                threading.Event().wait(fault.slow)
            return
        self.wfile.write(data[: fault.cut])
        if fault.cut is not None:
            self.close_connection = True
            self.wfile.flush()
            self.connection.close()
