"""The little stories ("beats") that scenes are made of; a clip's script is a line of them: "follow wave"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from clipshards.demo.scene import (
    SHIRTS,
    TABLE_THINGS,
    WALL_THINGS,
    Event,
    Kind,
    Scene,
    Window,
    place_people,
    place_things,
)

_LEAD_SECONDS = 0.4
_GAP_SECONDS = 0.7
_MARGIN_SECONDS = 0.3
"""A beat's window reaches this far past its events on both sides: less than half the gap."""


@dataclass(frozen=True)
class _Cast:
    """Who and what a beat may use."""

    random: Random
    people: tuple[str, ...]
    things: tuple[str, ...]

    def pair(self) -> list[str]:
        return self.random.sample(self.people, 2)

    def thing(self) -> str:
        return self.random.choice(self.things)

    def target(self, *without: str) -> str:
        return self.random.choice([name for name in (*self.people, *self.things) if name not in without])


def _glance(cast: _Cast) -> list[Event]:
    actor, other = cast.pair()
    first = cast.target(actor)
    second = other if first != other else cast.thing()
    return [Event(0.0, 1.4, "gaze", actor, first), Event(1.4, 2.8, "gaze", actor, second)]


def _mutual(cast: _Cast) -> list[Event]:
    one, two = cast.pair()
    return [Event(0.0, 2.0, "gaze", one, two), Event(0.2, 2.0, "gaze", two, one)]


def _follow(cast: _Cast) -> list[Event]:
    leader, follower = cast.pair()
    target = cast.target(leader, follower)
    return [
        Event(0.0, 2.8, "gaze", leader, target),
        Event(0.0, 1.0, "gaze", follower, leader),
        Event(1.0, 2.8, "gaze", follower, target),
    ]


def _group(cast: _Cast) -> list[Event]:
    target = cast.target() if len(cast.people) > 3 else cast.thing()
    return [Event(0.0, 2.0, "gaze", name, target) for name in cast.people if name != target]


def _point(cast: _Cast) -> list[Event]:
    actor, other = cast.pair()
    target = cast.target(actor, other)
    return [
        Event(0.0, 2.8, "gaze", actor, target),
        Event(0.2, 2.8, "pointing", actor, target),
        Event(1.0, 2.8, "gaze", other, target),
    ]


def _tell(cast: _Cast) -> list[Event]:
    actor, other = cast.pair()
    return [
        Event(0.0, 2.4, "gaze", actor, other),
        Event(0.2, 2.4, "pointing", actor, cast.target(actor, other)),
        Event(0.2, 2.4, "gaze", other, actor),
    ]


def _wave(cast: _Cast) -> list[Event]:
    one, two = cast.pair()
    return [
        Event(0.0, 3.0, "gaze", one, two),
        Event(0.2, 1.6, "waving", one, two),
        Event(0.4, 3.0, "gaze", two, one),
        Event(1.6, 3.0, "waving", two, one),
    ]


def _show(cast: _Cast) -> list[Event]:
    actor, other = cast.pair()
    return [
        Event(0.0, 2.4, "gaze", actor, other),
        Event(0.2, 2.4, "showing", actor, other),
        Event(0.4, 2.4, "gaze", other, actor),
    ]


def _reach(cast: _Cast) -> list[Event]:
    actor, other = cast.pair()
    thing = cast.random.choice(cast.things[:2])
    return [
        Event(0.0, 2.4, "gaze", actor, thing),
        Event(0.2, 2.4, "reaching", actor, thing),
        Event(0.2, 2.4, "gaze", other, actor),
    ]


def _twice(cast: _Cast) -> list[Event]:
    actor, other = cast.pair()
    kind: Kind = cast.random.choice(("pointing", "waving"))
    target = other if kind == "waving" else cast.target(actor)
    return [
        Event(0.0, 3.2, "gaze", actor, target),
        Event(0.2, 1.3, kind, actor, target),
        Event(2.0, 3.1, kind, actor, target),
    ]


BEATS: dict[str, Callable[[_Cast], list[Event]]] = {
    "glance": _glance,
    "mutual": _mutual,
    "follow": _follow,
    "group": _group,
    "point": _point,
    "tell": _tell,
    "wave": _wave,
    "show": _show,
    "reach": _reach,
    "twice": _twice,
}


def play(script: str, *, count_people: int, seed: int) -> Scene:
    """The scene of a script such as "follow wave": its beats one after the other, with a pause between.

    Args:
        script: names of `BEATS`, separated by spaces.
        count_people: 2 to 6; the beat "group" wants 3.
        seed: chooses who does what to whom, and the colours; the same seed gives the same scene.
    """
    random = Random(seed)
    people = place_people(random.sample(SHIRTS, len(SHIRTS)), count_people)
    things = place_things(random.sample(TABLE_THINGS, 2), random.choice(WALL_THINGS), count_people)
    cast = _Cast(random, tuple(one.name for one in people), tuple(one.name for one in things))
    events: list[Event] = []
    beats: list[Window] = []
    clock = _LEAD_SECONDS
    for beat in script.split():
        moved = [event.moved(clock) for event in BEATS[beat](cast)]
        end = max(event.end_seconds for event in moved)
        beats.append(Window(round(clock - _MARGIN_SECONDS, 1), round(end + _MARGIN_SECONDS, 1)))
        events += moved
        clock = end + _GAP_SECONDS
    return Scene(people, things, tuple(sorted(events)), tuple(beats), round(clock, 1), seed)
