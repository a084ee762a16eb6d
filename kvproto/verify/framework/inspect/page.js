"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const moments = data.moments;
const byId = (id) => document.getElementById(id);
const make = (tag, kind, text) => {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
};
const start = moments.reduce((least, m) => Math.min(least, m.time), Infinity);
const stamp = (time) => (data.graph ? String(time) : ((time - start) * 1e3).toFixed(3));   // of a world: the number of its step
const when = (m) => (data.graph ? "step " + m.time : stamp(m.time) + " ms");
const MANY = 6;   // subjects that are shown together unless one is asked for
let shown = [];   // indices of the moments that pass the filters
let at = 0;       // index of the current moment

// ------------------------------------------------------------------------------------------------ filters
function choices(select, values, every) {
  const chosen = select.value;
  select.replaceChildren(new Option(every, ""), ...values.map((value) => new Option(value, value)));
  if (values.includes(chosen)) select.value = chosen;
}
const told = () => (data.graph ? Object.values(data.graph.told).flat() : moments);   // whatever may be shown
const distinct = (key) => [...new Set(told().map((m) => m[key]).filter((v) => v !== null && v !== undefined))].map(String);
let several = false;   // subjects: then each line says which
function offer() {
  choices(byId("subject"), distinct("subject"), "all");
  choices(byId("part"), distinct("part").sort(), "all");
  choices(byId("party"), data.parties, "all");
  several = byId("subject").length > 2;
}
offer();
for (const id of ["parts", "aside"]) byId(id).hidden = !byId(id).firstElementChild.textContent;   // words that a protocol may lack

function passes(m) {
  const subject = byId("subject").value, part = byId("part").value, party = byId("party").value;
  const link = m.subject === null || m.subject === undefined;
  if (link && (!byId("links").checked || subject || part)) return false;
  return (!subject || m.subject === subject) && (!party || m.party === party) && (!part || String(m.part) === part);
}

// --------------------------------------------------------------------------------------------------- list
function line(index) {
  const row = bare(moments[index]);
  row.dataset.index = index;
  row.classList.toggle("differs", Boolean(data.difference) && data.difference[0] === index);
  row.onclick = () => go(index);
  return row;
}

function bare(m) {
  const row = make("div", "moment");
  const text = make("span");
  if (m.kind === "step") {
    text.append(make("span", m.source ? "" : "quiet", m.event + " "));
    if (m.from !== m.to) text.append(make("span", "to", m.who + ": " + m.to));
    else text.append(make("span", "quiet", m.who));
    if (m.row === null) text.append(make("span", "fate", " no row"));
  } else {
    text.append(make("span", "mail", (m.kind === "sent" ? "→ " : "← ") + m.peer + " " + m.text));
    if (m.fate) text.append(make("span", "fate", " " + m.fate));
  }
  row.append(make("span", "time", stamp(m.time)), make("span", "party", m.party));
  row.append(make("span", "subject", several && m.subject ? m.subject : ""), text);
  return row;
}

// ------------------------------------------------------------------------------------------------- beside
function beside() {
  document.body.classList.toggle("two", Boolean(data.beside));
  if (!data.beside) return;
  const host = byId("beside");
  host.append(make("h3", "", data.beside.title));
  data.beside.moments.forEach((m, index) => {
    const row = bare(m);
    row.classList.toggle("differs", Boolean(data.difference) && data.difference[1] === index);
    host.append(row);
  });
}

// ------------------------------------------------------------------------------------------------- search
const refused = (m) => m.kind === "step" && (m.row === null || data.machines[m.machine].refusals.includes(m.row));
const words = (m) => (m.kind === "step" ? [m.event, m.who, m.from, m.to, m.track, ...m.effects] : [m.text, m.peer, m.kind, m.fate])
  .concat(m.party, m.subject || "").join(" ").toLowerCase();
const jumps = {
  hit: () => { const asked = byId("search").value.trim().toLowerCase(); return asked ? (m) => words(m).includes(asked) : null; },
  refusal: () => refused,
  timer: () => (m) => m.source === "timer",
  same: () => { const here = moments[at]; return here.row === undefined ? null : (m) => m.machine === here.machine && m.row === here.row; },
};

function jump(what) {
  const wanted = jumps[what]();
  const after = [...shown.filter((i) => i > at), ...shown.filter((i) => i <= at)];   // and once around
  const found = wanted && after.find((i) => wanted(moments[i]));
  byId("found").textContent = found === undefined || found === null ? "none" : found === at ? "no other" : "";
  if (found !== undefined && found !== null) go(found);
}

