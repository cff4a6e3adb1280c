"""Columns of rows → an Arrow table, a small batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

BATCH_ROWS = 256
"""So few that the texts of a batch are still in the processor's cache when Arrow copies them."""

_BATCHES_IN_CHUNK = 64
_MAX_CHUNK_BYTES = 1 << 31  # Arrow's offsets are int32


class StructLists:
    """A column of lists of structs: the length of each list (None: no list), and the fields of all, flat."""

    def __init__(self, lengths: Iterable[int | None], fields: Iterable[Iterable[Any]]) -> None:
        self.lengths = [*lengths]
        self.fields = [[*values] for values in fields]

    def extend(self, more: StructLists) -> None:
        """Add the lists of another column."""
        self.lengths += more.lengths
        for values, others in zip(self.fields, more.fields, strict=True):
            values += others

    def __arrow_array__(self, type: pa.ListType) -> pa.Array:
        kinds = type.value_type.fields
        arrays = [pa.array(values, kind.type) for values, kind in zip(self.fields, kinds, strict=True)]
        structs = pa.StructArray.from_arrays(arrays, fields=kinds)
        offsets = pa.array(accumulate([0, *(length or 0 for length in self.lengths)]), pa.int32())
        is_null = pa.array([length is None for length in self.lengths], pa.bool_())
        return pa.ListArray.from_arrays(offsets, structs, type=type, mask=is_null)


class TableBuilder:
    """Collects rows in small batches, batches in larger chunks, and these, where they fit, in one.

    The texts are held once and compactly, and `take` needs no copy of a whole column to pick some rows.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns = self._no_rows()
        self._batches: list[pa.RecordBatch] = []
        self._chunks = [schema.empty_table()]

    def extend(self, columns: Sequence[Any]) -> None:
        """Add rows: for each field of the schema a sequence of values, or `StructLists`."""
        for known, more in zip(self._columns, columns, strict=True):
            known.extend(more)
        if len(self._columns[0]) >= BATCH_ROWS:
            self._end_batch()

    def finish(self) -> pa.Table:
        """All rows."""
        self._end_batch()
        self._end_chunk()
        table = pa.concat_tables(self._chunks)
        return table.combine_chunks() if table.nbytes < _MAX_CHUNK_BYTES else table

    def _no_rows(self) -> list[Any]:
        return [
            StructLists((), [()] * kind.value_type.num_fields)
            if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)
            else []
            for kind in self._schema.types
        ]

    def _end_batch(self) -> None:
        arrays = [pa.array(column, kind) for column, kind in zip(self._columns, self._schema.types, strict=True)]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._columns = self._no_rows()
        if len(self._batches) == _BATCHES_IN_CHUNK:
            self._end_chunk()

    def _end_chunk(self) -> None:
        self._chunks.append(pa.Table.from_batches(self._batches, self._schema).combine_chunks())
        self._batches = []
