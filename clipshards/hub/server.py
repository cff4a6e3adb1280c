"""A local folder spoken as a Hub: for the demo, for tests, and for sites without a network.

Two listeners on two ports, thus two origins, as on the real Hub: the Hub itself, and the storage server
("CDN") to which it sends a client for files in LFS, with a signed URL and without the token.
Plain HTTP, no Xet.

    GET  /api/datasets/R[/revision/REV]               commit, files
    GET  /api/datasets/R/tree/REV[/FOLDER]            rows of files and folders, in pages
    POST /api/datasets/R/paths-info/REV               rows of the paths asked for
    HEAD, GET /datasets/R/resolve/REV/PATH            the file, or 302 to the CDN
    HEAD, GET /lfs/SHA256/PATH?signature=…            the file (on the CDN)
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import secrets
import socketserver
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import parse_qs, quote, unquote, urlsplit

from clipshards.errors import UsageError
from clipshards.hub.listing import HubFile, hash_file, list_source
from clipshards.hub.source import FolderSource

LFS_MIN_BYTES = 10 * 1024
BRANCH = "main"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedFile:
    """One file of a commit, and where its bytes are."""

    path: str
    local: Path
    size_bytes: int
    mtime_ns: int
    sha256: str
    oid: str
    """Git blob hash of what git keeps: the content, or the pointer text of a file in LFS."""
    pointer_bytes: int
    """Length of the pointer text, 0 for a file that is not in LFS."""

    @property
    def in_lfs(self) -> bool:
        return self.pointer_bytes > 0

    def row(self, *, expand: bool) -> dict[str, Any]:
        """The file as the listing shows it."""
        row: dict[str, Any] = {"type": "file", "path": self.path, "size": self.size_bytes, "oid": self.oid}
        if self.in_lfs:
            row["lfs"] = {"oid": self.sha256, "size": self.size_bytes, "pointerSize": self.pointer_bytes}
        if expand:
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(self.mtime_ns // 10**9))
            row["lastCommit"] = {"id": self.oid, "title": "published", "date": when}
        return row


class Refusal(Exception):
    """An answer that is an error: status, `X-Error-Code` and a text for the user of the client."""

    def __init__(self, status: int, code: str = "", message: str = "", **headers: str) -> None:
        super().__init__(message)
        self.status = status
        named = {"X-Error-Code": code, "X-Error-Message": message}
        self.headers = {name: value for name, value in named.items() if value} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }


class HubServer:
    """Serves `folder` as data set `repo`, from `with` on until its end.

    Args:
        folder: its files, without hidden ones, are hashed here and are the first commit.
        repo: OWNER/NAME under which it is served.
        token: None serves everybody; otherwise only requests with this token.
        gated: the listing is open, files are for the token only; without a token for nobody.
        host: the address to listen on; any other than the default opens the server to other machines.
        port: of the Hub, the CDN takes the next one; 0 lets the system choose both.

    Raises:
        UsageError: the folder does not exist, or a port is in use (when `with` is entered).
        SourceError: the folder holds no files, or one cannot be read.
    """

    page_rows = 1000
    """Rows of a page of the tree."""

    def __init__(
        self,
        folder: Path,
        *,
        repo: str = "demo/GRASP",
        token: str | None = None,
        gated: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.folder, self.repo, self.token, self.gated = folder, repo, token, gated
        self.host, self.port = host, port
        self.hub_handler: type[HubHandler] = HubHandler
        self.cdn_handler: type[CdnHandler] = CdnHandler
        self.commit = ""
        self._commits: dict[str, dict[str, ServedFile]] = {}
        self._in_lfs: dict[str, ServedFile] = {}
        self._secret = secrets.token_bytes(16)
        self._open = ExitStack()
        self.publish(folder)

    def publish(self, folder: Path | None = None) -> str:
        """Move the branch to the present files of `folder` (None: the first one); return the commit.

        Older commits stay served as long as their files stay as they were: publish another folder to keep
        them all. The commit is a hash of paths and contents, so the same files are the same commit.

        Raises:
            UsageError: the folder does not exist.
            SourceError: the folder holds no files, or one cannot be read.
        """
        folder = folder or self.folder
        if not folder.is_dir():
            raise UsageError(f"folder ({folder}) must exist to be served: check the path")
        listing = list_source(FolderSource(folder))
        files = [_served_file(folder, file) for file in listing.files]
        contents = json.dumps([(file.path, file.sha256) for file in files])
        commit = hashlib.sha1(contents.encode(), usedforsecurity=False).hexdigest()
        self._in_lfs.update((file.sha256, file) for file in files if file.in_lfs)
        self._commits[commit] = {file.path: file for file in files}
        self.commit = commit
        return commit

    def __enter__(self) -> HubServer:
        with ExitStack() as stack:
            self._hub = stack.enter_context(_Listener(self, self.port, self.hub_handler))
            cdn_port = self.port + 1 if self.port else 0
            self._cdn = stack.enter_context(_Listener(self, cdn_port, self.cdn_handler))
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def endpoint(self) -> str:
        """The URL to give a client as HF_ENDPOINT."""
        return f"http://{self.host}:{self._hub.server_port}"

    @property
    def cdn_port(self) -> int:
        """The port of the second origin."""
        return self._cdn.server_port

    def files(self, revision: str) -> tuple[str, dict[str, ServedFile]]:
        """The commit that `revision` names, and its files by path.

        Raises:
            Refusal: there is no such revision.
        """
        commit = self.commit if revision == BRANCH else revision
        if commit not in self._commits:
            raise Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit, self._commits[commit]

    def lfs_path(self, file: ServedFile) -> str:
        """The signed URL of a file on the CDN, without the origin."""
        return f"/lfs/{file.sha256}/{quote(file.path)}?signature={self._signature(file.sha256)}"

    def file_in_lfs(self, sha256: str, signature: str) -> ServedFile:
        """The file that a signed URL names.

        Raises:
            Refusal: the signature is not ours.
        """
        if not hmac.compare_digest(signature.encode(), self._signature(sha256).encode()):
            raise Refusal(403, message="The signature of the URL is not valid")
        return self._in_lfs[sha256]

    def _signature(self, sha256: str) -> str:
        return hmac.new(self._secret, sha256.encode(), hashlib.sha256).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """What both origins share: answers, errors, files and ranges of files.

    A subclass that misbehaves on purpose overrides `answer`, `wanted_range` or `send_bytes`.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 120
    """Seconds after which a silent connection is closed."""
    origin: ClassVar[str]

    @property
    def hub(self) -> HubServer:
        return cast(_Listener, self.server).hub

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        try:
            self.answer([unquote(part) for part in url.path.strip("/").split("/")])
        except Refusal as refusal:
            self.send_json({"error": str(refusal)}, status=refusal.status, headers=refusal.headers)

    do_HEAD = do_GET
    do_POST = do_GET

    def answer(self, path: list[str]) -> None:
        """Answer the request for a path, given in its parts; raise Refusal for an error."""
        raise NotImplementedError

    def send_json(self, content: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send an answer of JSON."""
        body = json.dumps(content).encode()
        self.send_head(status, {"Content-Type": "application/json"} | dict(headers or {}), len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_head(self, status: int, headers: Mapping[str, str], body_bytes: int) -> None:
        """Send the status line and the headers."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(body_bytes))
        self.end_headers()

    def send_file(self, file: ServedFile, headers: Mapping[str, str]) -> None:
        """Send a file, or the range of it that is asked for."""
        status = file.local.stat() if file.local.is_file() else None
        if status is None or (status.st_size, status.st_mtime_ns) != (file.size_bytes, file.mtime_ns):
            raise Refusal(404, "EntryNotFound", f"{file.path} was changed on the disk since it was published")
        window = self.wanted_range(file.size_bytes)
        start, end = window or (0, file.size_bytes)
        sent = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"} | dict(headers)
        if window:
            sent["Content-Range"] = f"bytes {start}-{end - 1}/{file.size_bytes}"
        self.send_head(HTTPStatus.PARTIAL_CONTENT if window else HTTPStatus.OK, sent, end - start)
        if self.command != "HEAD":
            self.send_bytes(file, start, end)

    def wanted_range(self, size_bytes: int) -> tuple[int, int] | None:
        """The range [start, end) of the request; None for all, also for forms that are not spoken here."""
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if match is None:
            return None
        start, end = int(match[1]), min(int(match[2] or size_bytes) + bool(match[2]), size_bytes)
        if start >= end:
            raise Refusal(416, message="No such range", Content_Range=f"bytes */{size_bytes}")
        return start, end

    def send_bytes(self, file: ServedFile, start: int, end: int) -> None:
        """Send the bytes [start, end) of a file as the body."""
        if start < end:
            with file.local.open("rb") as stream:
                self.connection.sendfile(stream, start, end - start)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet: a request line is no news."""


class HubHandler(Handler):
    """The Hub itself."""

    origin = "hub"

    def answer(self, path: list[str]) -> None:
        match path:
            case ["api", "datasets", owner, name]:
                self._send_info(f"{owner}/{name}", BRANCH)
            case ["api", "datasets", owner, name, "revision", revision]:
                self._send_info(f"{owner}/{name}", revision)
            case ["api", "datasets", owner, name, "tree", revision, *folder]:
                self._send_tree(f"{owner}/{name}", revision, "/".join(folder))
            case ["api", "datasets", owner, name, "paths-info", revision]:
                self._send_paths_info(f"{owner}/{name}", revision)
            case ["datasets", owner, name, "resolve", revision, *parts] if parts:
                self._send_resolved(f"{owner}/{name}", revision, "/".join(parts))
            case _:
                raise Refusal(404, message="Not spoken by this Hub")

    def _send_info(self, repo: str, revision: str) -> None:
        self._require_access(repo)
        commit, files = self.hub.files(revision)
        self.send_json(
            {
                "_id": commit[:24],
                "id": repo,
                "sha": commit,
                "private": self.hub.token is not None and not self.hub.gated,
                "gated": "auto" if self.hub.gated else False,
                "siblings": [{"rfilename": path} for path in files],
                "tags": [],
                "downloads": 0,
                "likes": 0,
            }
        )

    def _send_tree(self, repo: str, revision: str, folder: str) -> None:
        self._require_access(repo)
        _, files = self.hub.files(revision)
        recursive, expand = (_is_true(self.query.get(name)) for name in ("recursive", "expand"))
        rows = list(_tree_rows(files, folder, recursive=recursive, expand=expand))
        if folder and not rows:
            raise Refusal(404, "EntryNotFound", f"No folder {folder} at {revision}")
        cursor = self.query.get("cursor", "0")
        start = int(cursor) if cursor.isdecimal() else 0
        end = start + self.hub.page_rows
        headers = {}
        if end < len(rows):
            page = f"{urlsplit(self.path).path}?recursive={recursive}&expand={expand}&cursor={end}"
            headers["Link"] = f'<http://{self.headers["Host"]}{page}>; rel="next"'
        self.send_json(rows[start:end], headers=headers)

    def _send_paths_info(self, repo: str, revision: str) -> None:
        self._require_access(repo)
        _, files = self.hub.files(revision)
        form = parse_qs(self.body.decode())
        expand = _is_true(form.get("expand", [""])[0])
        paths = [path.strip("/") for path in form.get("paths", [])]
        rows = [files[path].row(expand=expand) for path in paths if path in files]
        folders = [path for path in paths if any(known.startswith(f"{path}/") for known in files)]
        self.send_json(rows + [_folder_row(path, expand=expand) for path in folders])

    def _send_resolved(self, repo: str, revision: str, path: str) -> None:
        self._require_access(repo, to_files=True)
        commit, files = self.hub.files(revision)
        if path not in files:
            raise Refusal(404, "EntryNotFound", "Entry not found", X_Repo_Commit=commit)
        file = files[path]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{file.oid}"'}
        if not file.in_lfs:
            self.send_file(file, headers)
            return
        # The client reached this machine under the name in `Host`, so it will reach the other port there too.
        host = urlsplit(f"//{self.headers['Host']}").hostname
        headers |= {
            "Location": f"http://{host}:{self.hub.cdn_port}{self.hub.lfs_path(file)}",
            "X-Linked-ETag": f'"{file.sha256}"',
            "X-Linked-Size": str(file.size_bytes),
        }
        self.send_json({}, status=HTTPStatus.FOUND, headers=headers)

    def _require_access(self, repo: str, *, to_files: bool = False) -> None:
        hub, authorization = self.hub, self.headers.get("Authorization") or ""
        knows = hmac.compare_digest(authorization.encode(), f"Bearer {hub.token}".encode())
        known = hub.token is not None and knows
        if repo != hub.repo:
            raise Refusal(404 if authorization else 401, "RepoNotFound", "Repository not found")
        if hub.gated:
            if to_files and not known:
                raise Refusal(403 if authorization else 401, "GatedRepo", f"Access to {repo} is restricted")
        elif hub.token is not None and not known:
            if not authorization:
                raise Refusal(401, "RepoNotFound", "Repository not found")
            raise Refusal(401, message="Invalid credentials in Authorization header")


class CdnHandler(Handler):
    """The storage server that the Hub sends clients to."""

    origin = "cdn"

    def answer(self, path: list[str]) -> None:
        match path:
            case ["lfs", sha256, *_]:
                file = self.hub.file_in_lfs(sha256, self.query.get("signature", ""))
                self.send_file(file, {"ETag": f'"{sha256}"'})
            case _:
                raise Refusal(404)


class _Listener(ThreadingHTTPServer):
    """One origin: a port, and the thread that accepts its connections."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hub: HubServer, port: int, handler: type[Handler]) -> None:
        self.hub = hub
        try:
            super().__init__((hub.host, port), handler)
        except OSError as error:
            raise UsageError(
                f"port ({port}) of {hub.host} cannot be listened on ({error.strerror}): choose another one"
            ) from None

    def server_bind(self) -> None:
        """As in the base class, but without asking the DNS for our own name: that can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.hub.host, self.socket.getsockname()[1]

    def __enter__(self) -> _Listener:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is usual; anything else is a fault of ours."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            _log.exception("a request failed")


def _served_file(folder: Path, file: HubFile) -> ServedFile:
    local = folder.resolve() / file.path
    mtime_ns = local.stat().st_mtime_ns
    sha256 = hash_file(local)
    if file.path.endswith(".tar") or file.size_bytes >= LFS_MIN_BYTES:
        in_git = (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {file.size_bytes}\n"
        ).encode()
        pointer_bytes = len(in_git)
    else:
        in_git, pointer_bytes = local.read_bytes(), 0
    oid = hashlib.sha1(b"blob %d\0" % len(in_git) + in_git, usedforsecurity=False).hexdigest()
    return ServedFile(file.path, local, file.size_bytes, mtime_ns, sha256, oid, pointer_bytes)


def _tree_rows(
    files: Mapping[str, ServedFile], folder: str, *, recursive: bool, expand: bool
) -> Iterable[dict[str, Any]]:
    """Rows of a folder, or with `recursive` of all below it, each folder before what it holds."""
    prefix = f"{folder.strip('/')}/" if folder else ""
    seen = set()
    for path, file in files.items():
        if not path.startswith(prefix):
            continue
        parts = path[len(prefix) :].split("/")
        for depth in range(1, len(parts) if recursive else min(2, len(parts))):
            parent = prefix + "/".join(parts[:depth])
            if parent not in seen:
                seen.add(parent)
                yield _folder_row(parent, expand=expand)
        if recursive or len(parts) == 1:
            yield file.row(expand=expand)


def _folder_row(path: str, *, expand: bool) -> dict[str, Any]:
    oid = hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()
    row: dict[str, Any] = {"type": "directory", "path": path, "size": 0, "oid": oid}
    if expand:
        row["lastCommit"] = {"id": oid, "title": "published", "date": "1970-01-01T00:00:00.000Z"}
    return row


def _is_true(text: str | None) -> bool:
    return (text or "").lower() in ("1", "true")
