"""The page in Chromium: what a person sees and does, by mouse and keyboard, also when the data set means harm."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from clipshards.report import PAGE
from clipshards.report.server import PageServer

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
SIZES = [(390, 844), (1280, 900)]
SCHEMES = ["light", "dark"]
LOOKS = [(*size, scheme) for size in SIZES for scheme in SCHEMES]

CONTRASTS = """([box, bars]) => {
  const luminance = (colour) => {
    const parts = colour.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((part) => part <= .03928 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b + .05;
  };
  const ground = luminance(getComputedStyle(document.querySelector(box)).backgroundColor);
  return [...document.querySelectorAll(bars)].map((bar) => getComputedStyle(bar))
    .map((style) => bars.endsWith("path") ? style.fill : style.backgroundColor)
    .filter((colour) => colour !== "none")
    .map((colour) => Math.max(luminance(colour) / ground, ground / luminance(colour)));
}"""
"""Of the bars against what they stand on: a graphic needs 3, which axe does not look at."""

pytestmark = [
    pytest.mark.flow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: the page is not tried in a browser"),
]

PART = "train/videos/avsbench_part000.tar"
HIT = "window.hit = 1"
TEXTS = [
    f"</script><script>{HIT}</script>",
    f'"><img src=x onerror=\'{HIT}\'> <!-- <svg onload="{HIT}">',
    f"' onmouseover='{HIT}' x='",
    "\u202eright to left, and never ended",
    "\u05de\u05d9 \u05de\u05e1\u05ea\u05db\u05dc (abc) \u05e2\u05dc \u05de\u05d9?",
    "Who looks at whom, and for how long? " * 270,
    "👁️‍🗨️ 🤝 👩‍👩‍👧‍👦 \U0001f1fa\U0001f1f3 手",
    "{{ 7 * 7 }} {% raw %} ${" + HIT + "} &lt;b&gt; \u2028 \u2029 \\u003c",
]
LOST = f"avsbench/video/<img src=x onerror={HIT}>.mp4"
GONE = f"avsbench/video/</a><script>{HIT}</script>.mp4"
DAMAGED = "avsbench/video/avsbench_0003.mp4"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)


@pytest.fixture(scope="module")
def hostile(demo_source: Path, prefect_server: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The snapshot of a data set whose texts mean harm and of which some is broken."""
    from flows.prepare import prepare

    folder = tmp_path_factory.mktemp("hostile")
    write_hostile_source(demo_source, folder / "source")
    totals = prepare(
        str(folder / "source"), str(folder / "out"), decoder="cpu", workers=2, quality=60, max_rejected=1
    )
    return Path(totals["snapshot"])


def write_hostile_source(demo: Path, folder: Path) -> None:
    """One part of the demo, with other texts, a clip that is none under a bad name, one that no part
    holds, one whose end is damaged, and lines that are no rows."""
    (folder / PART).parent.mkdir(parents=True)
    shutil.copy(demo / PART, folder / PART)
    with tarfile.open(folder / PART, "a") as tar:
        damaged = tar.getmember(DAMAGED)
        info = tarfile.TarInfo(LOST)
        info.size = 9
        tar.addfile(info, io.BytesIO(b"<b>no</b>"))
        clips = set(tar.getnames())
    with (folder / PART).open("r+b") as file:
        file.seek(damaged.offset_data + damaged.size * 9 // 10)
        file.write(bytes(damaged.size // 12))
    rows, new_question = [], {}
    for row in read_lines(demo / "train/annotations.jsonl"):
        if row["video"] in clips:
            text = TEXTS[len(rows) % len(TEXTS)]
            new_question[row["video"], row["question"]] = text
            row |= {"question": text, "category": [text[:40], "J3", None][len(rows) % 3]}
            row |= {
                "difficulty": [text[:40], "easy", None][len(rows) % 3],
                "source": [text[:40], None][len(rows) % 2],
            }
            if row["options"]:
                letter = "ABCD".index(row["answer"])
                row["options"] = [f"{mark}) {TEXTS[place][:90]}" for place, mark in enumerate("ABCD")][: letter + 2]
                row["answer"] = row["options"][letter] if letter < len(row["options"]) else row["options"][0]
            rows.append(row)
    rows += [{**rows[0], "id": clip[-20:], "video": clip} for clip in (LOST, GONE)]
    lines = [json.dumps(row) for row in rows] + [f"<script>{HIT}</script>"] * 3
    (folder / "train/annotations.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in ("data_sft.jsonl", "data_rl.jsonl"):
        examples = []
        for video, prompt, target, meta in read_lines(demo / "train" / name):
            if text := new_question.get((video["path"], meta["question_text"])):
                meta |= {"question_text": text}
                for event in meta.get("gt_events", ()):
                    event |= {"source": text[:60], "target": text[:60]}
                examples.append(
                    [video, prompt | {"content": text}, target | {"content": f"{text}<gaze>{text}</gaze>"}, meta]
                )
        (folder / "train" / name).write_text(
            "".join(json.dumps(line) + "\n" for line in examples), encoding="utf-8"
        )


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@contextmanager
def opened(
    browser: Browser, url: str, width: int = 1280, height: int = 900, scheme: Any = "light"
) -> Iterator[Page]:
    """The page; in the end it has said nothing on the console, and asked nobody else for anything."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    said: list[str] = []
    asked: list[Request] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request))
    page.goto(url)
    page.wait_for_selector("#example > *")
    yield page
    assert page.evaluate("window.hit") is None
    assert said == []
    own = url if url.startswith("file:") else f"{url}api/examples?"
    others = [
        request.url[:200] for request in asked if not request.url.startswith((own, "data:image/jpeg;base64,"))
    ]
    assert others == ([] if url.startswith("file:") else [url])
    page.close()


def url_of(snapshot: Path) -> str:
    return (snapshot / PAGE).as_uri()


def choose(page: Page, **wanted: str) -> None:
    for field, value in wanted.items():
        page.select_option(f"#choose-{field}", f"={value}")
    page.wait_for_timeout(100)


# -- for everybody


@pytest.mark.parametrize(
    ("name", "width", "height", "scheme"),
    [*(("demo_snapshot", *look) for look in LOOKS), ("hostile", *LOOKS[0]), ("hostile", *LOOKS[-1])],
)
def test_it_is_readable(
    browser: Browser, request: pytest.FixtureRequest, name: str, width: int, height: int, scheme: str
) -> None:
    snapshot = request.getfixturevalue(name)
    with opened(browser, url_of(snapshot), width, height, scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        found = Axe().run(page).response["violations"]
        bad = [(v["id"], [node["html"][:200] for node in v["nodes"]][:3]) for v in found
               if v["impact"] in ("serious", "critical")]  # fmt: skip
        assert bad == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page must not scroll sideways"
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, colour[4:-1].split(","))) > 380) == (scheme == "light")
        drawn = page.evaluate(
            "[...document.querySelectorAll('.pictures svg path')].map((path) => getComputedStyle(path).fill)"
        )
        assert page.evaluate("getComputedStyle(document.querySelector('nav a')).color") in drawn, (
            "bars have the accent"
        )
        for box, bars in (("#example", ".events .bar"), (".pictures figure", ".pictures svg path")):
            ratios = page.evaluate(CONTRASTS, [box, bars])
            assert ratios and min(ratios) >= 3, box
        if (name, width) == ("demo_snapshot", 1280):
            cut = "all => all.filter((box) => box.scrollWidth > box.clientWidth).length"
            assert page.locator(".pictures .scroll").evaluate_all(cut) == 0, "no column is cut"


def test_it_is_there_within_a_second(browser: Browser, demo_snapshot: Path) -> None:
    """The best of three: from navigation until all is loaded, painted and the first example shown."""
    seconds = []
    for _ in range(3):
        with opened(browser, url_of(demo_snapshot)) as page:
            page.wait_for_timeout(300)  # the paint is on record somewhat later
            seconds.append(
                page.evaluate(
                    "Math.max(performance.getEntriesByType('navigation')[0].loadEventEnd,"
                    "performance.getEntriesByName('first-contentful-paint')[0].startTime) / 1000"
                )
            )
    assert min(seconds) <= 1.0, seconds


# -- looking at examples


def test_what_a_j3_question_looks_like(browser: Browser, demo_snapshot: Path) -> None:
    with opened(browser, url_of(demo_snapshot)) as page:
        choose(page, category="J3")
        example = page.locator("#example")
        assert example.locator(".marks li").first.inner_text() == "J3"
        assert example.locator(".question").inner_text().endswith("?")
        assert example.locator(".strip img").count() >= 5
        assert example.locator(".strip img").first.evaluate("image => image.complete && image.naturalWidth") > 90
        times = [float(text.split()[0]) for text in example.locator("figcaption").all_inner_texts()]
        assert times == sorted(times)
        assert example.locator(".events .bar").count() > 0
        assert "part000.tar" in example.locator(".from").inner_text()
        commit = json.loads((demo_snapshot / "dataset.json").read_text())["commit"]
        assert commit in example.locator(".from").inner_text()
        assert "of 8" in page.locator("#total").inner_text() or "of 9" in page.locator("#total").inner_text()
        choose(page, kind="benchmark")
        assert "benchmark" in example.locator(".marks").inner_text()
        assert example.locator(".options li").count() >= 2


def test_an_event_lies_over_its_frames(browser: Browser, demo_snapshot: Path) -> None:
    """The bar begins and ends between the middles of the frames between whose times its event begins and ends."""
    with opened(browser, url_of(demo_snapshot)) as page:
        choose(page, category="J3")
        event = page.evaluate("data.examples.find((e) => e.category === 'J3' && e.events.length).events[0]")
        frames = page.locator("#example .strip figure").evaluate_all(
            "all => all.map((one) => [one.getBoundingClientRect().x + one.getBoundingClientRect().width / 2,"
            "parseFloat(one.querySelector('figcaption').textContent)])"
        )
        left, right = page.locator("#example .bar").first.evaluate(
            "bar => [bar.getBoundingClientRect().left, bar.getBoundingClientRect().right]"
        )
        for edge, at in ((left, event["start_seconds"]), (right, event["end_seconds"])):
            before = max((x for x, second in frames if second <= at + 0.1), default=0)
            after = min((x for x, second in frames if second >= at - 0.1), default=1280)
            assert before - 4 <= edge <= after + 4


def test_the_answer_opens_by_mouse_and_by_keyboard_and_stays_open(browser: Browser, demo_snapshot: Path) -> None:
    with opened(browser, url_of(demo_snapshot)) as page:
        choose(page, category="J3")
        answer = page.locator("#example details")
        name = page.locator("#example .events .name").first
        assert not answer.evaluate("details => details.open")
        assert not name.is_visible(), "what happens tells the answer"
        answer.locator("summary").click()
        assert answer.evaluate("details => details.open") and answer.locator(".text").first.is_visible()
        assert name.is_visible() and "P" in answer.locator("text=In them:").inner_text()
        page.locator("#next").click()
        page.wait_for_timeout(100)
        assert page.locator("#number").input_value() == "2"
        assert answer.evaluate("details => details.open")
        answer.locator("summary").press("Enter")
        assert not answer.evaluate("details => details.open")


def test_times_of_a_text_are_said_to_count_from_its_window(browser: Browser, demo_snapshot: Path) -> None:
    with opened(browser, url_of(demo_snapshot)) as page:
        starts = page.evaluate("data.examples.map((one) => data.videos[one.views[0]].start_seconds)")
        for number in (starts.index(0), next(n for n, start in enumerate(starts) if start)):
            page.evaluate(f"go({number})")
            page.wait_for_timeout(50)
            said = page.locator("#example details").evaluate("details => details.textContent")
            note = f"Times in this text count from {starts[number]:.1f} s, where this view begins."
            assert (note in said) == (starts[number] > 0)


def test_names_of_events_are_in_the_part_that_is_seen(browser: Browser, demo_snapshot: Path) -> None:
    with opened(browser, url_of(demo_snapshot), 390, 844) as page:
        page.evaluate("state.isOpen = true")
        ends = page.evaluate(
            "data.examples.map((one) => Math.max(...one.events.map((event) => event.end_seconds ?? 0)))"
        )
        page.evaluate(f"go({ends.index(max(ends))})")
        page.wait_for_timeout(100)
        for scrolled in (0, 10_000):
            box = page.locator("#example .strip").first
            box.evaluate("(box, left) => { box.scrollLeft = left; }", scrolled)
            names = page.locator("#example .name").evaluate_all(
                "all => all.map((one) => [one.getBoundingClientRect().left, one.getBoundingClientRect().right])"
            )
            edges = box.bounding_box()
            assert edges and names
            for left, right in names:
                assert edges["x"] - 1 <= left and right <= edges["x"] + edges["width"] + 1


def test_choices_count_what_the_others_leave(browser: Browser, demo_snapshot: Path) -> None:
    with opened(browser, url_of(demo_snapshot)) as page:
        total = int(page.locator("#total").inner_text().split()[1])

        def counts(field: str) -> list[str]:
            found = page.locator(f"#choose-{field} option").all_inner_texts()[1:]
            return [text.rpartition("(")[2].strip(")") for text in found]

        assert sum(map(int, counts("category"))) == sum(map(int, counts("source"))) == total
        choose(page, kind="benchmark")
        chosen = int(page.locator("#total").inner_text().split()[1])
        assert "none" in counts("source") and "none" not in counts("kind")
        assert sum(int(count) for count in counts("source") if count != "none") == chosen < total
        assert sum(map(int, counts("kind"))) == total, "its own choice does not narrow a field"
        page.get_by_role("button", name="Clear filters").press("Enter")
        page.wait_for_timeout(100)
        assert page.locator("#total").inner_text() == f"of {total} in this file"


def test_choosing_by_keyboard(browser: Browser, demo_snapshot: Path) -> None:
    with opened(browser, url_of(demo_snapshot)) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.keyboard.press("Tab")
        while page.evaluate("document.activeElement.id") != "choose-category":
            page.keyboard.press("Tab")
        page.keyboard.type("J2")
        page.keyboard.press("Tab")
        assert page.locator("#example .marks li").first.inner_text() == "J2"
        first = page.locator("#example .marks").inner_text()
        while page.evaluate("document.activeElement.id") != "next":
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_timeout(100)
        assert page.locator("#number").input_value() == "2"
        assert page.locator("#example .marks").inner_text() != first
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Space")
        page.wait_for_timeout(100)
        assert page.locator("#example .marks").inner_text() == first
        page.locator("#number").fill("3")
        page.keyboard.press("Enter")
        page.wait_for_timeout(100)
        assert page.locator("#number").input_value() == "3"


def test_what_nobody_has_is_said(browser: Browser, demo_snapshot: Path) -> None:
    with opened(browser, url_of(demo_snapshot)) as page:
        choose(page, kind="benchmark", source="tvqa" if page.locator("[value='=tvqa']").count() else "avsbench")
        assert "No example has all of these" in page.locator("#example").inner_text()
        assert page.locator("#next").is_disabled()


# -- the quarantine


def test_what_failed_stands_at_the_top(browser: Browser, hostile: Path) -> None:
    with opened(browser, url_of(hostile), 390, 844) as page:
        top = page.locator(".verdict")
        assert top.locator("h2").inner_text() == "2 of 6 clips failed, 1 more can be used only in part"
        said = top.inner_text()
        assert (
            f"1 clip: clip-missing. No part holds the clip that the row names. {GONE}; 1 row, 0 examples lost"
            in said
        )
        assert f"1 clip: not-media. No demuxer recognises the bytes as audio or video. {LOST}" in said
        assert "1 view, the rest of the clip is used: decode-errors" in said and DAMAGED in said
        assert "3 rows: row-not-json" in said
        assert top.bounding_box()["y"] < 844  # type: ignore[index]


def test_a_cause_leads_to_its_lines(browser: Browser, hostile: Path) -> None:
    with opened(browser, url_of(hostile)) as page:
        page.locator("#filter-words").fill("nobody says this")
        page.locator(".verdict a", has_text="clip-missing").press("Enter")
        shown = page.locator("#things tbody tr:visible")
        kinds = [text.split("\t")[0] for text in shown.all_inner_texts()]
        assert kinds == ["clip", "row"], "the clip has a line, though no part holds it, and its row follows"
        assert shown.nth(1).get_attribute("class") == "consequence"
        assert page.evaluate("scrollY") > 0 and page.url.endswith("#quarantine")


def test_the_quarantine_sorts_and_filters(browser: Browser, hostile: Path) -> None:
    with opened(browser, url_of(hostile)) as page:
        things = page.locator("#things tbody tr")
        shown = page.locator("#things tbody tr:visible")
        at_first = things.all_inner_texts()
        count = len(at_first)
        assert count > 4 and page.locator("#filter-count").inner_text() == f"{count} of {count} shown"

        def column(number: int) -> list[int]:
            """Its numbers; what has none is last, whatever the order."""
            texts = page.locator(f"#things tbody td:nth-child({number})").all_inner_texts()
            found = [int(text) for text in texts if text not in ("", "–")]
            assert all(text in ("", "–") for text in texts[len(found) :])
            return found

        header = page.locator("#things th", has_text="line")
        header.locator("button").click()
        assert header.get_attribute("aria-sort") == "descending"
        lines = column(4)
        assert lines == sorted(lines, reverse=True) and lines[-1] < lines[0]
        header.locator("button").press("Enter")
        assert header.get_attribute("aria-sort") == "ascending" and column(4) == lines[::-1]
        header.locator("button").press("Enter")
        assert header.get_attribute("aria-sort") is None and things.all_inner_texts() == at_first
        lost = page.locator("#things th", has_text="rows lost with it")
        lost.locator("button").click()
        assert column(6) == sorted(column(6), reverse=True)
        page.select_option("#filter-reason", "row-not-json")
        assert shown.count() == 3 and page.locator("#filter-count").inner_text() == f"3 of {count} shown"
        page.select_option("#filter-reason", "")
        page.locator("#filter-words").focus()
        page.keyboard.type("NOT-MEDIA clip ")
        assert 0 < shown.count() < count
        assert all("not-media" in text for text in shown.all_inner_texts())
        page.keyboard.press("Control+a")
        page.keyboard.type("nobody says this")
        assert page.locator("#filter-count").inner_text() == f"0 of {count} shown: no line here has all of these"
        page.get_by_role("button", name="Clear, causes first").click()
        page.wait_for_timeout(100)
        assert things.all_inner_texts() == at_first and shown.count() == count
        top = page.locator("#things thead th").first
        page.locator(".tall").evaluate("box => { box.style.maxHeight = '8rem'; box.scrollTop = 200; }")
        assert top.bounding_box()["y"] >= page.locator(".tall").bounding_box()["y"] - 1, "heads stay"  # type: ignore[index]


# -- texts that mean harm


def test_texts_of_the_data_set_are_shown_as_texts(browser: Browser, hostile: Path) -> None:
    with opened(browser, url_of(hostile)) as page:
        seen = set()
        total = int(page.locator("#total").inner_text().split()[1])
        for _ in range(total):
            seen.add(page.locator("#example .question bdi").evaluate("bdi => bdi.textContent"))
            for summary in page.locator("#example summary").all():
                summary.click()
            assert (
                page.evaluate(
                    "document.querySelectorAll('#example img[src=x], #example script, #example b').length"
                )
                == 0
            )
            if page.locator("#next").is_enabled():
                page.locator("#next").click()
                page.wait_for_timeout(30)
        assert seen == set(TEXTS)
        assert LOST in page.locator("#things").evaluate("table => table.textContent")
        options = page.locator("#choose-source option").all_text_contents()
        assert any(option.startswith("</script><script>") for option in options)
        assert page.evaluate("document.scripts.length") == 2


def test_a_text_from_right_to_left_leaves_its_neighbours_alone(browser: Browser, hostile: Path) -> None:
    with opened(browser, url_of(hostile)) as page:
        isolation = page.evaluate(
            "[...document.querySelectorAll('bdi, svg text')].map((one) => getComputedStyle(one).unicodeBidi)"
        )
        assert set(isolation) == {"isolate"}


# -- the server


def test_the_served_page_shows_all_examples(browser: Browser, demo_snapshot: Path) -> None:
    with PageServer(demo_snapshot, port=0) as server, opened(browser, server.url) as page:
        assert page.locator("#total").inner_text() == "of 202"
        choose(page, category="J3", kind="benchmark")
        expect(page.locator("#total")).to_have_text("of 1")
        assert page.locator("#example .strip img").count() == 12
        page.select_option("#choose-kind", "*")
        expect(page.locator("#total")).to_have_text("of 9")
        page.locator("#number").fill("9")
        page.keyboard.press("Enter")
        expect(page.locator("#example .marks")).to_contain_text("benchmark")
        assert page.locator("#next").is_disabled()


def test_the_served_page_is_as_careful(browser: Browser, hostile: Path) -> None:
    with PageServer(hostile, port=0) as server, opened(browser, server.url, 390, 844, "dark") as page:
        for _ in range(len(TEXTS)):
            page.locator("#next").click()
            page.wait_for_timeout(150)
        source = page.locator("#choose-source option").nth(2).get_attribute("value")
        page.select_option("#choose-source", source)
        page.wait_for_timeout(300)
        assert page.locator("#example .question").count() == 1
        bad = [v["id"] for v in Axe().run(page).response["violations"] if v["impact"] in ("serious", "critical")]
        assert bad == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_server_that_is_gone_is_said(browser: Browser, demo_snapshot: Path) -> None:
    server = PageServer(demo_snapshot, port=0)
    page = browser.new_page()
    with server:
        page.goto(server.url)
        page.wait_for_selector("#example .question")
    page.locator("#next").click()
    expect(page.locator("#example")).to_contain_text("does not answer")
    page.close()