// ----------------------------------------------------------------------------------------------- sequence
const AROUND = 150;   // moments before and after this one that are drawn
function draw(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const READABLE = 0.85;   // labels are not made smaller than this unless somebody asks
let zoom = 0;            // 0: as wide as the view, as far as labels stay readable
function zooms() {
  const bar = make("div");
  bar.id = "zoom";
  for (const [text, title, next] of [["−", "smaller", () => (zoom || 1) / 1.25], ["+", "larger", () => (zoom || 1) * 1.25], ["fit", "as wide as the view", () => 0]]) {
    const button = make("button", "", text);
    button.title = title;
    button.onclick = () => { zoom = next(); sequence(); };
    bar.append(button);
  }
  return bar;
}

function sequence() {
  const host = byId("sequence");
  host.textContent = "";
  if (!host.offsetParent || !shown.length) return;
  const here = Math.max(shown.indexOf(at), 0), near = shown.slice(Math.max(here - AROUND, 0), here + AROUND);
  const gap = Math.max(230, Math.min(420, (host.clientWidth - 60) / Math.max(data.parties.length, 2)));
  const x = Object.fromEntries(data.parties.map((party, i) => [party, gap / 2 + gap * i]));
  const heard = new Map();
  for (const i of near) if (moments[i].kind === "heard" && moments[i].cause !== null) heard.set(moments[i].cause, i);
  const told = near.filter((i) => {
    const m = moments[i];
    return m.kind === "sent" || (m.kind === "step" && (m.from !== m.to || refused(m))) || (m.kind === "heard" && m.fate);
  });
  const width = gap * data.parties.length, height = 24 + 19 * told.length, scale = zoom || Math.max(host.clientWidth / width - 0.05, READABLE);
  const size = (high) => ({ viewBox: "0 0 " + width + " " + high, width: width * Math.min(scale, zoom || 1), height: high * Math.min(scale, zoom || 1) });
  const svg = draw("svg", size(height)), heads = draw("svg", { ...size(20), class: "names" });
  for (const party of data.parties) {
    svg.append(draw("line", { class: "life", x1: x[party], x2: x[party], y1: 0, y2: height }));
    heads.append(draw("text", { class: "head", x: x[party], y: 14, "text-anchor": "middle" }, party));
  }
  told.forEach((i, place) => {
    const m = moments[i], y = 18 + 19 * place, lost = m.fate === "lost";
    const group = draw("g", { class: (m.kind === "step" ? "note" : "") + (lost ? " lost" : "") + (i === at || heard.get(i) === at ? " lit" : "") });
    group.append(draw("rect", { x: 0, y: y - 13, width, height: 18 }));
    if (m.kind === "step" || m.kind === "heard" || x[m.peer] === undefined) {
      const text = m.kind === "step" ? m.who + ": " + (refused(m) ? m.event + " refused" : m.to) : m.text + " " + m.fate;
      group.append(draw("text", { x: x[m.party], y, "text-anchor": "middle" }, text));
    } else {
      const from = x[m.party], to = x[m.peer], end = lost ? from + (to - from) * 0.7 : to, head = end > from ? -6 : 6;
      group.append(draw("path", { class: "arrow", d: "M" + from + " " + y + "H" + end + (lost ? "m-4 -4l8 8m0 -8l-8 8" : "m" + head + " -3l" + -head + " 3l" + head + " 3") }));
      group.append(draw("text", { x: (from + to) / 2, y: y - 3, "text-anchor": "middle" }, m.text.length > 34 ? m.text.slice(0, 33) + "…" : m.text));
    }
    group.append(draw("title", {}, stamp(m.time) + " ms  " + (m.text || m.event)));
    group.onclick = () => go(i);
    svg.append(group);
  });
  const top = make("div", "heads");
  top.append(zooms(), heads);
  host.append(top, svg);
  const past = told.filter((i) => i <= at).length;   // what is not drawn itself stands after the last that is
  const lit = host.querySelector(".lit") || svg.querySelectorAll("g")[Math.max(past - 1, 0)];
  if (lit) lit.scrollIntoView({ block: "nearest" });
}

function tab(name) {
  document.body.dataset.tab = name;
  for (const each of document.querySelectorAll("#tabs button")) each.classList.toggle("chosen", each.dataset.tab === name);
  sequence();
  if (shown.length) remember();
  const lit = document.querySelector(".moment.lit");
  if (lit) lit.scrollIntoView({ block: "nearest" });
}

// ---------------------------------------------------------------------------------------------- timelines
function timelines() {
  const host = byId("timelines"), tracks = new Map();
  host.textContent = "";
  for (const index of shown) {
    const m = moments[index];
    if (m.kind !== "step") continue;
    const key = m.party + " " + m.track;
    if (!tracks.has(key)) tracks.set(key, { party: m.party, who: m.who, subject: m.subject, machine: m.machine, slices: [] });
    const slices = tracks.get(key).slices;
    if (!slices.length || slices[slices.length - 1].state !== m.to) slices.push({ state: m.to, index });
  }
  const place = new Map(shown.map((index, i) => [index, i]));   // by order: what took long does not hide the rest
  const width = Math.max(shown.length, 1);
  for (const track of tracks.values()) {
    const row = make("div", "track"), name = make("div", "name"), bar = make("div", "bar");
    name.append(make("b", "", track.party), (several && track.subject ? " " + track.subject : "") + " " + track.who);
    track.slices.forEach((slice, i) => {
      const from = place.get(slice.index);
      const over = data.machines[track.machine].final.includes(slice.state);   // it is told, and lasts for ever
      const rest = over ? Math.min(width, from + Math.max(2, Math.ceil(width / 16))) : width;
      const to = i + 1 < track.slices.length ? place.get(track.slices[i + 1].index) : rest;
      if (to === from) return;
      const box = document.getElementById(track.machine + "." + slice.state);
      const drawn = make("div", "slice " + (box ? [...box.classList].pop() : ""), slice.state);
      drawn.style.left = (100 * from) / width + "%";
      drawn.style.width = (100 * (to - from)) / width + "%";
      drawn.title = slice.state + " from " + stamp(moments[slice.index].time) + " ms";
      drawn.dataset.from = from;
      drawn.dataset.to = to;
      drawn.onclick = () => go(slice.index);
      bar.append(drawn);
    });
    bar.append(make("div", "cursor"));
    row.append(name, bar);
    host.append(row);
  }
  host.dataset.width = width;
  timelines.place = place;
}

function cursor() {
  const place = timelines.place.get(at);
  if (place === undefined) return;
  const width = Number(byId("timelines").dataset.width);
  for (const each of document.querySelectorAll(".cursor")) each.style.left = (100 * place) / width + "%";
  for (const each of document.querySelectorAll(".slice"))
    each.classList.toggle("lit", Number(each.dataset.from) <= place && place < Number(each.dataset.to));
}

// ------------------------------------------------------------------------------------------------- detail
function part(host, title, entries) {
  if (!entries.length) return;
  host.append(make("h3", "", title));
  const list = make("ul");
  for (const entry of entries) {
    const item = make("li");
    item.append(typeof entry === "string" ? make("code", "", entry) : entry);
    list.append(item);
  }
  host.append(list);
}

function link(index) {
  const m = moments[index];
  const anchor = make("a", "", m.party + ": " + (m.kind === "step" ? m.event : m.kind + " " + m.text));
  anchor.onclick = () => go(index);
  return anchor;
}

function detail() {
  const host = byId("detail"), m = moments[at];
  host.textContent = "";
  host.append(make("h2", "", m.kind === "step" ? m.event.split("(")[0] : m.text.split(" ")[0]));
  const what = m.kind === "step" ? m.party + ", " + m.who : m.party + (m.kind === "sent" ? " tells " : " hears from ") + m.peer;
  host.append(make("p", "", what + ", at " + when(m) + (m.source ? ", from the " + m.source : "")));
  if (m.kind === "step") {
    host.append(make("p", "", m.from === m.to ? "stays " + m.to : m.from + " → " + m.to));
    part(host, "row", m.row === null ? ["there is none"] : ["row " + m.row + ": " + data.machines[m.machine].rows[m.row]]);
    host.append(make("h3", "", "event"));
    const table = make("table");
    for (const [name, value] of Object.entries(m.fields).filter(([name]) => name !== "type")) {
      const row = make("tr");
      row.append(make("td", "", name), make("td", "", typeof value === "object" ? JSON.stringify(value) : String(value)));
      table.append(row);
    }
    host.append(table);
    part(host, "effects", m.effects);
  } else if (m.fate) part(host, "fate", [m.fate]);
  if (m.kind !== "step") part(host, "message", [m.text]);
  part(host, "because of", m.cause === null ? [] : [link(m.cause)]);
  part(host, "led to", moments.map((each, i) => [each, i]).filter(([each]) => each.cause === at).map(([, i]) => link(i)));
}

// ------------------------------------------------------------------------------------------------ picture
function picture() {
  let index = at;   // of a message, the machine that it came from or led to
  if (moments[index].kind === "sent" && moments[index].cause !== null) index = moments[index].cause;
  if (moments[index].kind === "heard") index = moments.findIndex((m) => m.cause === at && m.kind === "step");
  const m = index < 0 ? null : moments[index];
  for (const each of document.querySelectorAll(".picture")) {
    const ours = m !== null && each.dataset.machine === m.machine;
    each.classList.toggle("shown", ours);
    for (const drawn of each.querySelectorAll(".box,.edge")) drawn.classList.remove("now", "from", "lit");
    if (!ours) continue;
    each.classList.toggle("dim", m.from !== m.to);
    document.getElementById(m.machine + "." + m.from).classList.add("from");
    const now = document.getElementById(m.machine + "." + m.to);
    now.classList.add("now");
    for (const edge of each.querySelectorAll(".edge"))
      edge.classList.toggle("lit", edge.dataset.rows.split(" ").includes(String(m.row)));
  }
}

// --------------------------------------------------------------------------------------------- where we are
function go(index) {
  at = index;
  for (const each of document.querySelectorAll(".moment")) {
    each.classList.toggle("lit", Number(each.dataset.index) === at);
    each.classList.toggle("because", Number(each.dataset.index) === moments[at].cause);
  }
  const lit = document.querySelector(".moment.lit");
  if (lit) lit.scrollIntoView({ block: "nearest" });
  const some = shown.length < moments.length ? " (" + shown.length + " shown)" : "";
  byId("where").textContent = "event " + (at + 1) + " of " + moments.length + some + "   " + when(moments[at]);   // as in the address
  detail();
  picture();
  cursor();
  sequence();
  remember();
}

function remember() {
  history.replaceState(null, "", "#" + place.word() + "," + (document.body.dataset.tab || ""));
}

// the first word of the address: the number of the event, from 1 on
const place = {
  word: () => (data.follow && at === moments.length - 1 ? "last" : String(at + 1)),
  take: (word) => {
    const number = word === "last" ? moments.length : Number(word);
    if (!(number >= 1 && number <= moments.length)) return false;
    at = number - 1;
    if (shown.includes(at)) go(at);
    else unfilter();
    return true;
  },
};

function unfilter() {
  const m = moments[at];
  for (const id of ["subject", "part", "party"]) byId(id).value = "";
  if (m.subject === null || m.subject === undefined) byId("links").checked = true;
  else if (distinct("subject").length > MANY) byId("subject").value = m.subject;
  refilter();
}

function arrive() {
  const [word, view] = location.hash.slice(1).split(",");
  const known = place.take(word);
  if (views.includes(view)) tab(view);
  return known;
}

function walk(steps) {
  const place = shown.indexOf(at), next = Math.min(Math.max(place + steps, 0), shown.length - 1);
  if (shown.length) go(shown[next]);
}

function refilter() {
  shown = moments.map((_, i) => i).filter((i) => passes(moments[i]));
  byId("list").replaceChildren(...shown.map(line));
  timelines();
  if (shown.length) go(shown.includes(at) ? at : shown[0]);
  else byId("where").textContent = "nothing passes the filters";
}

byId("title").textContent = data.title;
byId("differences").hidden = !data.differences.length;
byId("differences").textContent = data.differences.join("\n");
for (const id of ["subject", "part", "party", "links"]) byId(id).onchange = refilter;
byId("first").onclick = () => walk(-moments.length);
byId("back").onclick = () => walk(-1);
byId("next").onclick = () => walk(1);
byId("last").onclick = () => walk(moments.length);
byId("theme").onclick = () => {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
};
for (const id of Object.keys(jumps)) byId(id).onclick = () => jump(id);
for (const each of document.querySelectorAll("#tabs button")) each.onclick = () => tab(each.dataset.tab);
byId("search").onkeydown = (event) => {
  if (event.key === "Enter") jump("hit");
  if (event.key === "Escape") byId("search").blur();
};
const KEYS = { ArrowLeft: () => walk(-1), ArrowRight: () => walk(1), Home: () => walk(-moments.length), End: () => walk(moments.length),
  n: () => jump("hit"), r: () => jump("refusal"), t: () => jump("timer"), w: () => jump("same"), "/": () => byId("search").focus() };
document.onkeydown = (event) => {
  const act = KEYS[event.key];
  if (act === undefined || ["SELECT", "INPUT"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
};
window.onresize = sequence;
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
const NARROW = 1000;
const views = [...document.querySelectorAll("#tabs button")].map((each) => each.dataset.tab);
if (!data.graph && distinct("subject").length > MANY) byId("subject").value = distinct("subject")[0];
const asked = location.hash;
refilter();
beside();
tab(innerWidth > NARROW ? "pictures" : data.graph ? "explore" : "list");
if (asked) history.replaceState(null, "", asked);   // what was shown meanwhile is no place that was asked for
if (!arrive() && data.difference) {
  go(data.difference[0]);
  const other = document.querySelector("#beside .differs");
  if (other) other.scrollIntoView({ block: "center" });
}
window.onhashchange = arrive;
if (data.follow) {
  byId("following").hidden = false;
  setTimeout(() => byId("follow").checked && location.reload(), data.follow * 1000);
  byId("follow").onchange = () => byId("follow").checked && location.reload();
}
