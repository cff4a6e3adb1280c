"""How bodies move: from the events of a scene to gaze vectors and arms at one moment. Pure numbers."""

from __future__ import annotations

import math

from clipshards.demo.scene import GESTURES, Event, Person, Scene, direction

_RAMP_SECONDS = 0.25
"""Head, eyes and arms take this long to turn; they turn at the start of an event and back at its end."""


def _smooth(share: float) -> float:
    share = min(1.0, max(0.0, share))
    return share * share * (3 - 2 * share)


def strength(event: Event, seconds: float) -> float:
    """0 before the event, 1 while it lasts, 0 after it, with soft edges."""
    rise = _smooth((seconds - event.start_seconds) / _RAMP_SECONDS)
    fall = _smooth((seconds - event.end_seconds) / _RAMP_SECONDS)
    return rise - fall


def gaze(scene: Scene, person: Person, seconds: float, ratio: float) -> tuple[float, float]:
    """Where a person looks: a vector of length ≤ 1 in the picture; (0, 0) is straight at the viewer."""
    dx = dy = 0.0
    for event in scene.active(person.name, ("gaze",)):
        share = strength(event, seconds)
        if share > 0:
            x, y = direction(scene, person.name, event.target, ratio)
            dx, dy = dx + share * x, dy + share * y
    return dx, dy


def gesture(scene: Scene, person: Person, seconds: float) -> tuple[Event, float] | None:
    """The gesture that a person makes, and how far the arm is out: 0 (hangs down) to 1."""
    for event in scene.active(person.name, GESTURES):
        share = strength(event, seconds)
        if share > 0:
            return event, share
    return None


def sway(person: Person, seconds: float) -> tuple[float, float]:
    """Small movement of a body at rest, in head radii: nobody is ever quite still."""
    phase = 1.7 * person.number
    return 0.11 * math.sin(2.3 * seconds + phase), 0.06 * math.sin(3.1 * seconds + 2 * phase)


def blinks(person: Person, seconds: float) -> bool:
    """Eyes shut for a tenth of a second every few seconds."""
    return (seconds + 1.3 * person.number) % 3.7 < 0.1
