"""People, things and events of a drawn scene: what happens, and where everybody is.

Positions are shares of the picture: x in [0, 1] from the left, y in [0, 1] from the top. Times are seconds
from the start of the clip. A name is "P1"… for people, left to right, or a word ("cup") for things.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["gaze", "pointing", "waving", "showing", "reaching"]
GESTURES: tuple[Kind, ...] = ("pointing", "waving", "showing", "reaching")

SHIRTS = ("red", "blue", "green", "orange", "purple", "teal")
TABLE_THINGS = ("cup", "ball", "lamp", "book")
WALL_THINGS = ("clock", "picture")


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who can look and gesture; (x, y) is the middle of the head."""

    name: str
    shirt: str
    x: float
    y: float

    @property
    def number(self) -> int:
        """1 for P1."""
        return int(self.name[1:])


@dataclass(frozen=True, slots=True)
class Thing:
    """An object that can be looked at; (x, y) is its middle."""

    name: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """`actor` looks at `target`, or makes a gesture towards it, during [start_seconds, end_seconds)."""

    start_seconds: float
    end_seconds: float
    kind: Kind
    actor: str
    target: str

    def overlap_seconds(self, other: Event) -> float:
        """How long both events last at the same time; 0 when they do not."""
        start = max(self.start_seconds, other.start_seconds)
        return max(0.0, min(self.end_seconds, other.end_seconds) - start)

    def moved(self, seconds: float) -> Event:
        """The same event, `seconds` later; edges stay on the grid of 0.1 s."""
        start, end = round(self.start_seconds + seconds, 1), round(self.end_seconds + seconds, 1)
        return Event(start, end, self.kind, self.actor, self.target)


@dataclass(frozen=True, slots=True)
class Window:
    """A piece [start_seconds, end_seconds) of a clip."""

    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Scene:
    """All that a clip shows; `beats` are the windows of its separate little stories, in order."""

    people: tuple[Person, ...]
    things: tuple[Thing, ...]
    events: tuple[Event, ...]
    beats: tuple[Window, ...]
    duration_seconds: float
    mood: int
    """Chooses the colours of the room."""

    def within(self, window: Window) -> Scene:
        """The scene with only the events that lie in `window`; windows never cut an event."""
        kept = tuple(
            event
            for event in self.events
            if window.start_seconds <= event.start_seconds and event.end_seconds <= window.end_seconds
        )
        return Scene(self.people, self.things, kept, self.beats, self.duration_seconds, self.mood)

    def position(self, name: str) -> tuple[float, float]:
        """(x, y) of a person's head or of a thing."""
        found: Iterable[Person | Thing] = (*self.people, *self.things)
        return next((one.x, one.y) for one in found if one.name == name)

    def active(self, actor: str, kinds: Iterable[Kind]) -> tuple[Event, ...]:
        """Events of these kinds by `actor`, ordered by start."""
        wanted = set(kinds)
        return tuple(event for event in self.events if event.actor == actor and event.kind in wanted)


_PEOPLE_AT: dict[int, tuple[tuple[float, float], ...]] = {
    2: ((0.22, 0.46), (0.78, 0.46)),
    3: ((0.17, 0.56), (0.50, 0.35), (0.83, 0.56)),
    4: ((0.16, 0.59), (0.29, 0.29), (0.71, 0.29), (0.84, 0.59)),
    5: ((0.17, 0.66), (0.34, 0.46), (0.50, 0.41), (0.66, 0.46), (0.83, 0.66)),
    6: ((0.14, 0.68), (0.285, 0.50), (0.43, 0.43), (0.57, 0.43), (0.715, 0.50), (0.86, 0.68)),
}
_TABLE_AT = {
    2: ((0.38, 0.83), (0.62, 0.83)),
    3: ((0.38, 0.84), (0.63, 0.84)),
    4: ((0.38, 0.84), (0.62, 0.84)),
    5: ((0.39, 0.84), (0.62, 0.85)),
    6: ((0.35, 0.83), (0.61, 0.83)),
}
_WALL_AT = (0.50, 0.115)


def place_people(shirts: Iterable[str], count: int) -> tuple[Person, ...]:
    """`count` (2 to 6) people on an arc, so that from each head every other one lies in its own direction."""
    spots = _PEOPLE_AT[count]
    return tuple(
        Person(f"P{number}", shirt, x, y)
        for number, (shirt, (x, y)) in enumerate(zip(shirts, spots, strict=False), start=1)
    )


def place_things(table: Iterable[str], wall: str, count_people: int) -> tuple[Thing, ...]:
    """Two things on the table and one on the wall."""
    on_table = (Thing(name, x, y) for name, (x, y) in zip(table, _TABLE_AT[count_people], strict=False))
    return (*on_table, Thing(wall, *_WALL_AT))


def direction(scene: Scene, actor: str, target: str, ratio: float) -> tuple[float, float]:
    """Unit vector in the picture (x right, y down) from the head of `actor` to `target`.

    Args:
        ratio: width / height of the picture.
    """
    (x0, y0), (x1, y1) = scene.position(actor), scene.position(target)
    dx, dy = (x1 - x0) * ratio, y1 - y0
    length = math.hypot(dx, dy)
    return dx / length, dy / length
