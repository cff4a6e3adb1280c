"""The short form of scripts/fuzz: some hundred damaged files of each kind; and that it sees what it looks for."""

from __future__ import annotations

import io
from pathlib import Path

import fuzzing
import pytest
from tar_bytes import tar_of

from clipshards.annotations import QuestionBuilder


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory, demo_source: Path) -> Path:
    folder = tmp_path_factory.mktemp("seeds")
    fuzzing.write_seeds(folder, demo_source)
    return folder


@pytest.mark.parametrize(
    ("kind", "mutations", "among_the_outcomes"),
    [
        ("tar", 500, {"read", "tar-damaged", "unsafe-name", "link-member", "special-member", "warning no-members"}),
        ("jsonl", 500, {"row", "row-not-json", "row-not-a-list", "bad-number", "bad-meta", "no-path"}),
        ("media", 250, {"rendered", "moov-missing", "not-media", "no-decodable-frames", "view decode-errors"}),
    ],
)
def test_damage_ends_in_values_or_words(
    seeds: Path, kind: str, mutations: int, among_the_outcomes: set[str]
) -> None:
    figures = fuzzing.fuzz(kind, seeds, mutations=mutations, seed=1)
    assert not figures.failures, f"{figures.failures[0].number}: {figures.failures[0].text}"
    assert figures.mutations == mutations
    assert among_the_outcomes <= figures.outcomes.keys()


def test_a_mutation_can_be_made_again(seeds: Path) -> None:
    for kind in fuzzing.KINDS:
        chunk = fuzzing.Chunk(kind, seeds, 1, range(50))
        made = [fuzzing.make_mutation(chunk, number) for number in chunk.numbers]
        assert made == [fuzzing.make_mutation(chunk, number) for number in chunk.numbers]
        assert len(set(made)) > 40


def test_a_file_beside_the_folder_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = tar_of({"a.mp4": b"bytes"})
    assert fuzzing.check_tar(content, _made(tmp_path / "good")) == ["read"]
    extract = fuzzing.extract

    def extract_and_more(*arguments: object) -> int:
        (tmp_path / "bad/sandbox/beside/more").touch()
        return extract(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(fuzzing, "extract", extract_and_more)
    with pytest.raises(AssertionError, match="beside the folder"):
        fuzzing.check_tar(content, _made(tmp_path / "bad"))


def test_a_line_that_is_lost_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b'{"id":"1"}\n{"id":"2"}\n'
    fuzzing.check_jsonl(content, tmp_path)
    add_lines = QuestionBuilder.add_lines

    def add_all_but_one(self: QuestionBuilder, name: str, lines: io.BytesIO) -> None:
        add_lines(self, name, io.BytesIO(lines.read().partition(b"\n")[2]))

    monkeypatch.setattr(QuestionBuilder, "add_lines", add_all_but_one)
    with pytest.raises(AssertionError, match="a line is lost"):
        fuzzing.check_jsonl(content, tmp_path)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
