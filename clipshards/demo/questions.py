"""Questions about a scene, one function a category: events in, questions with their true answers out.

T1–T6 are about gaze, G1–G6 about gestures, J1–J4 about both (the benchmark calls them C1–C4). A question is
asked only where the events leave one answer. Texts come from fixed patterns; `verifier` reads them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations

from clipshards.demo.scene import GESTURES, Event, Kind, Scene, Window

GAZE_CLASSES = ("single gaze", "mutual gaze", "gaze following", "group attention")
DOING: dict[Kind, str] = {
    "gaze": "looking at",
    "pointing": "pointing at",
    "waving": "waving at",
    "showing": "showing a card to",
    "reaching": "reaching for",
}
DOES: dict[Kind, str] = {
    "gaze": "looks at",
    "pointing": "points at",
    "waving": "waves at",
    "showing": "shows a card to",
    "reaching": "reaches for",
}
_SEEN_SECONDS = 0.5
"""What lasts, or is apart, less than this may fall between two sampled frames and is not asked about."""


@dataclass(frozen=True)
class Question:
    """A question about a window of a clip; `choices` holds the answer and all that could be wrong."""

    category: str
    text: str
    answer: str
    choices: tuple[str, ...]
    evidence: tuple[Event, ...]
    """The events that make the answer true."""
    window: Window
    difficulty: str


@dataclass(frozen=True)
class _Draft:
    text: str
    answer: str
    choices: tuple[str, ...]
    evidence: tuple[Event, ...]


@dataclass(frozen=True)
class _Stage:
    """What the makers of questions see: the events of a window and the names in the scene."""

    scene: Scene

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(person.name for person in self.scene.people)

    @property
    def everything(self) -> tuple[str, ...]:
        return (*self.people, *(thing.name for thing in self.scene.things))

    @property
    def gazes(self) -> tuple[Event, ...]:
        return tuple(event for event in self.scene.events if event.kind == "gaze")

    @property
    def gestures(self) -> tuple[Event, ...]:
        return tuple(event for event in self.scene.events if event.kind != "gaze")

    def called(self, name: str) -> str:
        """How a question names somebody or something: "P1 (red shirt)", "the cup"."""
        shirts = {person.name: person.shirt for person in self.scene.people}
        return f"{name} ({shirts[name]} shirt)" if name in shirts else f"the {name}"

    def without(self, *names: str) -> tuple[str, ...]:
        """People other than these."""
        return tuple(name for name in self.people if name not in names)

    def targets(self, actor: str) -> tuple[str, ...]:
        """All that `actor` could look at."""
        return tuple(name for name in self.everything if name != actor)

    def mutual(self) -> list[tuple[Event, Event]]:
        """Pairs of gazes that meet."""
        return [
            (one, two)
            for one, two in combinations(self.gazes, 2)
            if (one.actor, one.target) == (two.target, two.actor) and one.overlap_seconds(two) >= _SEEN_SECONDS
        ]

    def followed(self) -> list[tuple[Event, Event]]:
        """(leader, follower): the follower turns to what the leader is still looking at, later."""
        return [
            (one, two)
            for one in self.gazes
            for two in self.gazes
            if one.target == two.target
            and two.start_seconds - one.start_seconds >= _SEEN_SECONDS
            and one.overlap_seconds(two) >= _SEEN_SECONDS
        ]

    def group(self) -> list[tuple[Event, ...]]:
        """Gazes of at least three people that begin at the same time on the same target."""
        keys = dict.fromkeys((event.start_seconds, event.target) for event in self.gazes)
        same = (tuple(e for e in self.gazes if (e.start_seconds, e.target) == key) for key in keys)
        return [events for events in same if len(events) >= 3]


def _target_identification(stage: _Stage) -> Iterator[_Draft]:
    for actor in stage.people:
        gazes = stage.scene.active(actor, ("gaze",))
        for word, event in (("first", gazes[:1]), ("last", gazes[-1:])):
            if event:
                text = f"Who or what does {stage.called(actor)} look at {word}?"
                yield _Draft(text, event[0].target, stage.targets(actor), event)


def _event_class(stage: _Stage) -> Iterator[_Draft]:
    found: dict[str, tuple[Event, ...]] = {
        "mutual gaze": tuple(event for pair in stage.mutual() for event in pair),
        "gaze following": tuple(event for pair in stage.followed() for event in pair),
        "group attention": tuple(event for group in stage.group() for event in group),
    }
    classes = [name for name, events in found.items() if events]
    if not classes and stage.gazes:
        classes, found["single gaze"] = ["single gaze"], stage.gazes[:1]
    if len(classes) == 1:
        text = "Which kind of gaze event does the clip show?"
        yield _Draft(text, classes[0], GAZE_CLASSES, found[classes[0]])


def _mutual_gaze(stage: _Stage) -> Iterator[_Draft]:
    pairs = {tuple(sorted((one.actor, two.actor))): (one, two) for one, two in stage.mutual()}
    if len(pairs) == 1:
        names, events = next(iter(pairs.items()))
        choices = tuple(" and ".join(pair) for pair in combinations(stage.people, 2))
        yield _Draft("Which two people look into each other's eyes?", " and ".join(names), choices, events)


def _gaze_following(stage: _Stage) -> Iterator[_Draft]:
    pairs = stage.followed()
    for leader, follower in pairs:
        key = (leader.actor, leader.target)
        if sum((one.actor, one.target) == key for one, _ in pairs) == 1:
            text = f"Who follows the gaze of {stage.called(leader.actor)} to {stage.called(leader.target)}?"
            yield _Draft(text, follower.actor, stage.without(leader.actor, leader.target), (leader, follower))


def _temporal_gaze(stage: _Stage) -> Iterator[_Draft]:
    for actor in stage.people:
        gazes = stage.scene.active(actor, ("gaze",))
        for before, after in pairwise(gazes):
            if sum(event.target == before.target for event in gazes) == 1:
                seen = stage.called(before.target)
                text = f"Who or what does {stage.called(actor)} look at right after looking at {seen}?"
                choices = tuple(name for name in stage.targets(actor) if name != before.target)
                yield _Draft(text, after.target, choices, (before, after))
    for target in stage.everything:
        gazes = tuple(event for event in stage.gazes if event.target == target)
        if len(gazes) > 1 and gazes[1].start_seconds - gazes[0].start_seconds >= _SEEN_SECONDS:
            text = f"Who is the first to look at {stage.called(target)}?"
            yield _Draft(text, gazes[0].actor, stage.without(target), gazes[:2])


def _group_attention(stage: _Stage) -> Iterator[_Draft]:
    groups = stage.group()
    if len(groups) == 1:
        text = "Who or what draws the eyes of the whole group at the same time?"
        yield _Draft(text, groups[0][0].target, stage.everything, groups[0])


def _recognition(stage: _Stage) -> Iterator[_Draft]:
    for kind in GESTURES:
        events = tuple(event for event in stage.gestures if event.kind == kind)
        if len({event.actor for event in events}) == 1:
            yield _Draft(f"Who makes a {kind} gesture?", events[0].actor, stage.people, events)


def _type(stage: _Stage) -> Iterator[_Draft]:
    for actor in stage.people:
        events = stage.scene.active(actor, GESTURES)
        if len({event.kind for event in events}) == 1:
            text = f"Which type of gesture does {stage.called(actor)} make?"
            yield _Draft(text, events[0].kind, GESTURES, events)


def _temporal_order(stage: _Stage) -> Iterator[_Draft]:
    gestures = stage.gestures
    if len(gestures) < 2:
        return
    for word, event in (("first", gestures[0]), ("last", gestures[-1])):
        yield _Draft(f"Who makes the {word} gesture?", event.actor, stage.people, (event,))
    if len({event.kind for event in gestures}) > 1:
        for word, event in (("first", gestures[0]), ("last", gestures[-1])):
            yield _Draft(f"Which gesture comes {word}?", event.kind, GESTURES, (event,))


def _reciprocal(stage: _Stage) -> Iterator[_Draft]:
    waves = tuple(event for event in stage.gestures if event.kind == "waving")
    for one in waves:
        back = [two for two in waves if two.target == one.actor and two.start_seconds > one.start_seconds]
        if len({event.actor for event in back}) == 1 and back[0].actor == one.target:
            text = f"Who waves back to {stage.called(one.actor)}?"
            yield _Draft(text, back[0].actor, stage.without(one.actor), (one, back[0]))


def _frequency(stage: _Stage) -> Iterator[_Draft]:
    numbers = ("1", "2", "3", "4")
    for actor in stage.people:
        events = stage.scene.active(actor, GESTURES)
        if events:
            text = f"How many gestures does {stage.called(actor)} make?"
            yield _Draft(text, str(len(events)), numbers, events)


def _sequence(stage: _Stage) -> Iterator[_Draft]:
    kinds = list(dict.fromkeys(event.kind for event in stage.gestures))
    if len(kinds) > 1:
        firsts = tuple(next(event for event in stage.gestures if event.kind == kind) for kind in kinds)
        choices = tuple(", then ".join(order) for order in permutations(GESTURES, len(kinds)))
        text = "In which order do the kinds of gesture first appear?"
        yield _Draft(text, ", then ".join(kinds), choices, firsts)


def _alignment(stage: _Stage) -> Iterator[_Draft]:
    for gesture in stage.gestures:
        looks = [event for event in stage.scene.active(gesture.actor, ("gaze",)) if _during(event, gesture)]
        if len(looks) == 1 and _only(stage, gesture):
            doing = f"{DOING[gesture.kind]} {stage.called(gesture.target)}"
            text = f"Who or what does {stage.called(gesture.actor)} look at while {doing}?"
            yield _Draft(text, looks[0].target, stage.targets(gesture.actor), (looks[0], gesture))


def _eye_contact(stage: _Stage) -> Iterator[_Draft]:
    for gesture in stage.gestures:
        meets = [
            (mine, theirs)
            for pair in stage.mutual()
            for mine, theirs in (pair, pair[::-1])
            if mine.actor == gesture.actor and _during(mine, gesture) and _during(theirs, gesture)
        ]
        if len(meets) == 1 and _only(stage, gesture):
            doing = f"{DOING[gesture.kind]} {stage.called(gesture.target)}"
            text = f"With whom does {stage.called(gesture.actor)} make eye contact while {doing}?"
            yield _Draft(text, meets[0][0].target, stage.without(gesture.actor), (*meets[0], gesture))


def _gaze_response(stage: _Stage) -> Iterator[_Draft]:
    for gesture in stage.gestures:
        answers = [
            event
            for event in stage.gazes
            if event.target == gesture.target
            and event.actor != gesture.actor
            and gesture.start_seconds + _SEEN_SECONDS <= event.start_seconds < gesture.end_seconds
        ]
        if len(answers) == 1 and _only(stage, gesture):
            does = f"{DOES[gesture.kind]} {stage.called(gesture.target)}"
            actor, target = stage.called(gesture.actor), stage.called(gesture.target)
            text = f"Who turns to look at {target} when {actor} {does}?"
            choices = stage.without(gesture.actor, gesture.target)
            yield _Draft(text, answers[0].actor, choices, (gesture, answers[0]))


def _cross_modal(stage: _Stage) -> Iterator[_Draft]:
    for gesture in stage.gestures:
        for watcher in stage.without(gesture.actor):
            looks = [event for event in stage.scene.active(watcher, ("gaze",)) if _during(event, gesture)]
            if len(looks) == 1 and _only(stage, gesture):
                does = f"{DOES[gesture.kind]} {stage.called(gesture.target)}"
                actor, other = stage.called(gesture.actor), stage.called(watcher)
                text = f"Who or what does {other} look at while {actor} {does}?"
                yield _Draft(text, looks[0].target, stage.targets(watcher), (gesture, looks[0]))


def _during(look: Event, gesture: Event) -> bool:
    return look.overlap_seconds(gesture) >= _SEEN_SECONDS


def _only(stage: _Stage, gesture: Event) -> bool:
    """True when nothing else in the window is the same gesture of the same person at the same target."""
    key = (gesture.kind, gesture.actor, gesture.target)
    return sum((event.kind, event.actor, event.target) == key for event in stage.gestures) == 1


_MAKERS: dict[str, Callable[[_Stage], Iterator[_Draft]]] = {
    "T1": _target_identification,
    "T2": _event_class,
    "T3": _mutual_gaze,
    "T4": _gaze_following,
    "T5": _temporal_gaze,
    "T6": _group_attention,
    "G1": _recognition,
    "G2": _type,
    "G3": _temporal_order,
    "G4": _reciprocal,
    "G5": _frequency,
    "G6": _sequence,
    "J1": _alignment,
    "J2": _eye_contact,
    "J3": _gaze_response,
    "J4": _cross_modal,
}
CATEGORIES = tuple(_MAKERS)


def ask(scene: Scene, window: Window) -> list[Question]:
    """All questions that the events in `window` answer, in the order of `CATEGORIES`."""
    part = scene.within(window)
    difficulty = _difficulty(part)
    return [
        Question(
            category,
            draft.text,
            draft.answer,
            draft.choices,
            tuple(sorted(set(draft.evidence))),
            window,
            difficulty,
        )
        for category, make in _MAKERS.items()
        for draft in make(_Stage(part))
    ]


def _difficulty(scene: Scene) -> str:
    """More people and more that happens are harder."""
    load = len(scene.people) + len(scene.events)
    return "easy" if load <= 9 else "medium" if load <= 12 else "hard"
