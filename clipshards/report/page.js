"use strict";
// Shows examples, sorts and filters the quarantine. Every text comes from the data set: it is set as text, never
// parsed. The same script serves the file, where the examples are in the page, and the server, which it asks.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

// A text of the data set: its direction is its own, and ends with it.
const isolated = (text) => make("bdi", "", text);

// -- where examples come from: page(wanted, offset) gives {total, example, videos}

const sources = {
  file: async (wanted, offset) => {
    const found = data.examples.filter((example) =>
      Object.entries(wanted).every(([field, value]) => (example[field] || "") === value));
    return {total: found.length, example: found[offset], videos: data.videos};
  },
  server: async (wanted, offset) => {
    const query = new URLSearchParams({...wanted, offset, limit: 1});
    const answer = await fetch(`api/examples?${query}`);
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error);
    return {total: body.total, example: body.examples[0], videos: body.videos};
  },
};

// -- one example

const seconds = (value) => `${value.toFixed(value < 100 ? 1 : 0)} s`;

function eventWords(event) {
  const who = event.who.filter((person) => person !== event.target).join(", ");
  return [event.kind, [who, event.target].filter(Boolean).join(" → ")].filter(Boolean).join(": ");
}

const inOrder = (events) => events
  .filter((event) => event.start_seconds !== null)
  .sort((one, two) => one.start_seconds - two.start_seconds);

function marks(example) {
  const list = make("ul", "marks");
  const words = [example.category || "no category", example.kind, example.stage, example.source,
    example.difficulty, example.format, example.id];
  words.forEach((word, place) => word && list.append(make("li", place ? "" : "strong", isolated(word))));
  return list;
}

function timeline(events, video, numFrames) {
  // Frames are spread evenly: a time lies between the middles of the columns of the frames around it.
  const first = video.seconds[0], last = video.seconds[video.seconds.length - 1];
  const place = (at) => {
    const share = last > first ? (at - first) / (last - first) : 0;
    return 100 * Math.min(1, Math.max(0, (0.5 + share * (numFrames - 1)) / numFrames));
  };
  const box = make("div", "events");
  box.setAttribute("aria-hidden", "true");
  for (const event of events.slice(0, 16)) {
    const left = place(event.start_seconds), right = place(event.end_seconds ?? event.start_seconds);
    const bar = make("span", event.kind === "gaze" ? "bar" : "bar gesture");
    bar.style.left = `${left}%`;
    bar.style.width = `${Math.max(0.3, right - left)}%`;
    const name = make("span", "name", isolated(eventWords(event)));
    if (right < 62) name.style.left = `calc(${right}% + .3rem)`;
    else if (left > 38) name.style.right = `calc(${100 - left}% + .3rem)`;
    else name.style.left = `calc(${left}% + .3rem)`;
    box.append(make("div", "row", bar, name));
  }
  return box;
}

function strip(video, events, clipName) {
  const inner = make("div", "inner");
  const count = video.frames.length;
  inner.style.gridTemplateColumns = `repeat(${count}, minmax(6.5rem, 1fr))`;
  const timed = inOrder(events);
  if (timed.length && count) inner.append(timeline(timed, video, count));
  video.frames.forEach((frame, number) => {
    const image = make("img");
    image.src = frame;
    image.alt = `Frame at ${seconds(video.seconds[number])}`;
    image.width = video.width;
    image.height = video.height;
    inner.append(make("figure", "", image, make("figcaption", "", seconds(video.seconds[number]))));
  });
  const box = make("div", "strip", inner);
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `Stored frames of ${clipName}`);
  const whole = video.start_seconds === null;
  const window = whole ? "the whole clip" : `${seconds(video.start_seconds)} to ${seconds(video.end_seconds)} of the clip`;
  const note = make("p", "small", `${count} of ${video.num_frames} stored frames, ${video.width} × ${video.height} pixels, ${window}. Times are seconds in the clip.`);
  return [box, note];
}

function eventList(example) {
  const box = make("div", "", make("h3", "", "Gaze and gestures"));
  const timed = inOrder(example.events);
  const untimed = example.events.filter((event) => event.start_seconds === null);
  const add = (title, texts) => {
    if (!texts.length) return;
    box.append(make("p", "small", title), make("ul", "list", ...texts.map((text) => make("li", "", isolated(text)))));
  };
  const span = (event) => event.end_seconds === null
    ? `at ${seconds(event.start_seconds)}` : `${event.start_seconds.toFixed(1)}–${seconds(event.end_seconds)}`;
  add("On the time line", timed.map((event) => `${span(event)}  ${eventWords(event)}`));
  add("Without times", untimed.map(eventWords));
  add("Named in the answer, without times", example.said);
  const people = [...new Set(example.events.flatMap((event) => event.who))].sort();
  if (people.length) box.append(make("p", "small", `In them: ${people.join(", ")}`));
  if (box.children.length === 1) box.append(make("p", "small", "The row names no events."));
  return box;
}

