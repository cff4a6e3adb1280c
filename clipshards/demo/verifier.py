"""Answers the demo's questions a second time, from their text alone and in another way than `questions`.

The events are laid on a clock of 0.1 s: who looks where and does what at each tick. A question's text is read
back with a pattern, and its answer is found by looking at the ticks, never at the list of events.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby

from clipshards.demo.scene import Scene, Window

_TICKS_PER_SECOND = 10
_SEEN_TICKS = 5
_VERBS = {
    "point": "pointing",
    "wave": "waving",
    "waving": "waving",
    "show": "showing",
    "reach": "reaching",
}

Run = tuple[int, int, str]
"""(first tick, tick after the last, value): a stretch of the clock without a change."""


class Clock:
    """Who looks where (`gaze`) and who does what to whom (`gesture`, as "kind target") at each tick."""

    def __init__(self, scene: Scene, window: Window) -> None:
        first = round(window.start_seconds * _TICKS_PER_SECOND)
        last = round(window.end_seconds * _TICKS_PER_SECOND)
        self.people = [person.name for person in scene.people]
        self.gaze = {name: [""] * (last - first) for name in self.people}
        self.gesture = {name: [""] * (last - first) for name in self.people}
        for event in scene.events:
            begin = round(event.start_seconds * _TICKS_PER_SECOND) - first
            end = round(event.end_seconds * _TICKS_PER_SECOND) - first
            if begin < 0 or end > last - first:
                continue
            for tick in range(begin, end):
                if event.kind == "gaze":
                    self.gaze[event.actor][tick] = event.target
                else:
                    self.gesture[event.actor][tick] = f"{event.kind} {event.target}"

    def looks(self, name: str) -> list[Run]:
        """The gazes of one person, in order."""
        return _runs(self.gaze[name])

    def gestures(self) -> list[tuple[int, str, str]]:
        """(first tick, person, kind) of all gestures, in order."""
        return sorted(
            (run[0], name, run[2].split()[0]) for name in self.people for run in _runs(self.gesture[name])
        )

    def meeting(self) -> set[tuple[str, str]]:
        """Pairs who look at each other for half a second in all."""
        pairs = [(a, b) for a in self.people for b in self.people if a < b]
        return {(a, b) for a, b in pairs if len(self.meeting_ticks(a, b)) >= _SEEN_TICKS}

    def meeting_ticks(self, a: str, b: str) -> list[int]:
        """Ticks at which two people look at each other."""
        both = enumerate(zip(self.gaze[a], self.gaze[b], strict=True))
        return [tick for tick, (one, two) in both if one == b and two == a]

    def arrivals(self, target: str) -> list[tuple[int, str]]:
        """(tick, person) of each turn to `target`, in order."""
        return sorted((run[0], name) for name in self.people for run in self.looks(name) if run[2] == target)

    def followers(self, leader: str, target: str) -> set[str]:
        """Who turns to `target` half a second or more after `leader`, who still looks at it."""
        found = set()
        for begin, end, seen in self.looks(leader):
            for tick, name in self.arrivals(target) if seen == target else ():
                if name != leader and begin + _SEEN_TICKS <= tick <= end - _SEEN_TICKS:
                    found.add(name)
        return found

    def gathered(self) -> set[str]:
        """Targets to which three people or more turn at the same tick."""
        targets = {run[2] for name in self.people for run in self.looks(name)}
        return {
            target
            for target in targets
            if any(len(list(same)) >= 3 for _, same in groupby(self.arrivals(target), key=lambda one: one[0]))
        }

    def ticks_of(self, actor: str, kind: str, target: str) -> list[int]:
        """Ticks at which `actor` makes this gesture."""
        return [tick for tick, one in enumerate(self.gesture[actor]) if one == f"{kind} {target}"]

    def watched(self, watcher: str, ticks: list[int]) -> set[str]:
        """What `watcher` looks at for half a second or more during `ticks`."""
        seen = [self.gaze[watcher][tick] for tick in ticks]
        return {target for target in seen if target and seen.count(target) >= _SEEN_TICKS}


def _runs(values: list[str]) -> list[Run]:
    runs, tick = [], 0
    for value, same in groupby(values):
        length = len(list(same))
        if value:
            runs.append((tick, tick + length, value))
        tick += length
    return runs


def _one(found: set[str]) -> str:
    return next(iter(found)) if len(found) == 1 else f"ambiguous: {sorted(found)}"


def _event_class(clock: Clock) -> str:
    targets = {run[2] for name in clock.people for run in clock.looks(name)}
    classes = set()
    if clock.meeting():
        classes.add("mutual gaze")
    if any(clock.followers(leader, target) for leader in clock.people for target in targets):
        classes.add("gaze following")
    if clock.gathered():
        classes.add("group attention")
    return _one(classes or {"single gaze"})


def _after(clock: Clock, actor: str, seen: str) -> str:
    targets = [run[2] for run in clock.looks(actor)]
    return targets[targets.index(seen) + 1] if targets.count(seen) == 1 else "ambiguous"


def _gesture_end(clock: Clock, word: str, column: int) -> str:
    return str(clock.gestures()[0 if word == "first" else -1][column])


def _waves_back(clock: Clock, one: str) -> str:
    """Who waves at `one` later than `one` began to wave at them."""
    return _one(
        {
            name
            for name in clock.people
            if (mine := clock.ticks_of(one, "waving", name))
            and (theirs := clock.ticks_of(name, "waving", one))
            and max(theirs) > max(mine)
        }
    )


def _eye_contact(clock: Clock, actor: str, kind: str, target: str) -> str:
    ticks = set(clock.ticks_of(actor, kind, target))
    return _one(
        {
            name
            for name in clock.people
            if name != actor and len(ticks.intersection(clock.meeting_ticks(actor, name))) >= _SEEN_TICKS
        }
    )


def _response(clock: Clock, seen: str, actor: str, kind: str, target: str) -> str:
    ticks = clock.ticks_of(actor, kind, target)
    late = range(ticks[0] + _SEEN_TICKS, ticks[-1] + 1)
    return _one({name for tick, name in clock.arrivals(seen) if tick in late and name != actor})


def _sequence(clock: Clock) -> str:
    return ", then ".join(dict.fromkeys(kind for _, _, kind in clock.gestures()))


_NAME = r"(?:the )?(\w+)(?: \(\w+ shirt\))?"
_DEED = rf"(point|wave|waving|show|reach)\w*(?: a card)? (?:at|to|for) {_NAME}"

_PATTERNS: dict[str, Callable[..., str]] = {
    rf"Who or what does {_NAME} look at first\?": lambda c, a: c.looks(a)[0][2],
    rf"Who or what does {_NAME} look at last\?": lambda c, a: c.looks(a)[-1][2],
    r"Which kind of gaze event does the clip show\?": _event_class,
    r"Which two people look into each other's eyes\?": lambda c: _one({" and ".join(p) for p in c.meeting()}),
    rf"Who follows the gaze of {_NAME} to {_NAME}\?": lambda c, a, t: _one(c.followers(a, t)),
    rf"Who or what does {_NAME} look at right after looking at {_NAME}\?": _after,
    rf"Who is the first to look at {_NAME}\?": lambda c, t: c.arrivals(t)[0][1],
    r"Who or what draws the eyes of the whole group at the same time\?": lambda c: _one(c.gathered()),
    r"Who makes a (\w+) gesture\?": lambda c, k: _one({name for _, name, kind in c.gestures() if kind == k}),
    rf"Which type of gesture does {_NAME} make\?": lambda c, a: _one(
        {kind for _, name, kind in c.gestures() if name == a}
    ),
    r"Who makes the (first|last) gesture\?": lambda c, word: _gesture_end(c, word, 1),
    r"Which gesture comes (first|last)\?": lambda c, word: _gesture_end(c, word, 2),
    rf"Who waves back to {_NAME}\?": _waves_back,
    rf"How many gestures does {_NAME} make\?": lambda c, a: str([name for _, name, _ in c.gestures()].count(a)),
    r"In which order do the kinds of gesture first appear\?": _sequence,
    rf"Who or what does {_NAME} look at while {_DEED}\?": lambda c, a, verb, t: _one(
        c.watched(a, c.ticks_of(a, _VERBS[verb], t))
    ),
    rf"With whom does {_NAME} make eye contact while {_DEED}\?": lambda c, a, verb, t: _eye_contact(
        c, a, _VERBS[verb], t
    ),
    rf"Who turns to look at {_NAME} when {_NAME} {_DEED}\?": lambda c, seen, a, verb, t: _response(
        c, seen, a, _VERBS[verb], t
    ),
    rf"Who or what does {_NAME} look at while {_NAME} {_DEED}\?": lambda c, watcher, a, verb, t: _one(
        c.watched(watcher, c.ticks_of(a, _VERBS[verb], t))
    ),
    r"How many people are in the clip\?": lambda c: str(len(c.people)),
}


def answer(scene: Scene, window: Window, question: str) -> str:
    """The true answer to a question's text about a window of a scene; "ambiguous…" when there are several.

    Raises:
        ValueError: when the text is none of the demo's patterns.
    """
    for pattern, find in _PATTERNS.items():
        if match := re.fullmatch(pattern, question):
            return find(Clock(scene, window), *match.groups())
    raise ValueError(f"question ({question!r}) must be one of the demo's {len(_PATTERNS)} patterns")
