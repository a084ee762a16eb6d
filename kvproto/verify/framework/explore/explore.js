// ------------------------------------------------------------------------------------------------- explore
// The page's moments are those of the way so far: the places of the steps that were chosen, one after the other.
let graph = data.graph;
let way = [];

function trail() {   // the states on the way; the last step may lead nowhere, since it breaks a property
  const states = [0];
  for (const choice of way) {
    const target = graph.next[states[states.length - 1]][choice][2];
    if (target !== null) states.push(target);
  }
  return states;
}
const stepsOf = (state) => graph.next[state] || [];
const parts = (state) => graph.states[state].map((number) => graph.parts[number]);
const mail = (state) => parts(state).flatMap((part) => part.mail || []).map((m) => m.from + " " + m.to + " " + m.said);

// --------------------------------------------------------------------------------------------------- telling
function tell(list, time, free) {
  const base = moments.length;
  for (const m of list) {
    const told = { ...m, index: moments.length, time, cause: m.cause === null ? null : base + m.cause };
    if (m.kind === "heard" && told.cause === null) {
      const place = free.findIndex((i) => moments[i].peer === m.party && moments[i].party === m.peer && moments[i].text === m.text);
      if (place >= 0) told.cause = free.splice(place, 1)[0];
    }
    moments.push(told);
    if (m.kind === "sent") free.push(told.index);
  }
}

function lose(before, after, free) {   // what was under way, and is not any more, and was heard by nobody
  const left = mail(after);
  for (const each of mail(before)) {
    const still = left.indexOf(each);
    if (still >= 0) { left.splice(still, 1); continue; }
    const [from, to, name] = each.split(" ");
    const place = free.findIndex((i) => moments[i].party === from && moments[i].peer === to && moments[i].text.split(" ")[0] === name);
    if (place >= 0) moments[free.splice(place, 1)[0]].fate = "lost";
  }
}

function retell() {
  const states = trail(), free = [];
  moments.length = 0;
  way.forEach((choice, n) => {
    const [, kind, target, list] = graph.next[states[n]][choice];
    if (kind === "fault" && target !== null) lose(states[n], target, free);
    tell(graph.told[list], n + 1, free);
  });
}

// ------------------------------------------------------------------------------------------------- the panel
function button(kind, text, act, title) {
  const made = make("button", kind, text);
  made.type = "button";
  made.onclick = act;
  if (title) made.title = title;
  return made;
}

const copier = (text, copied, title) => button("", text, () => navigator.clipboard && navigator.clipboard.writeText(copied()), title);
function choose(choice) { travel([...way, choice]); }
function takeBack() { if (way.length) travel(way.slice(0, -1)); }

function controls(host) {
  const bar = make("p", "controls");
  bar.append(
    button("", "◀ take back", takeBack, "the last step (Backspace)"), " ",
    button("", "start over", () => travel([]), "the first state"), " ",
    copier("copy link", () => location.href, "the address leads to this state"),
  );
  host.append(make("h3", "", graph.world + (graph.about ? ": " + graph.about : "")), bar);
}

const recorded = (choices) => graph.command + (choices.length ? " --way " + choices.join(".") : "");

function beyond(list) {   // the same choices lead to the same state of every recording of this world
  const command = recorded(way);
  list.append(
    make("p", "fact", "Nothing beyond this state was recorded. A page that begins here, with this way:"), make("pre", "", command),
    copier("copy command", () => command, command),
  );
}

function nextSteps(host, state, broken) {
  const list = make("div", "steps");
  host.append(list);
  if (broken) return list.append(make("p", "broken", broken));
  const steps = stepsOf(state).map((step, n) => [step, n]);
  for (const [kind, heading] of Object.entries(graph.headings)) {
    const these = steps.filter(([step]) => step[1] === kind);
    if (!these.length) continue;
    list.append(make("h3", "", heading));
    for (const [step, n] of these) {
      const made = button(kind, (n < 9 ? n + 1 + "  " : "") + graph.phrases[step[0]] + (step[4] ? "  ✗ " + step[4] : ""), () => choose(n));
      made.dataset.choice = n;
      list.append(made);
    }
  }
  if (graph.next[state] === null) beyond(list);
  else if (!steps.length) list.append(make("p", graph.unrest[state] ? "broken" : "fact", graph.unrest[state] || "Nothing can happen any more: the world is at rest."));
}

