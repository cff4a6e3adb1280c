"""Draws one moment of a scene as a picture: a room, a table, cartoon people, seen from above and in front."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clipshards.demo import motion
from clipshards.demo.scene import Kind, Person, Scene, Thing

Picture = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]
Point = tuple[float, float]

_SHIRT: dict[str, Colour] = {
    "red": (214, 56, 52),
    "blue": (48, 104, 214),
    "green": (46, 150, 74),
    "orange": (240, 138, 30),
    "purple": (136, 72, 178),
    "teal": (24, 158, 164),
}
_SKINS: tuple[Colour, ...] = ((250, 214, 184), (234, 188, 148), (198, 146, 106), (150, 104, 74))
_HAIRS: tuple[Colour, ...] = ((62, 44, 34), (28, 26, 30), (150, 92, 44), (206, 164, 84), (96, 96, 104))
_WALLS: tuple[Colour, ...] = (
    (226, 232, 240),
    (240, 230, 218),
    (224, 238, 226),
    (238, 226, 234),
    (232, 232, 222),
)
_FLOORS: tuple[Colour, ...] = ((196, 172, 146), (178, 184, 192), (186, 166, 150), (172, 182, 168))
_WHITE: Colour = (255, 255, 255)
_INK: Colour = (38, 36, 44)
_HEAD_SHARE = {2: 0.115, 3: 0.112, 4: 0.098, 5: 0.088, 6: 0.080}
_ARM_UNITS: dict[Kind, float] = {"pointing": 1.9, "reaching": 2.2, "showing": 1.4, "waving": 0.0}
"""Length of an arm that is out, in head radii; shorter where the target is near, so as not to cover it."""
_SHIFT = 4
"""Fraction bits of OpenCV's coordinates: shapes move by sixteenths of a pixel."""


def _mix(one: Colour, two: Colour, share: float) -> Colour:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, two, strict=True))
    return red, green, blue


