"""The real thing on loopback: a Prefect server, a process pool, a worker; deploy, run, refresh by schedule, cancel.

Everything lives in one folder and ends with the test. What the user does is done with the commands of
docs/deploy.md, what came of it is asked of the server's API.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import ffmpeg
import imageio_ffmpeg
import pyarrow.parquet as pq
import pytest

from tests.hub_faults import FaultyHub
from tests.media import ENCODED, encode

pytestmark = pytest.mark.deploy

ROOT = Path(__file__).parents[1]
REPO = "interlive/GRASP"
SOURCE = f"hf://datasets/{REPO}"
SECONDS = 100.0
"""For one step, on a slow machine."""


class Site:
    """Server, pool and worker of the test. `poll` also looks whether a process shows the token to all."""

    def __init__(self, folder: Path, endpoint: str, token: str) -> None:
        self.folder, self.token = folder, token
        self.port = _free_port()
        self.shown: set[str] = set()
        (folder / "tmp").mkdir()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PREFECT", "HF_"))},
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": f"http://127.0.0.1:{self.port}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_CLI_PROMPT": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HOME": str(folder / "hf"),
            "HF_ENDPOINT": endpoint,
            "CLIPSHARDS_OUT": str(folder / "out"),
            "TMPDIR": str(folder / "tmp"),
            "COLUMNS": "200",
        }

    @contextmanager
    def process(self, name: str, *arguments: str, **environment: str) -> Iterator[int]:
        """A `prefect` that goes on, in a group of its own; its id. All of the group is ended in the end."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "prefect", *arguments],
                stdout=log, stderr=log, cwd=ROOT, env={**self.environment, **environment}, start_new_session=True,
            )  # fmt: skip
        try:
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def end(self) -> None:
        """Whatever is still there; what is left of a run after a failure."""
        for number in self.processes():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def prefect(self, *arguments: str) -> str:
        """What a user types; its output."""
        command = [sys.executable, "-m", "prefect", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=self.environment
        )
        assert done.returncode == 0, f"prefect {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def run(self, **parameters: Any) -> str:
        """Ask for a run of `prepare`; its id."""
        said = self.prefect("deployment", "run", "prepare/prepare", "--params", json.dumps(parameters))
        return self.id_in(said)

    @staticmethod
    def id_in(said: str) -> str:
        """The id of the run that was asked for."""
        found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", said)
        assert found, said
        return found[0]

    def api(self, path: str, **body: Any) -> Any:
        """An answer of the server: GET, or POST with a body."""
        request = urllib.request.Request(f"{self.environment['PREFECT_API_URL']}/{path}")
        if body:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def is_up(self) -> bool:
        try:
            return bool(self.api("health"))
        except OSError:
            return False

    def wait_for_state(self, run: str, state: str) -> dict[str, Any]:
        """The run when it has ended, which must be in `state`."""
        self.poll(
            lambda: self.api(f"flow_runs/{run}")["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
        )
        ended: dict[str, Any] = self.api(f"flow_runs/{run}")
        assert ended["state"]["type"] == state, ended["state"]
        return ended

    def poll(self, holds: Callable[[], Any]) -> None:
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"it did not happen within {SECONDS:g} s\n{self.logs()}"
            self.shown |= {line for line in _command_lines() if self.token in line}
            time.sleep(0.2)

    def processes(self) -> dict[int, str]:
        """Processes of this site, by their environment, with their command lines."""
        mark = f"PREFECT_HOME={self.environment['PREFECT_HOME']}".encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = _command_line(folder)
            except OSError:
                continue  # it has ended
        return found

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text()[-6000:]}" for path in sorted(self.folder.glob("*.log"))
        )


def test_deploy_run_refresh_cancel(tmp_path: Path) -> None:
    token = f"hf_{secrets.token_hex(16)}"
    first, second = _source(tmp_path / "first", parts=2), _source(tmp_path / "second", parts=3)
    slow = _slow_source(tmp_path / "slow")
    with ExitStack() as stack:
        hub = stack.enter_context(FaultyHub(first, repo=REPO, token=token, gated=True))
        site = Site(tmp_path, hub.endpoint, token)
        stack.callback(site.end)
        try:
            stack.enter_context(site.process("server", "server", "start", "--port", str(site.port), "--no-ui"))
            site.poll(site.is_up)
            site.prefect("work-pool", "create", "clipshards", "--type", "process")
            site.prefect("--no-prompt", "deploy", "--all")
            worker = ["worker", "start", "--pool", "clipshards"]
            stack.enter_context(site.process("worker", *worker, HF_TOKEN=token))
            _deployments_are_as_written(site)
            _prepare_runs(site, hub)
            _the_schedule_fires(site, hub, second)
            _a_cancelled_run_leaves_nothing_behind(site, slow)
        except BaseException:
            print(site.logs())
            raise
    site.poll(lambda: not site.processes())
    _the_token_is_nowhere(site, hub)