function ring(host, told) {
  const bar = make("div", "ring");
  bar.title = "ring of " + told.size + " bytes; watermark: round " + told.mark[0] + ", offset " + told.mark[1];
  for (const region of told.regions) {
    const made = make("div", "region" + (region.round > told.mark[0] ? " ahead" : ""), region.said + " " + region.state);
    made.style.left = (100 * region.from) / told.size + "%";
    made.style.width = (100 * (region.to - region.from)) / told.size + "%";
    made.title = "bytes " + region.from + " to " + region.to + " of round " + region.round;
    bar.append(made);
  }
  host.append(make("p", "fact", "ring: " + bar.title.slice(8)), bar);
}

function showMachine(machine) {
  for (const each of document.querySelectorAll(".picture")) {
    const ours = each.dataset.machine === machine.machine;
    each.classList.toggle("shown", ours);
    for (const drawn of each.querySelectorAll(".box,.edge")) drawn.classList.remove("now", "from", "lit");
    if (!ours) continue;
    each.classList.remove("dim");
    const now = document.getElementById(machine.machine + "." + machine.state);
    if (now) now.classList.add("now");
  }
}

function showParty(host, part) {
  host.append(make("h3", "", part.party + (part.dead ? " is down" : "")));
  for (const machine of part.machines) {
    const made = button("machine", machine.name + ": ", () => { tab("pictures"); showMachine(machine); }, "show this machine");
    made.append(make("b", "", machine.state));
    host.append(made);
  }
  for (const [name, text] of part.facts) host.append(make("p", "fact", name + ": " + text));
  if (part.ring) ring(host, part.ring);
}

function showState(host, state) {
  const all = parts(state), under = all.flatMap((part) => part.mail || []);
  host.append(make("h3", "", "under way"));
  for (const m of under) host.append(make("p", "mail", m.from + " → " + m.to + "  " + m.said));
  if (!under.length) host.append(make("p", "fact", "nothing"));
  for (const part of all) if (part.party) showParty(host, part);
  for (const part of all) if (part.budget) host.append(make("h3", "", "what may still go wrong"), make("p", "fact", part.budget));
}

function showWay(host, states) {
  if (!way.length) return;
  const list = make("ol");
  way.forEach((choice, n) => {
    const item = make("li");
    item.append(button("", graph.phrases[graph.next[states[n]][choice][0]], () => travel(way.slice(0, n + 1)), "go back to here"));
    list.append(item);
  });
  host.append(make("h3", "", "the way to here"), list);
}

function panel() {
  const host = byId("explore"), states = trail(), state = states[states.length - 1];
  const last = way.length && states.length === way.length ? graph.next[state][way[way.length - 1]] : null;
  host.textContent = "";
  controls(host);
  nextSteps(host, state, last && last[4]);
  showState(host, state);
  showWay(host, states);
}

function travel(choices) {
  way = choices;
  retell();
  refilter();
  if (shown.length) go(shown[shown.length - 1]);
  else {
    const machine = parts(trail().pop()).flatMap((part) => part.machines || [])[0];
    if (machine) showMachine(machine);
    byId("where").textContent = "the first state: choose what happens";
    for (const id of ["detail", "sequence"]) byId(id).textContent = "";
    remember();
  }
  panel();
}

function possible(choices) {   // an address may be of another recording
  let state = 0;
  for (const choice of choices) {
    const step = state === null ? undefined : stepsOf(state)[choice];
    if (!step) return false;
    state = step[2];
  }
  return true;
}

document.body.classList.add("explores");
place.word = () => "way=" + way.join(".");
place.take = (word) => {
  if (!word.startsWith("way=")) return false;
  const choices = word.slice(4).split(".").filter(Boolean).map(Number);
  if (!possible(choices)) {
    byId("differences").hidden = false;
    byId("differences").textContent = "this address is not of this recording; " + recorded(choices) + " may record it";
    return false;
  }
  travel(choices);
  return true;
};
KEYS.Backspace = takeBack;
for (let n = 0; n < 9; n++) KEYS[n + 1] = () => document.querySelector('[data-choice="' + n + '"]')?.click();
if (asked) history.replaceState(null, "", asked);
if (!arrive()) travel(graph.way);
if (innerWidth <= NARROW && !asked.includes(",")) tab("explore");
