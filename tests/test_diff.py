"""What changed between two states of a source, by content."""

from __future__ import annotations

from manifests.diff import Diff, diff_files


def test_each_kind_of_change() -> None:
    before = {"same": "1", "changed": "2", "moved": "3", "gone": "4"}
    now = {"same": "1", "changed": "2b", "moved-to": "3", "new": "5"}
    assert diff_files(before, now) == Diff(("new",), ("changed",), ("gone",), {"moved": "moved-to"})
    assert diff_files(before, now)


def test_no_change_is_false() -> None:
    assert not diff_files({"a": "1"}, {"a": "1"})


def test_one_copy_of_two_equal_files_is_renamed_once() -> None:
    diff = diff_files({"a": "1", "b": "1"}, {"c": "1"})
    assert (diff.renamed, diff.removed, diff.added) == ({"a": "c"}, ("b",), ())


def test_a_swap_of_names_is_two_changes() -> None:
    assert diff_files({"a": "1", "b": "2"}, {"a": "2", "b": "1"}).changed == ("a", "b")
