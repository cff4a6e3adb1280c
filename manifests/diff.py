"""What changed between the files that a snapshot was made of and those of the source now. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Diff:
    """Paths of files, by what became of them since the snapshot."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)
    """Old path → new path of the same bytes: nothing is fetched again."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.renamed)


def diff_files(before: Mapping[str, str], now: Mapping[str, str]) -> Diff:
    """Compare two listings, path → hash of the content, by content."""
    gone = {path: digest for path, digest in before.items() if path not in now}
    new = {path: digest for path, digest in now.items() if path not in before}
    renamed: dict[str, str] = {}
    for path, digest in sorted(gone.items()):
        target = next((other for other, its in sorted(new.items()) if its == digest), None)
        if target is not None:
            renamed[path] = target
            del new[target]
    return Diff(
        added=tuple(sorted(new)),
        changed=tuple(sorted(path for path in before if path in now and before[path] != now[path])),
        removed=tuple(sorted(gone.keys() - renamed.keys())),
        renamed=renamed,
    )
