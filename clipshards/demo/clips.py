"""The clips of the demo data set: one line each, with what happens in it and how it is encoded."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from clipshards.demo.scene import Scene, Window
from clipshards.demo.scripts import play

Codec = Literal["h264", "hevc"]
NTSC = Fraction(30000, 1001)
VFR_TICKS_PER_SECOND = 30
"""Frames of the variable-rate clip start at whole ticks, 1 to 4 apart."""


@dataclass(frozen=True)
class Clip:
    """One clip to draw and encode; `part` is the number of its tar, −1 in the benchmark."""

    source: str
    part: int
    number: int
    width: int
    height: int
    fps: Fraction
    count_people: int
    script: str
    codec: Codec = "h264"
    variable_rate: bool = False

    @property
    def name(self) -> str:
        """File name, unique in the data set: "avsbench_0003.mp4"."""
        return f"{self.source}_{self.number:04d}.mp4"

    @property
    def path(self) -> str:
        """Path inside the tar, as the rows name the clip."""
        return f"video/{self.name}" if self.part < 0 else f"{self.source}/video/{self.name}"

    @property
    def seed(self) -> int:
        """Fixed for each clip, and another one for each."""
        return 1000 * (1 + SOURCES.index(self.source)) + self.number

    @cached_property
    def scene(self) -> Scene:
        """What the clip shows."""
        return play(self.script, count_people=self.count_people, seed=self.seed)

    @cached_property
    def frame_seconds(self) -> tuple[float, ...]:
        """Start of each frame, ascending from 0."""
        duration = self.scene.duration_seconds
        if not self.variable_rate:
            return tuple(float(number / self.fps) for number in range(round(duration * self.fps)))
        seconds: list[float] = []
        while not seconds or seconds[-1] < duration:
            seconds.append(vfr_tick(len(seconds)) / VFR_TICKS_PER_SECOND)
        return tuple(seconds)

    @property
    def whole(self) -> Window:
        """The whole clip; the end, rounded down, never passes number of frames / average rate.

        A variable-rate file leaves open how long its last frame lasts, so there it is left out.
        """
        if self.variable_rate:
            return Window(0.0, round(self.scene.duration_seconds - 0.1, 1))
        return Window(0.0, int(float(len(self.frame_seconds) / self.fps) * 1000) / 1000)


def vfr_tick(number: int) -> int:
    """Tick at which frame `number` of the variable-rate clip starts; for ffmpeg: `VFR_SETPTS`."""
    return number + 2 * (number // 5) + number // 7


VFR_SETPTS = "N+2*floor(N/5)+floor(N/7)"

SOURCES = ("avsbench", "embody3d", "friends_mmc", "social_iq", "socialgesture", "werewolf", "bench")

_25, _30 = Fraction(25), Fraction(30)

TRAIN: tuple[Clip, ...] = (
    Clip("avsbench", 0, 1, 480, 270, _25, 3, "follow wave"),
    Clip("avsbench", 0, 2, 320, 240, _25, 2, "glance tell"),
    Clip("avsbench", 0, 3, 640, 360, _30, 4, "group point show"),
    Clip("avsbench", 0, 4, 480, 270, NTSC, 3, "mutual"),
    Clip("avsbench", 1, 5, 480, 270, _25, 5, "point mutual reach"),
    Clip("avsbench", 1, 6, 640, 480, _30, 3, "twice follow"),
    Clip("avsbench", 1, 7, 320, 240, _30, 3, "group wave"),
    Clip("avsbench", 1, 8, 1280, 720, _25, 4, "tell"),
    Clip("embody3d", 0, 1, 1280, 720, _30, 3, "reach glance"),
    Clip("embody3d", 0, 2, 640, 360, _25, 5, "mutual group show reach"),
    Clip("embody3d", 0, 3, 480, 270, _30, 2, "wave twice"),
    Clip("embody3d", 0, 4, 480, 360, _25, 4, "follow point", variable_rate=True),
    Clip("friends_mmc", 0, 1, 640, 360, NTSC, 6, "group tell wave"),
    Clip("friends_mmc", 0, 2, 480, 270, NTSC, 4, "glance show follow"),
    Clip("friends_mmc", 0, 3, 480, 270, NTSC, 5, "point twice"),
    Clip("friends_mmc", 0, 4, 640, 360, NTSC, 3, "mutual reach show"),
    Clip("social_iq", 0, 1, 640, 480, _25, 4, "tell follow"),
    Clip("social_iq", 0, 2, 480, 270, _25, 3, "show point twice"),
    Clip("social_iq", 0, 3, 270, 480, _30, 2, "point wave"),
    Clip("social_iq", 0, 4, 480, 360, _25, 5, "follow group", codec="hevc"),
    Clip("socialgesture", 0, 1, 480, 270, _30, 4, "wave reach point"),
    Clip("socialgesture", 0, 2, 320, 240, _30, 3, "twice show"),
    Clip("socialgesture", 0, 3, 480, 270, _25, 6, "reach mutual tell"),
    Clip("werewolf", 0, 1, 854, 480, _30, 6, "follow wave group"),
    Clip("werewolf", 0, 2, 640, 360, NTSC, 5, "tell glance reach"),
    Clip("werewolf", 0, 3, 480, 270, _25, 6, "point show"),
)

BENCH: tuple[Clip, ...] = (
    Clip("bench", -1, 1, 480, 270, _25, 4, "glance wave"),
    Clip("bench", -1, 2, 640, 360, _30, 5, "follow show"),
    Clip("bench", -1, 3, 480, 270, NTSC, 4, "group twice"),
    Clip("bench", -1, 4, 320, 240, _25, 4, "mutual point"),
    Clip("bench", -1, 5, 1280, 720, _25, 4, "tell reach"),
    Clip("bench", -1, 6, 640, 480, _30, 4, "reach wave point"),
    Clip("bench", -1, 7, 480, 270, _30, 6, "point show"),
    Clip("bench", -1, 8, 640, 360, NTSC, 5, "group"),
    Clip("bench", -1, 9, 480, 270, _25, 5, "follow wave tell"),
)
