"""Bars and histograms as inline SVG that takes its colours and letters from the page.

matplotlib draws; then styles become attributes, which the page's policy lets through, and each colour becomes a
custom property of the page's style: dark mode is the browser's business. Texts of the data set are drawn as they
are, never as mathematics. Units of a drawing are pixels of a page that is 360 of them wide.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

WIDTH = 360
_POINTS = 72.0
_SIZE = 11
_ROW, _HEAD, _FOOT = 17, 20, 34
_LABEL_LETTERS = 17

_INK, _MUTED, _ACCENT, _SECOND, _LINE = "#010101", "#020202", "#030303", "#040404", "#050505"
_PROPERTIES = {
    _INK: "currentColor", _MUTED: "var(--muted)", _ACCENT: "var(--accent)", _SECOND: "var(--second)",
    _LINE: "var(--line)",
}  # fmt: skip
_SVG = "http://www.w3.org/2000/svg"
_SETTINGS: dict[Any, Any] = {"svg.hashsalt": "clipshards", "svg.fonttype": "none", "font.family": "DejaVu Sans"}
_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")
_KEPT = ("d", "x", "y", "transform", "viewBox", "width", "height")


@dataclass(frozen=True)
class Panel:
    """One column of bars."""

    name: str
    values: Sequence[float]
    texts: Sequence[str]
    """At the end of each bar."""
    more: Sequence[float] | None = None
    """Second part of each bar, in the lighter colour."""
    marks: Sequence[float] | None = None
    """A line across each bar: what chance would give."""


def draw_bars(labels: Sequence[str], panels: Sequence[Panel]) -> Markup:
    """Panels side by side, a row a label."""
    height = _HEAD + _ROW * len(labels) + 6
    figure = _figure(height)
    left = 12 + 6.4 * min(_LABEL_LETTERS, max(map(len, labels)))
    width = (WIDTH - left) / len(panels)
    for number, panel in enumerate(panels):
        box = ((left + number * width) / WIDTH, 6 / height, (width - 6) / WIDTH, _ROW * len(labels) / height)
        axes = _bare_axes(figure, box)
        if number == 0:
            for row, label in enumerate(labels):
                _text(axes, 0, row, shorten(label), offset=-6, ha="right", va="center", color=_INK)
        _draw_panel(axes, panel, len(labels), width)
    return _to_svg(figure)


def _draw_panel(axes: Axes, panel: Panel, num_rows: int, width: float) -> None:
    rows = np.arange(num_rows)
    more = np.zeros(num_rows) if panel.more is None else np.asarray(panel.more, float)
    ends = np.asarray(panel.values, float) + more
    most = max([ends.max(), *(panel.marks or ())], default=0.0) or 1.0
    room = 8 + 6.4 * max(map(len, panel.texts))
    axes.set_xlim(0, most * width / max(width - 6 - room, 0.25 * width))
    axes.set_ylim(num_rows - 0.5, -0.5)
    axes.barh(rows, panel.values, 0.62, color=_ACCENT, clip_on=False)
    if more.any():
        axes.barh(rows, more, 0.62, left=panel.values, color=_SECOND, clip_on=False)
    if panel.marks is not None:
        axes.vlines(panel.marks, rows - 0.46, rows + 0.46, color=_INK, linewidth=2, clip_on=False)
        ends = np.maximum(ends, panel.marks)
    axes.vlines(0, -0.5, num_rows - 0.5, color=_LINE, linewidth=1, clip_on=False)
    for row, text in enumerate(panel.texts):
        _text(axes, ends[row], row, text, offset=5, ha="left", va="center", color=_MUTED)
    _text(axes, 0, -0.5, panel.name, up=4, ha="left", va="bottom", color=_MUTED)


def draw_histogram(counts: npt.NDArray[np.int64], edges: npt.NDArray[np.float64], unit: str, what: str) -> Markup:
    """Upright bars over an axis in `unit`; `what` is counted."""
    height = 150
    figure = _figure(height)
    axes = _bare_axes(figure, (44 / WIDTH, _FOOT / height, (WIDTH - 58) / WIDTH, (height - _FOOT - 22) / height))
    axes.bar(edges[:-1], counts, np.diff(edges), align="edge", color=_ACCENT, edgecolor=_LINE, linewidth=0.5)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, max(1, counts.max()) * 1.02)
    for at in _ticks(edges[0], edges[-1], 5):
        _text(axes, at, 0, f"{at:g}", up=-6, ha="center", va="top", color=_MUTED)
    for at in _ticks(0, axes.get_ylim()[1], 3, integer=True):
        axes.axhline(at, color=_LINE, linewidth=1, zorder=0, clip_on=False)
        _text(axes, edges[0], at, f"{at:,.0f}", offset=-6, ha="right", va="center", color=_MUTED)
    _text(axes, edges[-1], 0, unit, up=-20, ha="right", va="top", color=_MUTED)
    _text(axes, edges[0], axes.get_ylim()[1], what, up=6, ha="left", va="bottom", color=_MUTED)
    for patch in axes.patches:
        patch.set_clip_on(False)
    return _to_svg(figure)


def shorten(text: str, letters: int = _LABEL_LETTERS) -> str:
    """One line of at most so many letters, without what SVG cannot hold."""
    plain = _NOT_TEXT.sub(" ", text)
    return plain if len(plain) <= letters else plain[: letters - 1] + "…"


def _figure(height: float) -> Figure:
    figure = Figure(figsize=(WIDTH / _POINTS, height / _POINTS), dpi=_POINTS)
    FigureCanvasSVG(figure)
    figure.patch.set_visible(False)
    return figure


def _bare_axes(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    axes = figure.add_axes(box)
    axes.set_axis_off()
    return axes


def _text(axes: Axes, x: float, y: float, text: str, *, offset: float = 0, up: float = 0, **style: Any) -> None:
    axes.annotate(
        text,
        (x, y),
        (offset, up),
        textcoords="offset points",
        fontsize=_SIZE,
        parse_math=False,
        annotation_clip=False,
        **style,
    )


def _ticks(start: float, end: float, count: int, *, integer: bool = False) -> list[float]:
    found = MaxNLocator(count, integer=integer).tick_values(start, end)
    return [float(at) for at in found if start <= at <= end]


def _to_svg(figure: Figure) -> Markup:
    buffer = io.BytesIO()
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # A letter that matplotlib's font lacks only costs it the exact width: the browser draws it.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    drawing = _plain(root)
    drawing.attrib |= {"aria-hidden": "true", "focusable": "false"}
    del drawing.attrib["width"], drawing.attrib["height"]
    return Markup(ElementTree.tostring(drawing, encoding="unicode"))


def _plain(element: ElementTree.Element) -> ElementTree.Element:
    """Without ids, links, metadata and styles; of the styles what matters as attributes."""
    copy = ElementTree.Element(element.tag.rpartition("}")[2])
    copy.text = element.text if copy.tag == "text" else None
    copy.attrib = {name: element.attrib[name] for name in _KEPT if name in element.attrib}
    for name, _, value in (part.strip().partition(":") for part in element.get("style", "").split(";")):
        value = value.strip()
        if name in ("fill", "stroke"):
            copy.attrib[name] = _PROPERTIES.get(value, value)
        elif name in ("stroke-width", "text-anchor"):
            copy.attrib[name] = value
    copy[:] = [
        _plain(child) for child in element if child.tag.rpartition("}")[2] in ("g", "path", "text")
    ]  # fmt: skip
    if copy.tag == "svg":
        copy.set("xmlns", _SVG)
    return copy
