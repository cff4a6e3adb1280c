"""A training loop that can be killed: `training_loop.py OUT FORM WORKERS BATCH STATE`.

Notes after each step, in one file that is replaced at once, which examples it has trained on and the state that
goes on after them; begins with that state when the file is there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import clipshards
from clipshards.samplers import LengthGroupedSampler
from clipshards.streaming import Stream

Step = tuple[list[str], dict[str, Any]]
"""Ids of a batch, and the state after it."""


def ids_of(examples: list[Any]) -> list[str]:
    """A collator; the frames of each are there, as a trainer would stack them."""
    assert all(torch.from_numpy(example.frames).ndim == 4 for example in examples)
    return [f"{example.stage}/{example.id}" for example in examples]


def map_style(out: str, workers: int, batch: int, state: dict[str, Any] | None) -> Iterator[Step]:
    """The reader by number, in the order of the sampler; torch's own loader."""
    data = clipshards.open(out)
    sampler = LengthGroupedSampler(data.lengths(), global_batch=batch, difficulties=data.difficulties, seed=3)
    if state is not None:
        sampler.load_state_dict(state)
    consumed = 0 if state is None else state["given"]
    loader = DataLoader(data, batch, sampler=sampler, num_workers=workers, collate_fn=ids_of)
    for ids in loader:
        consumed += len(ids)
        yield ids, sampler.state_dict(consumed=consumed)


def streaming(out: str, workers: int, batch: int, state: dict[str, Any] | None) -> Iterator[Step]:
    """Whole shards in a row; torchdata's loader asks each worker for its state."""
    stream = Stream(clipshards.open(out), buffer=20, seed=3)
    loader = StatefulDataLoader(stream, batch, num_workers=workers, collate_fn=ids_of)
    if state is not None:
        loader.load_state_dict(state)
    for ids in loader:
        yield ids, loader.state_dict()


def main(out: str, form: str, workers: str, batch: str, file: str) -> None:
    """One epoch, or the rest of it."""
    noted = Path(file)
    done: dict[str, Any] = torch.load(noted) if noted.exists() else {"ids": [], "state": None}
    work = {"map": map_style, "stream": streaming}[form]
    for ids, state in work(out, int(workers), int(batch), done["state"]):
        done["ids"] += ids
        done["state"] = state
        torch.save(done, noted.with_suffix(".new"))
        noted.with_suffix(".new").replace(noted)
        print(json.dumps(ids), flush=True)
        time.sleep(0.01)  # a step of the trainer: workers run ahead of it


if __name__ == "__main__":
    main(*sys.argv[1:])
