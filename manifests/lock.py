"""One run at a time writes to an output folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clipshards.errors import OutputInUseError, UsageError


@contextmanager
def hold_output(out: Path) -> Iterator[None]:
    """Make the folder and hold it for this process; the kernel lets go when the process ends, however.

    Raises:
        OutputInUseError: another live run holds it.
        UsageError: it cannot be written.
    """
    try:
        (out / "work").mkdir(parents=True, exist_ok=True)
        descriptor = os.open(out / "work" / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(
            f"the output folder {out} cannot be written ({error.strerror}): name one that can"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise OutputInUseError(
                f"{out} is in use by another run (process {holder}): wait for it, or name another folder"
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)
