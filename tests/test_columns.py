"""Columns of rows: batches of any size make one table, lists of structs may be null."""

from __future__ import annotations

import pyarrow as pa
import pytest

import clipshards.columns
from clipshards.columns import BATCH_ROWS, StructLists, TableBuilder

PAIRS = pa.list_(pa.struct({"name": pa.string(), "size": pa.int32()}))
SCHEMA = pa.schema({"id": pa.int64(), "pairs": PAIRS})


def test_lists_of_structs() -> None:
    lists = StructLists([2, None, 0], (["a", None], [1, 2]))
    lists.extend(StructLists([None, 1], (["b"], [None])))
    array = pa.array(lists, PAIRS)
    array.validate(full=True)
    assert array.to_pylist() == [
        [{"name": "a", "size": 1}, {"name": None, "size": 2}],
        None,
        [],
        None,
        [{"name": "b", "size": None}],
    ]


def test_no_rows_are_an_empty_table() -> None:
    table = TableBuilder(SCHEMA).finish()
    assert (table.schema, table.num_rows) == (SCHEMA, 0)


@pytest.mark.parametrize("size", [1, BATCH_ROWS - 1, BATCH_ROWS, 7 * BATCH_ROWS])
@pytest.mark.parametrize("max_bytes", [0, 1 << 31])
def test_rows_stay_in_order(monkeypatch: pytest.MonkeyPatch, size: int, max_bytes: int) -> None:
    monkeypatch.setattr(clipshards.columns, "_MAX_CHUNK_BYTES", max_bytes)
    builder = TableBuilder(SCHEMA)
    count = size * (40 * BATCH_ROWS // size)
    for first in range(0, count, size):
        rows = range(first, first + size)
        lengths = [None if row % 3 == 0 else row % 3 for row in rows]
        items = [row for row, length in zip(rows, lengths, strict=True) for _ in range(length or 0)]
        builder.extend([rows, StructLists(lengths, ([str(item) for item in items], items))])
    table = builder.finish()
    table.validate(full=True)
    assert table.column("id").to_pylist() == [*range(count)]
    expected = [[{"name": str(n), "size": n}] * (n % 3) if n % 3 else None for n in range(count)]
    assert table.column("pairs").to_pylist() == expected
    assert (table.column("id").num_chunks == 1) == (max_bytes > 0)
