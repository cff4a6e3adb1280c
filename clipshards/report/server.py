"""The page over all examples, for this machine only.

    GET /                                                          the page
    GET /api/examples?category=J3&offset=0&limit=1                 {total, offset, examples, videos, counts}

Any of `explorer.FIELDS` may be named, each with one value. Nothing of a request names a file. A page of another
site cannot read the answers: only requests to a name of loopback are served, and no answer allows another origin.
"""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from clipshards.errors import UsageError
from clipshards.report.explorer import FIELDS, Explorer, Json, Thumbnails
from clipshards.report.page import policy, render_served

HOST = "127.0.0.1"
MAX_LIMIT = 20
"""Most examples of an answer."""

_THUMBNAILS = Thumbnails(12, 240, 70)
_SECONDS = 30.0
_NUMBERS = {"offset": (0, 2**31 - 1), "limit": (1, MAX_LIMIT)}


class PageServer:
    """Serves the page of a snapshot on loopback, from `with` on until its end.

    Args:
        port: 0 lets the system choose one.

    Raises:
        UsageError: the port cannot be had.
    """

    def __init__(self, snapshot: Path, *, port: int) -> None:
        try:
            self._server = _Server((HOST, port), _Handler)
        except OSError as error:
            raise UsageError(f"cannot listen on {HOST}:{port} ({error.strerror}): choose another --port") from None
        self._server.explorer = Explorer(snapshot)
        self._server.page = render_served(snapshot, self._server.explorer).encode()
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Of the page."""
        return f"http://{HOST}:{self._server.server_port}/"

    def __enter__(self) -> PageServer:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    explorer: Explorer
    page: bytes


class _Refusal(Exception):
    """An answer that is an error, with its sentence."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "clipshards", ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        try:
            self._require_own_host()
            url = urlsplit(self.path)
            if url.path == "/":
                self._answer(HTTPStatus.OK, "text/html; charset=utf-8", cast(_Server, self.server).page)
            elif url.path == "/api/examples":
                self._answer_json(HTTPStatus.OK, self._examples(url.query))
            else:
                raise _Refusal(HTTPStatus.NOT_FOUND, "there is only / and /api/examples")
        except _Refusal as refusal:
            self._answer_json(refusal.status, {"error": str(refusal)})

    def _refuse_method(self) -> None:
        self._answer_json(HTTPStatus.METHOD_NOT_ALLOWED, {"error": f"{self.command} is not served, only GET"})

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse_method

    def _require_own_host(self) -> None:
        """A name that somebody points at 127.0.0.1 makes his page ours for the browser, but for this header."""
        port = cast(_Server, self.server).server_port
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            raise _Refusal(HTTPStatus.FORBIDDEN, f"only requests to {HOST}:{port} are served")

    def _examples(self, query: str) -> Json:
        explorer = cast(_Server, self.server).explorer
        numbers, wanted = _parse(query)
        found = explorer.find(wanted)
        offset = numbers["offset"]
        shown = explorer.show(found[offset : offset + numbers["limit"]], _THUMBNAILS)
        return {"total": len(found), "offset": offset, **shown, "counts": explorer.count(wanted)}

    def _answer_json(self, status: HTTPStatus, body: Any) -> None:
        self._answer(status, "application/json", json.dumps(body).encode())

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy(served=True) + "; frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are nobody's business."""


def _parse(query: str) -> tuple[dict[str, int], dict[str, str]]:
    """(offset and limit, what is wanted of the fields)."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=10)
    except ValueError as error:
        raise _Refusal(HTTPStatus.BAD_REQUEST, f"the query cannot be read ({error})") from None
    numbers, wanted = {"offset": 0, "limit": 1}, {}
    for name, value in pairs:
        if name in FIELDS:
            wanted[name] = value
        elif name in _NUMBERS:
            numbers[name] = _parse_number(name, value)
        else:
            known = ", ".join([*FIELDS, *_NUMBERS])
            raise _Refusal(HTTPStatus.BAD_REQUEST, f"{name!r} must be one of {known}")
    return numbers, wanted


def _parse_number(name: str, value: str) -> int:
    least, most = _NUMBERS[name]
    if not (value.isascii() and value.isdigit() and len(value) <= 10 and least <= int(value) <= most):
        raise _Refusal(HTTPStatus.BAD_REQUEST, f"{name} ({value!r}) must be a whole number from {least} to {most}")
    return int(value)
