"""The command line as a user meets it: one clear sentence, the right exit code, never a traceback."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clipshards.decode.choice import choose_decoder
from clipshards.hub.server import HubServer
from manifests.lock import hold_output

CLIPSHARDS = Path(sys.executable).with_name("clipshards")
COMMANDS = ("demo", "plan", "prepare", "refresh", "verify", "report", "gc", "score", "doctor", "serve")
ROOT = Path(__file__).parents[1]


def call(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(CLIPSHARDS), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", **environment},
    )


def require_error(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith("clipshards:")]
    assert len(lines) == 1
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_and_an_example(command: str) -> None:
    done = call(command, "--help")
    assert done.returncode == 0 and f"Example: clipshards {command}" in done.stdout
    for option in re.findall(r"^ +--\S+.*$", done.stdout, re.MULTILINE):
        assert len(option.split()) > 2, f"{option} has no help"


def test_the_command_reference_is_up_to_date(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts/cli-docs", tmp_path / "cli.md"], check=True)
    assert (tmp_path / "cli.md").read_text() == (ROOT / "docs/cli.md").read_text()


def test_a_missing_folder(tmp_path: Path) -> None:
    require_error(call("prepare", tmp_path / "none", tmp_path / "out"), 2, "does not exist", "hf://datasets/")


def test_a_wrong_url(tmp_path: Path) -> None:
    done = call("prepare", "https://example.org/datasets/a/b", tmp_path / "out")
    require_error(done, 2, "write hf://datasets/a/b")


def test_a_quality_out_of_range(demo_source: Path, tmp_path: Path) -> None:
    require_error(call("prepare", demo_source, tmp_path / "out", "--quality", "300"), 2, "300", "1–100")


@pytest.mark.parametrize("command", ["prepare", "demo"])
def test_a_decoder_that_cannot_be_had(demo_source: Path, tmp_path: Path, command: str) -> None:
    arguments = [demo_source, tmp_path / "out"] if command == "prepare" else [tmp_path / "out"]
    require_error(call(command, *arguments, "--decoder", "nvdec"), 2, "'nvdec'", "cuda", "ffmpeg")
    if choose_decoder("auto").decoder != "cuda":
        require_error(call(command, *arguments, "--decoder", "cuda"), 2, "--decoder cuda", "--decoder auto")
    assert not (tmp_path / "source").exists()


def test_an_unknown_transport(demo_source: Path, tmp_path: Path) -> None:
    require_error(call("prepare", demo_source, tmp_path / "out", "--transport", "ftp"), 2, "'ftp'", "http, xet")


def test_an_output_that_cannot_be_written(demo_source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    require_error(call("prepare", demo_source, tmp_path / "file" / "out"), 2, "cannot be written")


def test_a_home_that_cannot_be_written(demo_source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    done = call("prepare", demo_source, tmp_path / "out", PREFECT_HOME=str(tmp_path / "file" / "home"))
    require_error(done, 2, "set PREFECT_HOME")


def test_an_output_in_use(demo_source: Path, tmp_path: Path) -> None:
    with hold_output(tmp_path / "out"):
        require_error(call("prepare", demo_source, tmp_path / "out"), 6, "in use", str(os.getpid()))


def test_a_hub_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = call("plan", "hf://datasets/demo/GRASP", tmp_path / "out", HF_ENDPOINT=endpoint)
    require_error(done, 3, endpoint)


def test_no_token_for_a_gated_data_set(demo_source: Path, tmp_path: Path) -> None:
    with HubServer(demo_source, token="secret-of-the-test", gated=True) as hub:
        without = call("prepare", "hf://datasets/demo/GRASP", tmp_path / "out", HF_ENDPOINT=hub.endpoint)
        other = call(
            "prepare", "hf://datasets/demo/GRASP", tmp_path / "out", HF_ENDPOINT=hub.endpoint, HF_TOKEN="other"
        )
    require_error(without, 3, "HF_TOKEN")
    require_error(other, 3, "terms")


def test_nothing_to_verify(tmp_path: Path) -> None:
    require_error(call("verify", tmp_path), 2, "clipshards prepare")


@pytest.mark.flow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_is_done(demo_source: Path, tmp_path: Path, sign: signal.Signals) -> None:
    out = tmp_path / "out"
    source = tmp_path / "a source; of 'clips'"
    source.symlink_to(demo_source)
    command = [str(CLIPSHARDS), "prepare", str(source), str(out), "--workers", "1"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90
    while not list(out.glob("work/shards/train/*.tar")) and time.monotonic() < deadline:
        time.sleep(0.02)
    run.send_signal(sign)
    stdout, stderr = run.communicate(timeout=60)
    kept = {path: path.stat().st_mtime_ns for path in out.glob("work/shards/*/*.json")}
    words = ("interrupted. Kept: ", f"{len(kept)} shards finished (")
    require_error(subprocess.CompletedProcess(command, run.returncode, stdout, stderr), 130, *words)
    assert kept and not (out / "current").exists()
    told = stderr.splitlines()[-1].partition("To go on: ")[2]
    assert shlex.split(told) == command
    assert subprocess.run(told, shell=True, capture_output=True).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


@pytest.mark.flow
def test_a_full_disk(demo_source: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        done = call("prepare", demo_source, disk / "out")
        require_error(done, 7, "disk is full", "Kept: ", f"To go on: {CLIPSHARDS} prepare {demo_source}")
        assert list(disk.glob("out/work/shards/train/*.json"))
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.flow
def test_a_part_that_failed(demo_source: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(demo_source, source)
    part = source / "train/videos/avsbench_part000.tar"
    whole = part.read_bytes()
    part.write_bytes(whole[:1000])
    done = call("prepare", source, tmp_path / "out", "--max-rejected", "1")
    require_error(done, 4, "1 part(s) failed", "Kept: ", "shards finished", "To go on: ")
    part.write_bytes(whole)
    told = done.stderr.splitlines()[-1].partition("To go on: ")[2]
    assert subprocess.run(told, shell=True, capture_output=True).returncode == 0
