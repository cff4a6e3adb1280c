"""clipshards: a video question-answering data set on the Hub → shards with pre-decoded frames."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clipshards.reader import open as open
    from clipshards.score import grounding_score as grounding_score

__version__ = "0.1.0"

_MODULE_OF = {"open": "clipshards.reader", "grounding_score": "clipshards.score"}


def __getattr__(name: str) -> Any:
    """Readers and scores are imported when they are used: the command line answers without pyarrow."""
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
