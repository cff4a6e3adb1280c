"""The doctor names what is wrong and what to do; its answer holds no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clipshards import doctor
from clipshards.hub.server import HubServer
from clipshards.hub.source import HubSource

TOKEN = "hf_thisisasecrettoken"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("hub")
    (folder / "a.tar").write_bytes(bytes(20_000))
    with HubServer(folder, repo="interlive/GRASP", token=TOKEN, gated=True) as hub:
        yield hub


def run(hub: HubServer, out: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("clipshards"))
    settings = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, **env}
    settings.pop("PREFECT_API_URL", None)
    return subprocess.run(
        [program, "doctor", str(out), *options], env=settings | env, capture_output=True, text=True, timeout=300
    )


def test_a_machine_that_is_ready(hub: HubServer, tmp_path: Path) -> None:
    done = run(hub, tmp_path / "not" / "made", "--json")
    checks = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = ("python", "packages", "decoder cpu", "decoder ffmpeg", "hub", "clock", "prefect")
    assert [checks[name]["status"] for name in wanted] == ["ok"] * len(wanted)
    assert "decoder cuda" in checks and checks["disk speed"]["what"].endswith("written")
    assert "1 files" in checks["hub"]["what"]
    assert TOKEN not in done.stdout + done.stderr
    assert not (tmp_path / "not").exists()


def test_each_problem_says_what_to_do(hub: HubServer, tmp_path: Path) -> None:
    done = run(hub, tmp_path, HF_TOKEN="hf_another", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert done.returncode == 4
    lines = {line[9:25].strip(): line for line in done.stdout.splitlines()}
    assert lines["hub"].startswith("problem") and "accept its terms" in lines["hub"]
    assert lines["prefect"].startswith("problem") and "unset PREFECT_API_URL" in lines["prefect"]
    assert "hf_another" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_hub_that_is_not_there() -> None:
    check = doctor.check_clock(HubSource("a/b", endpoint="http://127.0.0.1:9"))
    assert (check.status, bool(check.todo)) == ("warning", True)


def test_packages_that_are_too_old_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor, "requires", lambda name: ["av>=999", "nothing-such>=1; extra == 'prepare'", "numpy"]
    )
    (check,) = doctor.check_packages()
    assert check.status == "problem"
    assert (
        "wanted >=999" in check.what and "nothing-such is not installed" in check.what and "numpy" not in check.what
    )


def test_a_disk_that_is_small_or_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "LEAST_FREE_BYTES", 1 << 62)
    monkeypatch.setattr(doctor, "LEAST_DISK_BYTES_PER_SECOND", 1 << 62)
    assert [check.status for check in doctor.check_disk(tmp_path)] == ["warning", "warning"]


def test_the_clock_is_compared_with_the_hub(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    source = HubSource("interlive/GRASP", endpoint=hub.endpoint, token=TOKEN)
    assert doctor.check_clock(source).status == "ok"
    monkeypatch.setattr(doctor, "MOST_CLOCK_SKEW_SECONDS", -1.0)
    assert doctor.check_clock(source).status == "problem"