function answer(example) {
  const box = make("details", "", make("summary", "", "Show the answer"));
  const add = (title, text) => text &&
    box.append(make("p", "small", title), make("div", "text", isolated(text)));
  add("Answer", example.answer);
  add("Text to learn", example.target !== example.answer && example.target);
  add("Full response", example.response);
  if (box.children.length === 1) box.append(make("p", "", "The row has no answer."));
  return box;
}

function question(example) {
  const box = make("div", "", make("div", "question", isolated(example.question)));
  const options = example.options.map((option) => make("li", "", isolated(option)));
  if (options.length) box.append(make("ol", "options", ...options));
  box.append(answer(example));
  return box;
}

function provenance(from) {
  const line = make("p", "from", "From ");
  line.append(make("code", "", isolated(from.part)), ", clip ", make("code", "", isolated(from.clip)),
    ` at byte ${from.offset_bytes.toLocaleString("en")}, commit `, make("code", "", from.commit),
    "; stored in ", make("code", "", from.shard), ` at byte ${from.shard_offset_bytes.toLocaleString("en")}.`);
  return line;
}

function draw(example, videos) {
  if (example.trouble) return [marks(example), make("p", "", `It cannot be shown: ${example.trouble}`)];
  const shown = example.views.flatMap((key, number) =>
    strip(videos[key], number ? [] : example.events, videos[key].clip));
  const more = example.num_views - example.views.length;
  if (more > 0) shown.push(make("p", "small", `And ${more} more videos.`));
  return [marks(example), ...shown, make("div", "columns", question(example), eventList(example)), provenance(example.from)];
}

// -- choosing

const state = {wanted: {}, offset: 0, asked: 0};

async function show() {
  const asked = ++state.asked;
  const box = byId("example");
  let page;
  try {
    page = await sources[data.mode](state.wanted, state.offset);
  } catch (error) {
    page = {total: 0, trouble: `The server does not answer: ${error.message}`};
  }
  if (asked !== state.asked) return;  // a later choice is on its way
  byId("total").textContent = `of ${page.total.toLocaleString("en")}${data.is_sample ? " in this file" : ""}`;
  byId("number").value = page.total ? state.offset + 1 : 0;
  byId("number").max = page.total;
  byId("previous").disabled = state.offset <= 0;
  byId("next").disabled = state.offset >= page.total - 1;
  const nothing = page.trouble || "No example has all of these. Choose “all” somewhere.";
  box.replaceChildren(...(page.example ? draw(page.example, page.videos) : [make("p", "", nothing)]));
  state.total = page.total;
}

function go(offset) {
  state.offset = Math.min(Math.max(0, offset), Math.max(0, state.total - 1));
  return show();
}

byId("choose").addEventListener("submit", (event) => event.preventDefault());
byId("choose").addEventListener("change", () => {
  // "=" leads a value, so that an empty one is not "all".
  const chosen = [...byId("choose").querySelectorAll("select")].filter((select) => select.value !== "*");
  state.wanted = Object.fromEntries(chosen.map((select) => [select.dataset.field, select.value.slice(1)]));
  state.offset = 0;
  show();
});
byId("previous").addEventListener("click", () => go(state.offset - 1));
byId("next").addEventListener("click", () => go(state.offset + 1));
byId("number").addEventListener("change", (event) => go((Math.round(event.target.valueAsNumber) || 1) - 1));
show();

// -- the quarantine

const things = byId("things");

function filterThings() {
  const reason = byId("filter-reason").value;
  const words = byId("filter-words").value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of things.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    const fits = (!reason || row.cells[1].textContent === reason) && words.every((word) => text.includes(word));
    row.hidden = !fits;
    count += fits;
  }
  byId("filter-count").textContent = `${count.toLocaleString("en")} shown`;
}

function sortThings(header) {
  const column = header.cellIndex;
  const order = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const compare = new Intl.Collator("en", {numeric: true}).compare;
  const key = (row) => row.cells[column].textContent;
  const rows = [...things.tBodies[0].rows].sort((one, two) => sign * compare(key(one), key(two)));
  things.tBodies[0].append(...rows);
}

if (things) {
  byId("filter").addEventListener("submit", (event) => event.preventDefault());
  byId("filter").addEventListener("input", filterThings);
  for (const button of things.querySelectorAll(".sort")) {
    button.addEventListener("click", () => sortThings(button.closest("th")));
  }
  filterThings();
}