def test_the_server_keeps_its_state_in_postgresql(tmp_path: Path) -> None:
    """What docs/deploy.md advises for more than one worker."""
    debian = [str(path) for path in Path("/usr/lib/postgresql").glob("*/bin")]  # on no PATH
    if not (initdb := shutil.which("initdb", path=os.pathsep.join([os.environ["PATH"], *debian]))):
        pytest.skip("PostgreSQL is not here")
    with ExitStack() as stack:
        port = stack.enter_context(_postgresql(Path(initdb).resolve().parent))
        database = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "prefect"}
        subprocess.run(["createdb", "prefect"], env=database, check=True)
        site = Site(tmp_path, "http://127.0.0.1:9", "hf_none")
        stack.callback(site.end)
        site.environment["PREFECT_API_DATABASE_CONNECTION_URL"] = (
            f"postgresql+asyncpg://prefect:none@127.0.0.1:{port}/prefect"
        )
        stack.enter_context(site.process("server", "server", "start", "--port", str(site.port), "--no-ui"))
        site.poll(site.is_up)
        site.prefect("work-pool", "create", "clipshards", "--type", "process")
        query = ["psql", "-tA", "-c", "SELECT name FROM work_pool", "prefect"]
        assert subprocess.run(query, env=database, check=True, capture_output=True).stdout == b"clipshards\n"
    assert not [*tmp_path.rglob("*.db")]


@contextmanager
def _postgresql(programs: Path) -> Iterator[int]:
    """A server on loopback that trusts everyone there; its port. It does not run as root."""
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as name:
        data, port = Path(name) / "data", _free_port()
        data.mkdir()
        if user:
            shutil.chown(name, user)
            shutil.chown(data, user)
        made = [programs / "initdb", "-D", data, "-U", "prefect", "-A", "trust", "--no-sync"]
        subprocess.run(made, user=user, cwd=name, check=True, stdout=subprocess.DEVNULL)
        command = [programs / "postgres", "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", name]
        with (Path(name) / "log").open("wb") as log:
            server = subprocess.Popen(command, user=user, cwd=name, stdout=log, stderr=log)
        try:
            ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
            deadline = time.monotonic() + SECONDS
            while subprocess.run(ready).returncode:
                assert server.poll() is None and time.monotonic() < deadline, (Path(name) / "log").read_text()
                time.sleep(0.2)
            yield port
        finally:
            server.send_signal(signal.SIGINT)  # it does not wait for its clients
            server.wait(timeout=SECONDS)


def _deployments_are_as_written(site: Site) -> None:
    by_name = {found["name"]: found for found in site.api("deployments/filter", limit=10)}
    assert by_name.keys() == {"prepare", "refresh", "bench"}
    strategies = {
        name: (found["concurrency_options"] or {}).get("collision_strategy") for name, found in by_name.items()
    }
    assert strategies == {"prepare": "ENQUEUE", "refresh": "CANCEL_NEW", "bench": None}
    assert [schedule["active"] for schedule in by_name["refresh"]["schedules"]] == [False]
    assert by_name["refresh"]["schedules"][0]["schedule"]["timezone"] == "Etc/UTC"
    for found in by_name.values():
        for name, field in found["parameter_openapi_schema"]["properties"].items():
            assert field.get("description"), f"{found['name']}: parameter {name} has no description"


def _prepare_runs(site: Site, hub: FaultyHub) -> None:
    said = site.prefect("deployment", "run", "prepare/prepare", "--watch")
    ended = site.wait_for_state(site.id_in(said), "COMPLETED")
    out = site.environment["CLIPSHARDS_OUT"]
    assert ended["name"] == f"prepare {SOURCE} in {out}"
    assert _dataset(site)["commit"] == hub.commit
    assert _num_rows(site, "clips") == 4
    artifacts = {artifact["key"]: artifact for artifact in site.api("artifacts/filter", limit=50)}
    assert artifacts.keys() == {
        f"clipshards-{name}"
        for name in ("fetch", "index", "decode", "run", "totals", "snapshot", "page", "frames", "source")
    }
    assert artifacts["clipshards-page"]["data"].endswith("/report.html)")
    assert artifacts["clipshards-frames"]["data"].startswith("data:image/jpeg;base64,")
    assert float(artifacts["clipshards-decode"]["data"]) == 100
    assert {"what": "clips", "amount": 4} in json.loads(artifacts["clipshards-totals"]["data"])
    assert hub.commit in artifacts["clipshards-source"]["data"]


