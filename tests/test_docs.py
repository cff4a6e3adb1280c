"""The docs are true: commands and snippets are run as they stand, links lead somewhere, pages are up to date.

Commands of a page are run in order, in a folder of its own, against a Hub on loopback that serves the demo as
interlive/GRASP, gated. `OUT` there is the demo, prepared; `FOLDER` is its source. In a `console` block the output
must be as shown, `…` standing for anything. `# exit 4` after a command is the exit code that it must have.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

from clipshards import advice, errors, schema
from clipshards.hub.server import HubServer
from clipshards.verify import verify_snapshot
from scripts import cli_docs, schema_docs

ROOT = Path(__file__).parents[1]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "docs").rglob("*.md")}
PAGES["README.md"] = (ROOT / "README.md").read_text()
TOKEN = "hf_the_token_of_the_docs"
SECONDS = 180.0
"""For one command, on a slow machine."""

DEPLOY = "tests/test_deploy.py"

MAKE_SITE, MAKE_PAGES = "make docs", "scripts/schema-docs"
"""Commands that tests of their own run, below."""

PREPARE = "clipshards prepare hf://datasets/interlive/GRASP OUT"
"""Run once: its output is the `OUT` of all pages."""

ELSEWHERE = {
    "make demo": ("Makefile", ".venv/bin/clipshards demo demo/out"),  # which docs/quickstart.md runs
    "make test": (".ci/run", "make peers-env test"),
    "make check": (".ci/run", "make check"),
    "make test-deploy": (".ci/run", "make test-deploy"),
    "make test-peers": (".ci/run", "make peers-env test"),  # they are tests of `make test` where olah is there
    "make test-loaders": (".ci/run", "make test-loaders"),
    "scripts/cli-docs": ("tests/test_cli.py", '"scripts/cli-docs"'),
    "createdb prefect": (DEPLOY, '"createdb", "prefect"'),
    "export PREFECT_API_DATABASE_CONNECTION_URL=postgresql+asyncpg://USER:PASSWORD@127.0.0.1:5432/prefect": (
        DEPLOY,
        "postgresql+asyncpg://prefect:none@127.0.0.1",
    ),
    "scripts/gpu-check --wheels wheels": ("tests/test_gpu_check.py", 'run("--wheels"'),
    "scripts/gpu-check wheels": ("tests/test_gpu_check.py", "run(str(wheels))"),  # without a GPU to its exit code 1
    "scripts/lock": ("tests/test_lock.py", '"scripts/lock"'),
    "prefect deployment run bench/bench --watch": ("tests/test_bench.py", "bench("),  # the flow, without a worker
}
"""Commands that are not run here: the file that runs them, and the words by which it does.
Those of docs/deploy.md are looked up in its test, word by word."""

NOT_IN_ORDER = ELSEWHERE.keys() | {MAKE_SITE, MAKE_PAGES, PREPARE}

SNIPPETS_ELSEWHERE = {"docs/loaders.md": "tests/loaders/test_loaders.py"}

TRAINER = '''
from types import SimpleNamespace

torch = SimpleNamespace(utils=SimpleNamespace(data=SimpleNamespace(Dataset=object)))
tokenizer = lambda text: SimpleNamespace(input_ids=text.split())
rank, world_size, steps_in_epoch, examples_per_step_of_this_rank, collate = 0, 1, 1, 4, list


def DataLoader(dataset, batch_size, sampler, num_workers, collate_fn):
    """The order in which torch's would ask, without its workers."""
    numbers = iter(sampler)
    return collate_fn([dataset[next(numbers)] for _ in range(batch_size)])