class _Pen:
    """Smooth shapes on an RGB picture; lengths in pixels, fractions count."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture

    def _fixed(self, *values: float) -> list[int]:
        return [round(value * (1 << _SHIFT)) for value in values]

    def _options(self, colour: Colour, thickness: float) -> dict[str, Any]:
        width = -1 if thickness <= 0 else max(1, round(thickness))
        return {"color": colour, "thickness": width, "lineType": cv2.LINE_AA, "shift": _SHIFT}

    def circle(self, at: Point, radius: float, colour: Colour, thickness: float = 0) -> None:
        (fixed_radius,) = self._fixed(radius)
        cv2.circle(self.picture, self._fixed(*at), fixed_radius, **self._options(colour, thickness))

    def ellipse(
        self, at: Point, axes: Point, colour: Colour, thickness: float = 0, *, arc: Point = (0, 360)
    ) -> None:
        options = self._options(colour, thickness)
        cv2.ellipse(self.picture, self._fixed(*at), self._fixed(*axes), 0, arc[0], arc[1], **options)

    def line(self, start: Point, end: Point, colour: Colour, thickness: float) -> None:
        options = self._options(colour, thickness)
        cv2.line(self.picture, self._fixed(*start), self._fixed(*end), **options)

    def polygon(self, points: list[Point], colour: Colour) -> None:
        fixed = np.array([self._fixed(*point) for point in points], dtype=np.int32)
        cv2.fillPoly(self.picture, [fixed], color=colour, lineType=cv2.LINE_AA, shift=_SHIFT)

    def text(self, words: str, middle: Point, height: float, colour: Colour) -> None:
        """Words around `middle`; capitals are `height` high."""
        scale, thickness = height / 22, max(1, round(height / 7))
        (width, up), _ = cv2.getTextSize(words, cv2.FONT_HERSHEY_SIMPLEX, scale, thickness)
        at = (round(middle[0] - width / 2), round(middle[1] + up / 2))
        cv2.putText(self.picture, words, at, cv2.FONT_HERSHEY_SIMPLEX, scale, colour, thickness, cv2.LINE_AA)


def draw_frame(scene: Scene, seconds: float, width: int, height: int) -> Picture:
    """The scene at one moment: uint8 [height, width, 3] RGB. Pure: same arguments, same picture.

    Args:
        seconds: from the start of the clip.
    """
    picture = _room(scene, width, height).copy()
    pen = _Pen(picture)
    unit = min(_HEAD_SHARE[len(scene.people)] * height, 0.125 * width)
    poses = [_Pose(scene, person, seconds, (width, height), unit) for person in scene.people]
    for pose in sorted(poses, key=lambda pose: pose.head[1]):
        _draw_body(pen, pose)
        _draw_head(pen, pose)
    for pose in poses:
        if pose.arm is not None:
            _draw_gesture(pen, pose, pose.arm, seconds)
    capital = max(7.5, 0.026 * min(width, height))
    pen.text(f"{seconds:05.2f} s", (4 + 3.2 * capital, 2.2 * capital), capital, (120, 116, 122))
    return picture


class _Pose:
    """A person at one moment, in pixels; `unit` is the radius of a head."""

    def __init__(self, scene: Scene, person: Person, seconds: float, size: tuple[int, int], unit: float) -> None:
        dx, dy = motion.sway(person, seconds)
        self.person = person
        self.unit = unit
        self.head: Point = (person.x * size[0] + dx * unit, person.y * size[1] + dy * unit)
        self.body_x = person.x * size[0] + 0.4 * dx * unit
        self.body_y = person.y * size[1]
        self.shirt = _SHIRT[person.shirt]
        look = 7 * scene.mood + 3 * person.number
        self.skin, self.hair = _SKINS[look % len(_SKINS)], _HAIRS[look % len(_HAIRS)]
        self.long_hair = look % 2 == 0
        self.gaze = motion.gaze(scene, person, seconds, size[0] / size[1])
        self.shut = self.gaze == (0.0, 0.0) and motion.blinks(person, seconds)
        self.arm: _Arm | None = None
        if found := motion.gesture(scene, person, seconds):
            event, share = found
            x, y = scene.position(event.target)
            self.arm = _Arm(event.kind, (x * size[0], y * size[1]), share)

    def shoulder(self, side: int) -> Point:
        return self.body_x + 0.88 * side * self.unit, self.body_y + 1.62 * self.unit

    def resting_hand(self, side: int) -> Point:
        return self.body_x + 1.28 * side * self.unit, self.body_y + 2.62 * self.unit

    @property
    def gesturing_side(self) -> int:
        """−1 when the left arm (in the picture) is out, 1 for the right one, 0 for none."""
        if self.arm is None:
            return 0
        return -1 if self.arm.target[0] < self.body_x else 1


@dataclass(frozen=True)
class _Arm:
    """An arm on its way to a gesture: `share` 0 (hangs down) to 1 (fully out) towards `target`, in pixels."""

    kind: Kind
    target: Point
    share: float


def _draw_body(pen: _Pen, pose: _Pose) -> None:
    unit, x, y = pose.unit, pose.body_x, pose.body_y
    pen.ellipse((x, y + 3.35 * unit), (1.45 * unit, 0.34 * unit), _mix(_INK, (190, 175, 160), 0.62))
    dark = _mix(pose.shirt, _INK, 0.28)
    pen.ellipse((x, y + 3.1 * unit), (1.12 * unit, 0.42 * unit), dark)
    shoulders = [(x - 0.62 * unit, y + 1.15 * unit), (x + 0.62 * unit, y + 1.15 * unit)]
    hips = [(x + 1.12 * unit, y + 3.1 * unit), (x - 1.12 * unit, y + 3.1 * unit)]
    middle = [(x + 1.02 * unit, y + 1.55 * unit)], [(x - 1.02 * unit, y + 1.55 * unit)]
    pen.polygon([*shoulders, *middle[0], *hips, *middle[1]], pose.shirt)
    pen.ellipse((x, y + 3.04 * unit), (1.10 * unit, 0.36 * unit), pose.shirt)
    for side in (-1, 1):
        if side != pose.gesturing_side:
            pen.line(pose.shoulder(side), pose.resting_hand(side), dark, 0.44 * unit)
            pen.circle(pose.resting_hand(side), 0.25 * unit, pose.skin)
    pen.line((x, y + 0.8 * unit), (x, y + 1.2 * unit), _mix(pose.skin, _INK, 0.15), 0.5 * unit)
    pen.text(pose.person.name, (x, y + 2.28 * unit), 0.72 * unit, _WHITE)


def _draw_head(pen: _Pen, pose: _Pose) -> None:
    """The face turns with the gaze: hair to the back, eyes, nose and mouth to the front, pupils further."""
    unit, (x, y), (gx, gy) = pose.unit, pose.head, pose.gaze
    if pose.long_hair:
        for side in (-1, 1):
            strand = x + (0.86 * side - 0.14 * gx) * unit
            pen.line((strand, y + 0.1 * unit), (strand, y + 0.95 * unit), pose.hair, 0.42 * unit)
    pen.circle((x - 0.12 * gx * unit, y - 0.14 * unit - 0.06 * gy * unit), 1.06 * unit, pose.hair)
    for side in (-1, 1):
        ear = (x + (0.95 * side - 0.35 * gx) * unit, y + (0.15 - 0.1 * gy) * unit)
        pen.circle(ear, 0.2 * unit, _mix(pose.skin, _INK, 0.12))
    face = (x + 0.12 * gx * unit, y + (0.2 + 0.08 * gy) * unit)
    pen.ellipse(face, (0.88 * unit, 0.90 * unit), pose.skin)
    eyes_y = y + (0.0 + 0.26 * gy) * unit
    spread = 0.40 * (1 - 0.18 * abs(gx))
    for side in (-1, 1):
        _draw_eye(pen, pose, (x + (spread * side + 0.34 * gx) * unit, eyes_y))
    line = _mix(pose.skin, (120, 40, 30), 0.55)
    pen.circle((x + 0.56 * gx * unit, y + (0.38 + 0.34 * gy) * unit), 0.11 * unit, _mix(pose.skin, line, 0.6))
    mouth = (x + 0.36 * gx * unit, y + (0.58 + 0.20 * gy) * unit)
    pen.ellipse(mouth, (0.28 * unit, 0.14 * unit), line, 0.09 * unit, arc=(15, 165))


def _draw_eye(pen: _Pen, pose: _Pose, at: Point) -> None:
    unit = pose.unit
    if pose.shut:
        pen.ellipse(at, (0.30 * unit, 0.10 * unit), _INK, 0.08 * unit, arc=(0, 180))
        return
    pen.circle(at, 0.36 * unit, _mix(_INK, pose.skin, 0.35))
    pen.circle(at, 0.32 * unit, _WHITE)
    pupil = (at[0] + 0.17 * pose.gaze[0] * unit, at[1] + 0.17 * pose.gaze[1] * unit)
    pen.circle(pupil, 0.165 * unit, _INK)


def _draw_gesture(pen: _Pen, pose: _Pose, arm: _Arm, seconds: float) -> None:
    unit, side = pose.unit, pose.gesturing_side
    shoulder, rest = pose.shoulder(side), pose.resting_hand(side)
    away = (arm.target[0] - shoulder[0], arm.target[1] - shoulder[1])
    distance = math.hypot(*away)
    dx, dy = away[0] / distance, away[1] / distance
    far = max(0.9, min(_ARM_UNITS[arm.kind], distance / unit - 2.0))
    out = (shoulder[0] + far * dx * unit, shoulder[1] + far * dy * unit)
    if arm.kind == "waving":
        swing = 0.42 * math.sin(11 * seconds)
        out = (shoulder[0] + (0.95 * side + swing) * unit, shoulder[1] - (1.5 - 0.2 * abs(swing)) * unit)
        dx, dy = 0.35 * swing, -1.0
    hand = (rest[0] + (out[0] - rest[0]) * arm.share, rest[1] + (out[1] - rest[1]) * arm.share)
    pen.line(shoulder, hand, _mix(_mix(pose.shirt, _INK, 0.28), _INK, 0.35), 0.56 * unit)
    pen.line(shoulder, hand, _mix(pose.shirt, _WHITE, 0.12), 0.42 * unit)
    _HANDS[arm.kind](pen, pose, hand, (dx, dy))


def _pointing_hand(pen: _Pen, pose: _Pose, at: Point, way: Point) -> None:
    unit = pose.unit
    tip = (at[0] + 0.85 * way[0] * unit, at[1] + 0.85 * way[1] * unit)
    pen.line(at, tip, _INK, 0.27 * unit)
    pen.line(at, tip, pose.skin, 0.17 * unit)
    pen.circle(at, 0.32 * unit, _INK)
    pen.circle(at, 0.28 * unit, pose.skin)


def _open_hand(pen: _Pen, pose: _Pose, at: Point, way: Point) -> None:
    unit = pose.unit
    for colour, thickness in ((_INK, 0.24), (pose.skin, 0.15)):
        for turn in (-0.75, -0.25, 0.25, 0.75):
            cos, sin = math.cos(turn), math.sin(turn)
            dx, dy = way[0] * cos - way[1] * sin, way[0] * sin + way[1] * cos
            pen.line(at, (at[0] + 0.58 * dx * unit, at[1] + 0.58 * dy * unit), colour, thickness * unit)
        pen.circle(at, (0.30 if colour is _INK else 0.26) * unit, colour)


def _showing_hand(pen: _Pen, pose: _Pose, at: Point, way: Point) -> None:
    unit = pose.unit
    x, y = at[0] + 0.35 * way[0] * unit, at[1] - 0.55 * unit
    for half, colour in ((0.66, _INK), (0.60, (255, 236, 120))):
        high = half * 0.78
        corners = [(x - half * unit, y - high * unit), (x + half * unit, y - high * unit)]
        pen.polygon([*corners, (x + half * unit, y + high * unit), (x - half * unit, y + high * unit)], colour)
    star = [
        (x + r * unit * math.sin(k * math.pi / 5), y - r * unit * math.cos(k * math.pi / 5))
        for k, r in enumerate((0.38, 0.16) * 5)
    ]
    pen.polygon(star, (226, 84, 40))
    pen.circle(at, 0.27 * unit, pose.skin)


_HANDS = {
    "pointing": _pointing_hand,
    "waving": _open_hand,
    "reaching": _open_hand,
    "showing": _showing_hand,
}


@lru_cache(maxsize=2)
def _room(scene: Scene, width: int, height: int) -> Picture:
    """All that stands still: wall, floor, table and things."""
    picture = np.empty((height, width, 3), dtype=np.uint8)
    wall, floor = _WALLS[scene.mood % len(_WALLS)], _FLOORS[scene.mood % len(_FLOORS)]
    edge = round(0.36 * height)
    picture[:edge], picture[edge:] = wall, floor
    pen = _Pen(picture)
    for board in range(1, 6):
        y = edge + (height - edge) * (board / 6) ** 1.5
        pen.line((0, y), (width, y), _mix(floor, _INK, 0.07), 1)
    pen.line((0, edge), (width, edge), _mix(floor, _INK, 0.35), max(2.0, 0.012 * height))
    pen.ellipse((0.505 * width, 0.875 * height), (0.25 * width, 0.105 * height), _mix(floor, _INK, 0.30))
    pen.ellipse((0.505 * width, 0.855 * height), (0.25 * width, 0.105 * height), (158, 112, 74))
    pen.ellipse((0.505 * width, 0.845 * height), (0.24 * width, 0.095 * height), (188, 140, 96))
    unit = min(0.085 * height, 0.10 * width)
    for thing in scene.things:
        _THINGS[thing.name](pen, _pixel(thing, width, height), unit)
    return picture


def _pixel(thing: Thing, width: int, height: int) -> Point:
    return thing.x * width, thing.y * height


def _cup(pen: _Pen, at: Point, unit: float) -> None:
    x, y = at
    pen.circle((x + 0.62 * unit, y), 0.34 * unit, _INK, 0.18 * unit)
    sides = [(x - 0.6 * unit, y - 0.6 * unit), (x + 0.6 * unit, y - 0.6 * unit)]
    pen.polygon([*sides, (x + 0.48 * unit, y + 0.6 * unit), (x - 0.48 * unit, y + 0.6 * unit)], (236, 72, 120))
    pen.ellipse((x, y + 0.6 * unit), (0.48 * unit, 0.16 * unit), (236, 72, 120))
    pen.ellipse((x, y - 0.6 * unit), (0.6 * unit, 0.2 * unit), (250, 214, 226))
    pen.ellipse((x, y - 0.58 * unit), (0.48 * unit, 0.13 * unit), (98, 60, 44))


def _ball(pen: _Pen, at: Point, unit: float) -> None:
    pen.circle(at, 0.78 * unit, _INK)
    pen.circle(at, 0.72 * unit, (250, 246, 236))
    for start, colour in ((20, (226, 66, 56)), (140, (52, 118, 216)), (260, (248, 196, 52))):
        pen.ellipse(at, (0.72 * unit, 0.72 * unit), colour, arc=(start, start + 60))
    pen.circle(at, 0.16 * unit, _WHITE)


def _lamp(pen: _Pen, at: Point, unit: float) -> None:
    x, y = at
    pen.ellipse((x, y + 0.75 * unit), (0.5 * unit, 0.17 * unit), _INK)
    pen.line((x, y + 0.75 * unit), (x, y - 0.4 * unit), _INK, 0.16 * unit)
    top = [(x - 0.36 * unit, y - 1.05 * unit), (x + 0.36 * unit, y - 1.05 * unit)]
    pen.polygon([*top, (x + 0.8 * unit, y - 0.1 * unit), (x - 0.8 * unit, y - 0.1 * unit)], (255, 214, 84))
    pen.ellipse((x, y - 0.1 * unit), (0.8 * unit, 0.17 * unit), (255, 242, 190))


def _book(pen: _Pen, at: Point, unit: float) -> None:
    x, y = at
    for side, colour in ((-1, (252, 250, 240)), (1, (238, 234, 220))):
        inner = [(x, y - 0.42 * unit), (x, y + 0.62 * unit)]
        outer = [(x + 0.95 * side * unit, y + 0.38 * unit), (x + 0.85 * side * unit, y - 0.58 * unit)]
        pen.polygon(inner + [(px, py + 0.12 * unit) for px, py in outer], (44, 110, 96))
        pen.polygon(inner + outer, colour)
        for row in range(3):
            start = (x + 0.16 * side * unit, y + (-0.22 + 0.25 * row) * unit)
            pen.line(start, (start[0] + 0.56 * side * unit, start[1] - 0.10 * unit), (150, 146, 140), 0.06 * unit)


def _clock(pen: _Pen, at: Point, unit: float) -> None:
    x, y = at
    pen.circle(at, 0.95 * unit, _INK)
    pen.circle(at, 0.82 * unit, _WHITE)
    for hour in range(12):
        dx, dy = math.sin(hour * math.pi / 6), -math.cos(hour * math.pi / 6)
        start = (x + 0.62 * dx * unit, y + 0.62 * dy * unit)
        pen.line(start, (x + 0.74 * dx * unit, y + 0.74 * dy * unit), _INK, 0.07 * unit)
    pen.line(at, (x + 0.1 * unit, y - 0.55 * unit), _INK, 0.11 * unit)
    pen.line(at, (x + 0.38 * unit, y + 0.22 * unit), _INK, 0.13 * unit)


def _picture(pen: _Pen, at: Point, unit: float) -> None:
    x, y = at
    for wide, high, colour in ((1.25, 0.95, (120, 84, 52)), (1.1, 0.8, (176, 214, 240))):
        corners = [(-wide, -high), (wide, -high), (wide, high), (-wide, high)]
        pen.polygon([(x + dx * unit, y + dy * unit) for dx, dy in corners], colour)
    pen.circle((x + 0.6 * unit, y - 0.35 * unit), 0.22 * unit, (250, 206, 70))
    hills = [(-1.1, 0.8), (-0.5, -0.15), (0.1, 0.55), (0.45, 0.15), (1.1, 0.8)]
    pen.polygon([(x + dx * unit, y + dy * unit) for dx, dy in hills], (70, 140, 86))


_THINGS = {
    "cup": _cup,
    "ball": _ball,
    "lamp": _lamp,
    "book": _book,
    "clock": _clock,
    "picture": _picture,
}