def _the_schedule_fires(site: Site, hub: FaultyHub, second: Path) -> None:
    """The Hub moves on; the schedule is switched on; what is new is fetched, through one slot."""
    site.prefect("concurrency-limit", "create", "clipshards-downloads", "1")
    site.prefect("concurrency-limit", "create", "clipshards-gpu", "1")
    hub.publish(second)
    hub.log.clear()
    start = (datetime.now(UTC) + timedelta(seconds=15)).isoformat()
    site.prefect(
        "deployment",
        "schedule",
        "create",
        "refresh/refresh",
        "--interval",
        "30",
        "--anchor-date",
        start,
        "--accept-yes",
    )
    assert "interval" in site.prefect("deployment", "schedule", "ls", "refresh/refresh")
    nightly = next(schedule for schedule in _refresh(site)["schedules"] if not schedule["active"])
    site.prefect("deployment", "schedule", "resume", "refresh/refresh", nightly["id"])
    assert all(schedule["active"] for schedule in _refresh(site)["schedules"])
    site.poll(lambda: _dataset(site)["commit"] == hub.commit)
    site.prefect("deployment", "schedule", "clear", "refresh/refresh", "--accept-yes")
    named = {"name": {"any_": ["refresh"]}}
    site.poll(
        lambda: (
            not site.api(
                "flow_runs/filter",
                deployments=named,
                flow_runs={"state": {"type": {"any_": ["RUNNING", "PENDING"]}}},
            )
        )
    )
    ended = site.api("flow_runs/filter", deployments=named, flow_runs={"state": {"type": {"any_": ["COMPLETED"]}}})
    assert ended and all(run["auto_scheduled"] for run in ended)
    assert _num_rows(site, "clips") == 6
    fetched = {request.path for request in hub.log if (request.where, request.method) == ("cdn", "GET")}
    assert fetched == {_part(2)}


def _a_cancelled_run_leaves_nothing_behind(site: Site, slow: Path) -> None:
    out = site.folder / "cancelled"
    before = site.processes().keys()
    run = site.run(source=str(slow), out=str(out), quality=None, workers=2)
    site.poll(lambda: list((out / "work/shards").rglob("*.mp")))
    decoders = [line for line in site.processes().values() if "spawn_main" in line]
    assert len(decoders) == 2
    assert run in site.prefect("flow-run", "ls", "--flow-name", "prepare", "--state", "Running", "--output", "json")
    site.prefect("flow-run", "cancel", run)
    site.wait_for_state(run, "CANCELLED")
    site.poll(lambda: site.processes().keys() <= before)
    # Its decoders died by a signal, which says nothing about their clips: a finished shard has no rejects.
    assert not [receipt for receipt in (out / "work/shards").rglob("*.json") if "died" in receipt.read_text()]


def _the_token_is_nowhere(site: Site, hub: FaultyHub) -> None:
    """The Hub got it; logs, database, artifacts, outputs, command lines and the other origin did not."""
    by_origin = {
        place: {request.authorization for request in hub.log if request.where == place}
        for place in ("api", "hub", "cdn")
    }
    assert f"Bearer {site.token}" in by_origin["api"] & by_origin["hub"]
    assert by_origin["cdn"] == {None}
    assert not site.shown
    files = [path for path in site.folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in files) and any(path.suffix == ".log" for path in files)
    assert [path for path in files if site.token.encode() in path.read_bytes()] == []


def _refresh(site: Site) -> Any:
    return site.api("deployments/name/refresh/refresh")


def _dataset(site: Site) -> Any:
    return json.loads((site.folder / "out/current/dataset.json").read_text())


def _num_rows(site: Site, table: str) -> int:
    return int(pq.read_metadata(site.folder / f"out/current/manifests/{table}.parquet").num_rows)


def _part(number: int) -> str:
    return f"train/videos/avsbench_part{number:03}.tar"


def _source(folder: Path, *, parts: int) -> Path:
    """Two tiny clips a part."""
    return _write_source(folder, encode(folder.with_suffix(".mp4"), **ENCODED["h264_short_gop"][1]), [2] * parts)


def _slow_source(folder: Path) -> Path:
    """A part of many clips that take long as PNG."""
    clip = folder.with_suffix(".mp4")
    card = ffmpeg.input("testsrc=s=1280x720:r=30", f="lavfi", t=10)
    output = card.output(str(clip), pix_fmt="yuv420p", vcodec="libx264", preset="veryfast")
    output.global_args("-v", "error", "-y").run(cmd=imageio_ffmpeg.get_ffmpeg_exe())
    return _write_source(folder, clip, [60])


def _write_source(folder: Path, clip: Path, clips_of_parts: list[int]) -> Path:
    (folder / "train/videos").mkdir(parents=True)
    rows = []
    for part, count in enumerate(clips_of_parts):
        names = [f"avsbench/video/{part}_{number}.mp4" for number in range(count)]
        with tarfile.open(folder / _part(part), "w") as tar:
            for name in names:
                tar.add(clip, name, filter=_plain)
        rows += [
            {"id": name, "video": name, "question": "?", "answer": "x", "format": "open_ended"} for name in names
        ]
    (folder / "train/annotations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same clips are the same part."""
    info.mtime = 0
    return info


def _command_lines() -> list[str]:
    return [_command_line(folder) for folder in Path("/proc").glob("[0-9]*")]


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
