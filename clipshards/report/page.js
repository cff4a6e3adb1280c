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

// -- where examples come from: (wanted, offset) gives {total, example, videos, counts}

const fits = (example, wanted) =>
  Object.entries(wanted).every(([field, value]) => (example[field] || "") === value);

// By field its values, with how many examples have them and what is wanted of the other fields.
function countChoices(wanted) {
  const counts = {};
  for (const field of ["kind", "source", "category", "difficulty"]) {
    const {[field]: own, ...others} = wanted;
    const found = counts[field] = Object.create(null);
    for (const example of data.examples.filter((one) => fits(one, others))) {
      const value = example[field] || "";
      found[value] = (found[value] || 0) + 1;
    }
  }
  return counts;
}

const sources = {
  file: async (wanted, offset) => {
    const found = data.examples.filter((example) => fits(example, wanted));
    return {total: found.length, example: found[offset], videos: data.videos, counts: countChoices(wanted)};
  },
  server: async (wanted, offset) => {
    const query = new URLSearchParams({...wanted, offset, limit: 1});
    const answer = await fetch(`api/examples?${query}`);
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error);
    return {...body, example: body.examples[0]};
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
  const words = [example.category || "category not stated", example.kind, example.stage, example.source,
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
    // The name follows the bar, or leads it, or lies on it, but stays where it is seen (it is sticky).
    const leads = right >= 62 && left > 38;
    const gap = make("span");
    gap.style.width = `${leads ? 100 - left : right < 62 ? right : left}%`;
    box.append(make("div", leads ? "row leads" : "row", bar, gap, name));
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
  add("Named in the tags of the answer; the tags carry no times", example.said);
  const people = [...new Set(example.events.flatMap((event) => event.who))].sort();
  if (people.length) box.append(make("p", "small", `In them: ${people.join(", ")}`));
  if (box.children.length === 1) box.append(make("p", "small", "The row names no events."));
  return box;
}

function answer(example, start) {
  const box = make("div");
  const add = (title, text) => text &&
    box.append(make("p", "small", title), make("div", "text", isolated(text)));
  add("Answer", example.answer);
  add("Text to learn", example.target !== example.answer && example.target);
  add("Full response", example.response);
  if (!box.children.length) return make("p", "", "The row has no answer.");
  // As the trainer's prompt counts them.
  if (start > 0) box.append(make("p", "small", `Times in this text count from ${seconds(start)}, where this view begins.`));
  return box;
}

function question(example) {
  const box = make("div", "", make("div", "question", isolated(example.question)));
  const options = example.options.map((option) => make("li", "", isolated(option)));
  if (options.length) box.append(make("ol", "options", ...options));
  return box;
}

// Events tell the answer of many questions: they open with it, and stay open from one example to the next.
function solution(example, start) {
  const box = make("details", "", make("summary", "", "Answer and events"),
    make("div", "columns", answer(example, start), eventList(example)));
  box.open = state.isOpen;
  box.addEventListener("toggle", () => { state.isOpen = box.open; });
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
  return [marks(example), ...shown, question(example),
    solution(example, videos[example.views[0]].start_seconds), provenance(example.from)];
}

// -- choosing

const state = {wanted: {}, offset: 0, asked: 0, isOpen: false};

const selects = [...byId("choose").querySelectorAll("select")];
for (const option of byId("choose").querySelectorAll("option")) option.dataset.name = option.textContent;

function nameChoices(counts) {
  for (const select of selects) {
    for (const option of [...select.options].slice(1)) {
      const count = counts[select.dataset.field][option.value.slice(1)];
      const none = data.lacks_some ? "none in this file" : "none";
      option.textContent = `${option.dataset.name} (${count ? count.toLocaleString("en") : none})`;
    }
  }
}

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
  if (page.counts) nameChoices(page.counts);
  const where = data.lacks_some ? " in this file" : "";
  const nothing = page.trouble || `No example${where} has all of these. Choose “all” somewhere.`;
  box.replaceChildren(...(page.example ? draw(page.example, page.videos) : [make("p", "", nothing)]));
  state.total = page.total;
}

function go(offset) {
  state.offset = Math.min(Math.max(0, offset), Math.max(0, state.total - 1));
  return show();
}

byId("choose").addEventListener("submit", (event) => event.preventDefault());
function choose() {
  // "=" leads a value, so that an empty one is not "all".
  const chosen = selects.filter((select) => select.value !== "*");
  state.wanted = Object.fromEntries(chosen.map((select) => [select.dataset.field, select.value.slice(1)]));
  state.offset = 0;
  show();
}
byId("choose").addEventListener("change", choose);
byId("choose").addEventListener("reset", () => setTimeout(choose));  // then the selects are reset
byId("previous").addEventListener("click", () => go(state.offset - 1));
byId("next").addEventListener("click", () => go(state.offset + 1));
byId("number").addEventListener("change", (event) => go((Math.round(event.target.valueAsNumber) || 1) - 1));
show();

// -- the quarantine

const things = byId("things");
const lines = things ? [...things.tBodies[0].rows] : [];

function filterThings() {
  const reason = byId("filter-reason").value;
  const words = byId("filter-words").value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of lines) {
    const text = row.textContent.toLowerCase();
    row.hidden = (reason && row.cells[1].textContent !== reason) || !words.every((word) => text.includes(word));
    count += !row.hidden;
  }
  const nothing = count ? "" : ": no line here has all of these";
  byId("filter-count").textContent = `${count.toLocaleString("en")} of ${lines.length.toLocaleString("en")} shown${nothing}`;
}

// One way, the other way, and back to causes first; numbers from the largest on, what has none last.
function sortThings(header) {
  const orders = "number" in header.dataset ? ["descending", "ascending"] : ["ascending", "descending"];
  const order = orders[orders.indexOf(header.getAttribute("aria-sort")) + 1];
  unsort();
  if (!order) return;
  header.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const compare = new Intl.Collator("en", {numeric: true}).compare;
  const key = (row) => row.cells[header.cellIndex].textContent.replace("–", "");
  things.tBodies[0].append(...[...lines].sort((one, two) =>
    !key(one) - !key(two) || sign * compare(key(one), key(two))));
}

function unsort() {
  for (const header of things.tHead.rows[0].cells) header.removeAttribute("aria-sort");
  things.tBodies[0].append(...lines);
}

if (things) {
  byId("filter").addEventListener("submit", (event) => event.preventDefault());
  byId("filter").addEventListener("input", filterThings);
  byId("filter").addEventListener("reset", () => setTimeout(() => { unsort(); filterThings(); }));
  for (const button of things.querySelectorAll(".sort")) {
    button.addEventListener("click", () => sortThings(button.closest("th")));
  }
  for (const link of document.querySelectorAll("[data-reason]")) {
    link.addEventListener("click", () => {
      byId("filter-words").value = "";
      byId("filter-reason").value = link.dataset.reason;
      filterThings();
    });
  }
  filterThings();
}
