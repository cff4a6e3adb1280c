"""A Hub that misbehaves on purpose: faults are queued for a place, and each request there takes one."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from clipshards.hub.server import CdnHandler, Handler, HubHandler, HubServer, Refusal, ServedFile

Kind = Literal["status", "html", "cut", "reset", "stall", "hang", "corrupt", "short", "norange", "pointer"]
Where = Literal["api", "hub", "cdn"]


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    """Make a folder of small files; return it."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


@dataclass(frozen=True)
class Fault:
    """What happens to one request."""

    kind: Kind
    num_bytes: int = 0
    """cut, reset, stall: after so many bytes of the body; short: so many bytes less."""
    seconds: float = 0.0
    """stall: for how long; hang: so long without an answer, then the connection is closed."""
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """One line of the log of all requests to both origins."""

    where: Where
    method: str
    path: str
    range: str | None
    authorization: str | None


class FaultyHub(HubServer):
    """`queue` faults for ("hub" or "cdn", path of a file) or ("api", "revision" | "tree")."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.hub_handler, self.cdn_handler = FaultyHubHandler, FaultyCdnHandler
        self.log: list[Request] = []
        self._faults: dict[tuple[Where, str], deque[Fault]] = defaultdict(deque)
        self._lock = threading.Lock()

    def queue(self, where: Where, path: str, *faults: Fault) -> None:
        self._faults[where, path].extend(faults)

    def take(self, request: Request) -> Fault | None:
        with self._lock:
            self.log.append(request)
            faults = self._faults[request.where, request.path]
            return faults.popleft() if faults else None

    def requests(self, where: Where, path: str, method: str = "GET") -> list[Request]:
        return [line for line in self.log if (line.where, line.path, line.method) == (where, path, method)]

    def ranges(self, where: Where, path: str) -> list[str | None]:
        """The `Range` header of each GET, in order."""
        return [request.range for request in self.requests(where, path)]


class _Faults(Handler):
    """The override points of `Handler`, with the fault of the request in hand."""

    fault: Fault | None

    @property
    def kind(self) -> Kind | None:
        return self.fault.kind if self.fault else None

    def answer(self, path: list[str]) -> None:
        where, name = _place(self.origin, path)
        headers = self.headers
        request = Request(where, self.command, name, headers.get("Range"), headers.get("Authorization"))
        self.fault = cast(FaultyHub, self.hub).take(request)
        if self.fault and self.kind == "status":
            raise Refusal(self.fault.status, message="injected", **self.fault.headers)
        if self.kind == "html":
            self._send_text(b"<html>please log in</html>", "text/html")
        elif self.fault and self.kind == "hang":
            self._break_off(self.fault)
        elif self.kind == "pointer":
            text = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n"
            self._send_text(text, "text/plain")
        else:
            super().answer(path)

    def _send_text(self, body: bytes, content_type: str) -> None:
        self.send_head(200, {"Content-Type": content_type}, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def wanted_range(self, size_bytes: int) -> tuple[int, int] | None:
        return None if self.kind == "norange" else super().wanted_range(size_bytes)

    def send_head(self, status: int, headers: Any, body_bytes: int) -> None:
        short_bytes = self.fault.num_bytes if self.fault and self.kind == "short" else 0
        super().send_head(status, headers, body_bytes - short_bytes)

    def send_json(self, content: object, *, status: int = 200, headers: Any = None) -> None:
        if self.fault is None or self.kind not in ("cut", "reset", "stall", "short") or self.command == "HEAD":
            super().send_json(content, status=status, headers=headers)
            return
        body = json.dumps(content).encode()
        end = len(body) - self.fault.num_bytes if self.kind == "short" else self.fault.num_bytes
        self.send_head(status, {"Content-Type": "application/json", **(headers or {})}, len(body))
        self.wfile.write(body[:end])
        if self.kind != "short":
            self._break_off(self.fault)

    def send_bytes(self, file: ServedFile, start: int, end: int) -> None:
        fault = self.fault
        if fault is None or fault.kind == "norange":
            super().send_bytes(file, start, end)
        elif fault.kind == "short":
            super().send_bytes(file, start, end - fault.num_bytes)
        elif fault.kind == "corrupt":
            body = bytearray(file.local.read_bytes()[start:end])
            body[len(body) // 2] ^= 1
            self.wfile.write(body)
        else:
            super().send_bytes(file, start, min(end, start + fault.num_bytes))
            self._break_off(fault)

    def _break_off(self, fault: Fault) -> None:
        time.sleep(fault.seconds)
        self.close_connection = True
        if fault.kind == "reset":
            # Linger of zero seconds: close sends RST. `rfile` and `wfile` hold the descriptor open.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.rfile.close()
            self.connection.close()


class FaultyHubHandler(_Faults, HubHandler):
    pass


class FaultyCdnHandler(_Faults, CdnHandler):
    pass


def _place(origin: str, path: list[str]) -> tuple[Where, str]:
    match path:
        case ["lfs", _, *parts]:
            return "cdn", "/".join(parts)
        case ["datasets", _, _, "resolve", _, *parts]:
            return "hub", "/".join(parts)
        case ["api", "datasets", _, _, verb, *_]:
            return "api", verb
    return cast(Where, origin), "/".join(path)