'''
"""What a trainer has around the lines of docs/train-grasp.md; the environment of the tests has no torch."""


class Block(NamedTuple):
    language: str
    text: str


class Command(NamedTuple):
    text: str
    exit_code: int
    output: str | None
    """As shown below it; None where nothing is."""


def blocks_of(page: str) -> list[Block]:
    fenced = [Block(*found) for found in re.findall(r"^ *```(\w*)\n(.*?)^ *```$", PAGES[page], re.M | re.S)]
    indented = re.findall(r"^(?: {4}|\t)(\$ .*)$", PAGES[page], re.M)
    return fenced + [Block("console", line + "\n…\n") for line in indented]


def commands_of(page: str) -> list[Command]:
    commands = []
    for block in blocks_of(page):
        text = block.text.replace("\\\n", " ")
        if block.language == "sh":
            commands += [_command(line) for line in text.splitlines() if line.strip() and line[0] != "#"]
        elif block.language == "console":
            for shown in re.split(r"^\$ ", text, flags=re.M)[1:]:
                line, _, output = shown.partition("\n")
                commands.append(_command(line, output))
    return commands


def _command(line: str, output: str | None = None) -> Command:
    text, _, comment = line.partition(" # ")
    code = re.search(r"exit (\d+)", comment)
    return Command(text.strip(), int(code[1]) if code else 0, output)


def is_run_here(page: str, command: Command) -> bool:
    return page != "docs/deploy.md" and command.text not in NOT_IN_ORDER


WITH_CODE = sorted(
    page
    for page in PAGES
    if any(is_run_here(page, command) for command in commands_of(page))
    or (any("py" in block.language for block in blocks_of(page)) and page not in SNIPPETS_ELSEWHERE)
)


# -- what is run elsewhere is run there


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"docs/cli.md"}))
def test_commands_stand_in_blocks_of_commands(page: str) -> None:
    for block in blocks_of(page):
        assert block.language in ("", "sh", "console", "python", "pycon", "toml", "json")
        if block.language == "":
            assert not re.search(r"^ *(\$|clipshards|make|prefect|scripts/\S+|pip) ", block.text, re.M), block.text


def test_the_tables_name_what_the_docs_hold() -> None:
    texts = {command.text for page in PAGES for command in commands_of(page)}
    assert texts >= NOT_IN_ORDER
    for command, (file, words) in ELSEWHERE.items():
        assert words in (ROOT / file).read_text(), f"{file} no longer runs {command}"
    for page, file in SNIPPETS_ELSEWHERE.items():
        assert page in (ROOT / file).read_text()


def test_the_commands_of_deploy_are_those_of_its_test() -> None:
    """Up to the first word that is another there: an id, a number, parameters."""
    test = re.sub(r"\s+", " ", (ROOT / DEPLOY).read_text())
    for command in commands_of("docs/deploy.md"):
        if command.text in NOT_IN_ORDER or command.text.startswith("export "):
            continue
        words = [word for word in shlex.split(command.text) if not re.match(r"[A-Z_]+=", word)]
        assert words.pop(0) == "prefect", f"nobody runs {command.text}"
        known = takewhile(lambda word: not re.match(r"ID$|\d|{", word), words)
        assert ", ".join(f'"{word}"' for word in known) in test, f"{DEPLOY} does not run {command.text}"


# -- commands and snippets


class Site(NamedTuple):
    """What the commands find: environment, the prepared demo, its source."""

    environment: dict[str, str]
    out: Path
    source: Path


@pytest.fixture(scope="module")
def site(demo_snapshot: Path, demo_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    from prefect.settings import PREFECT_API_URL

    folder = tmp_path_factory.mktemp("docs")
    with HubServer(demo_source, repo="interlive/GRASP", token=TOKEN, gated=True) as hub:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PREFECT_"))},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PREFECT_API_URL": PREFECT_API_URL.value()
            or "",  # the server of the session: each of its own costs 8 s
            "PREFECT_HOME": str(folder / "prefect"),
            "HF_HOME": str(folder / "hf"),
            "HF_ENDPOINT": hub.endpoint,
            "COLUMNS": "100",
        }
        shutil.copytree(demo_snapshot.parents[1], folder / "OUT", symlinks=True)
        subprocess.run(shlex.split(PREPARE), cwd=folder, check=True, env={**environment, "HF_TOKEN": TOKEN})
        yield Site(environment, folder / "OUT", demo_source)


@pytest.mark.flow
@pytest.mark.parametrize("page", WITH_CODE)
def test_page(page: str, site: Site, tmp_path: Path) -> None:
    shutil.copytree(site.out, tmp_path / "OUT", symlinks=True)
    (tmp_path / "FOLDER").symlink_to(site.source)
    ids = pq.read_table(tmp_path / "OUT/current/manifests/bench.parquet", columns=["id"])["id"].to_pylist()
    (tmp_path / "results.json").write_text(json.dumps(dict.fromkeys(ids, "B")))
    with Shell(tmp_path, site.environment) as shell:
        for command in commands_of(page):
            if is_run_here(page, command):
                shell.run(command)
    if page not in SNIPPETS_ELSEWHERE:
        run_snippets(page, tmp_path)


class Shell:
    """Runs commands one after the other; what they export stays, and what they leave in the background ends."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self._background: list[subprocess.Popen[str]] = []
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            self._port = str(unused.getsockname()[1])

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._background:
            process.terminate()
            process.communicate(timeout=20)

    def run(self, command: Command) -> None:
        text = command.text.replace("HF_TOKEN=…", f"HF_TOKEN={TOKEN}").replace("8600", self._port)
        in_clone = re.match(r"(make|scripts/|\.venv/)", text)
        folder = ROOT if in_clone else self._folder
        if text.endswith("&"):
            self._start(text.removesuffix("&"))
            return
        done = subprocess.run(
            ["bash", "-c", f"{text}\nstatus=$?; env -0 > '{self._folder}/environment'; exit $status"],
            capture_output=True, text=True, timeout=SECONDS, cwd=folder, env=self._environment,
        )  # fmt: skip
        assert done.returncode == command.exit_code, f"{text}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        if command.output is not None:
            require_output(command.output, done.stdout)
        if text.startswith("export "):
            lines = (self._folder / "environment").read_text().split("\0")
            self._environment = dict(line.split("=", 1) for line in lines if "=" in line)

    def _start(self, text: str) -> None:
        process = subprocess.Popen(
            shlex.split(text), stdout=subprocess.PIPE, text=True, cwd=self._folder, env=self._environment
        )
        self._background.append(process)
        assert process.stdout and process.stdout.readline(), f"{text} said nothing"


def require_output(shown: str, output: str) -> None:
    """The output is as shown, but for white space and for what `…` stands for."""
    lines = [re.escape(" ".join(line.split())).replace("…", ".*") + "\n" for line in shown.splitlines()]
    pattern = "".join("(?:.*\n)*" if line == ".*\n" else line for line in lines)
    said = "".join(" ".join(line.split()) + "\n" for line in output.splitlines())
    assert re.fullmatch(pattern, said), f"shown:\n{shown}\nsaid:\n{output}"


def run_snippets(page: str, folder: Path) -> None:
    """All Python of a page as one program, and what it shows at a prompt as doctests."""
    blocks = blocks_of(page)
    code = "\n".join(block.text for block in blocks if block.language == "python")
    prompts = "\n".join(block.text for block in blocks if block.language == "pycon")
    (folder / "snippets.py").write_text((TRAINER if page == "docs/train-grasp.md" else "") + code)
    (folder / "prompts.txt").write_text(prompts)
    for arguments in (["snippets.py"], ["-m", "doctest", "prompts.txt"]):
        done = subprocess.run(
            [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, f"{page}:\n{done.stdout}{done.stderr}"


@pytest.mark.flow
def test_the_numbers_of_the_readme(demo_snapshot: Path) -> None:
    counts = json.loads((demo_snapshot / "dataset.json").read_text())["counts"]
    shown = re.findall(r"^│ (\w[\w ]*?) +│ ([\d,]+) ", PAGES["README.md"], re.M)
    assert len(shown) >= 4
    assert {name: int(number.replace(",", "")) for name, number in shown} == {
        name: counts[name.replace(" ", "_")] for name, _ in shown
    }
    checked, problems = verify_snapshot(demo_snapshot)
    amounts = ", ".join(f"{count:,} {name}" for name, count in checked.items())
    assert f"verified {amounts}: {len(problems)} problems" in PAGES["README.md"]


# -- words about formats, commands, files and links


def named_in_table(page: str, heading: str) -> set[str]:
    """Code spans in the first column of the table below a heading."""
    section = PAGES[page].split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| (.*?) \|", section, re.M)
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.flow
def test_the_formats_are_those_of_a_snapshot(demo_snapshot: Path) -> None:
    dataset = json.loads((demo_snapshot / "dataset.json").read_text())
    assert named_in_table("docs/formats.md", "dataset.json") == dataset.keys()
    with tarfile.open(next(demo_snapshot.glob("train/*.tar"))) as shard:
        sample = shard.extractfile(next(name for name in shard.getnames() if name.endswith(".json")))
        assert sample and named_in_table("docs/formats.md", "A sample") == json.load(sample).keys()


def test_exit_codes_and_events_are_those_of_the_code() -> None:
    codes = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type)} - {1}
    section = PAGES["docs/formats.md"].split("## Exit codes\n", 1)[1].split("\n## ", 1)[0]
    assert set(map(int, re.findall(r"^\| (\d+) \|", section, re.M))) == codes | {0, 130}
    said = "".join(path.read_text() for path in (ROOT / "flows").glob("*.py"))
    assert named_in_table("docs/formats.md", "--json") == set(re.findall(r'"event": "(\w+)"', said))


def code_spans(page: str) -> list[str]:
    prose = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.M | re.S)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]


HELP = {" ".join(names): cli_docs.help_of(*names) for names in cli_docs.commands()}


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_prose_exist(page: str) -> None:
    for span in code_spans(page):
        if not span.startswith("clipshards "):
            continue
        words = span.split()[1:]
        name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in HELP), None)
        assert name, f"{span}: there is no such command"
        for option in re.findall(r"--[a-z-]+", span):
            assert option in HELP[name], f"{span}: {name} has no {option}"


@pytest.mark.parametrize("page", PAGES)
def test_files_in_prose_exist(page: str) -> None:
    for span in code_spans(page):
        path = span.split()[0]
        if re.fullmatch(r"(docs|scripts|recipes|tests|requirements|clipshards|flows|tasks)/[\w./-]+", path):
            assert (ROOT / path).exists(), f"{page}: {path} is not there"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        assert path.exists(), f"{target} is not there"
        if anchor:
            assert anchor in anchors(path), f"{target}: there is no such heading"


def anchors(path: Path) -> set[str]:
    """Of headings, as GitHub and the site make them; a second one of the same words gets -1."""
    found: list[str] = []
    for title in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S), re.M):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return set(found)


# -- the site and the pages that are made


def test_the_site_builds_without_a_warning() -> None:
    done = subprocess.run(MAKE_SITE.split(), cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in PAGES.keys() - {"README.md"}:
        assert (ROOT / "build" / page).with_suffix(".html").is_file()


def test_the_pages_of_words_and_tables_are_up_to_date(tmp_path: Path) -> None:
    subprocess.run([ROOT / MAKE_PAGES, tmp_path], check=True)
    for name in ("tables.md", "reasons.md"):
        assert (tmp_path / name).read_text() == PAGES[f"docs/{name}"], f"run {MAKE_PAGES}"


def test_each_word_has_its_advice() -> None:
    for words, todo in ((schema.REASONS, advice.REASONS), (schema.WARNINGS, advice.WARNINGS)):
        assert words.keys() == todo.keys()
        assert all(len(sentence) > 20 and sentence.endswith(".") for sentence in todo.values())


def test_each_column_has_its_sentence() -> None:
    columns = {f"{table}.{name}" for table, fields in schema.TABLES.items() for name in fields.names}
    assert {schema_docs.column(*column.split(".")) for column in columns}
    assert schema.ROWS.keys() == schema.TABLES.keys()
    named = columns | {column.split(".")[1] for column in columns}
    assert schema.COLUMNS.keys() <= named, "a sentence without its column"
