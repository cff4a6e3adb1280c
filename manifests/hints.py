"""What a training line says of its clip (rate, size), against what the clip and the profile say. Pure.

The trainer takes both from elsewhere, so a wrong hint changes no frame; it is a sign that row and clip do not
belong together, and a mistake for whoever relies on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Flags = npt.NDArray[np.bool_]


def hint_warnings(rows: pa.Table, heights: pa.Array, widths: pa.Array, max_fps: float | None) -> dict[str, Flags]:
    """For each word of `schema.WARNINGS` about hints, which rows it applies to.

    Args:
        rows: with `fps_from_row`, `height_from_row`, `width_from_row`.
        heights: of the clips as shown, in pixels, a row each; so is `widths`.
        max_fps: of the profile; None when it does not sample at a rate.
    """
    fps, height, width = (rows.column(f"{name}_from_row") for name in ("fps", "height", "width"))
    is_missing = _true(pc.is_null(height))
    is_right = _equal(height, heights) & _equal(width, widths)
    is_swapped = _equal(height, widths) & _equal(width, heights) & ~is_right
    words = {
        "resolution-missing": is_missing,
        "resolution-swapped": is_swapped,
        "resolution-stale": ~(is_missing | is_right | is_swapped),
    }
    if max_fps is None:
        return words
    return {"fps-default": _true(pc.is_null(fps)), "fps-capped": _true(pc.greater(fps, max_fps)), **words}


def _equal(one: Any, other: Any) -> Flags:
    return _true(pc.equal(one, other))


def _true(flags: Any) -> Flags:
    return pc.fill_null(flags, False).to_numpy()  # type: ignore[no-any-return]
