// Draws the state that is chosen, its moves and the path to it. Texts are written as texts alone and
// elements are built by name, so nothing that a target said can become an element.
"use strict";
const walks = JSON.parse(document.getElementById("walks").textContent);
const root = document.getElementById("walk");
let walk, path, place, first;

function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// The state and the move by which each state is first met: states are numbered breadth first.
function originsOf(states) {
  const origins = new Map([[0, null]]);
  states.forEach((state, number) => state.moves.forEach(([verb, to]) => {
    if (!origins.has(to)) origins.set(to, { from: number, verb });
  }));
  return origins;
}

function pathTo(number) {
  const steps = [];
  for (let at = number; at !== 0; at = first.get(at).from)
    steps.unshift({ to: at, verb: first.get(at).verb });
  return [{ to: 0, verb: "start" }, ...steps];
}

function choose(number) {
  walk = walks[number];
  first = originsOf(walk.states);
  path = pathTo(walk.atEnd ? walk.states.length - 1 : 0);
  place = path.length - 1;
  draw();
}

function follow(number) {
  const move = walk.states[path[place].to].moves[number];
  if (!move) return;
  const next = path[place + 1];
  if (!next || next.to !== move[1] || next.verb !== move[0])
    path = [...path.slice(0, place + 1), { to: move[1], verb: move[0] }];
  go(place + 1);
}

function go(number) {
  if (number < 0 || number >= path.length) return;
  place = number;
  draw();
}

function jump(text) {
  const number = Number(text);
  if (!/^[0-9]+$/.test(text) || number >= walk.states.length) {
    say(`There is no state ${text || "without a number"}: 0 to ${walk.states.length - 1}.`);
    return;
  }
  path = pathTo(number);
  place = path.length - 1;
  draw();
}

function say(text) { document.getElementById("said").textContent = text; }

// What is in one list and not in the other, counting what is there several times.
function lacking(items, others) {
  const left = [...others];
  return items.filter((item) => {
    const at = left.indexOf(item);
    if (at >= 0) left.splice(at, 1);
    return at < 0;
  });
}

function changes(before, after) {
  const found = [];
  after.forEach(([label, items]) => {
    const old = (before.find(([name]) => name === label) || [label, []])[1];
    const came = lacking(items, old), went = lacking(old, items);
    const parts = [...went.map((item) => `\u2212 ${item}`), ...came.map((item) => `+ ${item}`)];
    if (!parts.length && items.join("\n") !== old.join("\n")) parts.push("another order");
    if (parts.length) found.push([label, parts]);
  });
  return found;
}

function drawnRows(rows, before) {
  const list = make("dl", "", { class: "rows" });
  for (const [label, items] of rows) {
    list.append(make("dt", label));
    const cell = make("dd");
    const old = before && before.find(([name]) => name === label);
    const fresh = old ? lacking(items, old[1]) : [];
    if (!items.length) cell.append(make("span", "nothing", { class: "dim" }));
    for (const item of items) {
      const at = fresh.indexOf(item);
      if (at >= 0) fresh.splice(at, 1);
      cell.append(make("span", item, { class: at >= 0 ? "box new" : "box" }));
    }
    list.append(cell);
  }
  return list;
}

function drawnState(state, before) {
  const beside = make("div", "", { class: "beside" });
  const expected = make("section");
  const hasActual = state.actual.length > 0;
  if (hasActual) expected.append(make("h3", "expected"));
  expected.append(drawnRows(state.rows, before && before.rows));
  beside.append(expected);
  if (hasActual) {
    const actual = make("section", "", state.broken ? { class: "broken" } : {});
    actual.append(make("h3", "actual"));
    actual.append(typeof state.actual === "string" ? make("p", state.actual)
      : drawnRows(state.actual, state.rows));
    beside.append(actual);
  }
  return beside;
}

function button(text, action, attributes = {}) {
  const element = make("button", text, { type: "button", ...attributes });
  element.addEventListener("click", action);
  return element;
}

function drawnMoves(state) {
  const part = make("section", "", { id: "moves" });
  const number = state.moves.length;
  part.append(make("h2", number ? `Moves from here: ${number}` : "No move from here"));
  const list = make("ol", "", { class: "moves" });
  state.moves.forEach(([verb, to, words], number) => {
    const item = make("li");
    const key = number < 9 ? { "aria-keyshortcuts": String(number + 1) } : {};
    const move = button("", () => follow(number), key);
    move.append(make("kbd", number < 9 ? String(number + 1) : "\u00b7"));
    move.append(make("strong", verb), make("span", `to ${to}`, { class: "dim" }));
    if (words) move.append(make("code", words));
    item.append(move);
    list.append(item);
  });
  part.append(list);
  return part;
}

function drawnPath() {
  const part = make("section", "", { id: "path" });
  part.append(make("h2", `Path: step ${place} of ${path.length - 1}`));
  const list = make("ol", "", { class: "path", start: "0" });
  path.forEach((step, number) => {
    const item = make("li");
    const current = number === place ? { "aria-current": "step" } : {};
    item.append(button(`${number}. ${step.verb} \u2192 ${step.to}`, () => go(number), current));
    list.append(item);
  });
  part.append(list);
  return part;
}

function drawnBar() {
  const bar = make("form", "", { class: "bar" });
  const back = button("\u2190 back", () => go(place - 1), { id: "back" });
  const next = button("next \u2192", () => go(place + 1), { id: "next" });
  back.disabled = place === 0;
  next.disabled = place === path.length - 1;
  const label = make("label", "state ");
  const input = make("input", "", { id: "number", inputmode: "numeric", size: "5",
    "aria-label": `number of a state, 0 to ${walk.states.length - 1}` });
  label.append(input);
  const jumping = make("button", "go", { type: "submit" });
  bar.addEventListener("submit", (event) => { event.preventDefault(); jump(input.value.trim()); });
  bar.append(back, next, label, jumping);
  return bar;
}

function draw() {
  const focused = document.activeElement && document.activeElement.id;
  const parts = [];
  if (walks.length > 1) {
    const select = make("select", "", { id: "which", "aria-label": "which failure" });
    walks.forEach((one, number) => {
      const option = make("option", one.name, { value: String(number) });
      option.selected = one === walk;
      select.append(option);
    });
    select.addEventListener("change", () => choose(Number(select.value)));
    parts.push(select);
  }
  parts.push(make("p", walk.about, { class: "about" }));
  if (walk.states.length) parts.push(...drawnWalk());
  root.replaceChildren(...parts);
  const again = focused && document.getElementById(focused);
  if (again && !again.disabled) again.focus({ preventScroll: true });
}

function drawnWalk() {
  const here = path[place], state = walk.states[here.to];
  const before = place ? walk.states[path[place - 1].to] : null;
  const title = make("h2", `State ${here.to}`, { id: "state" });
  if (state.note) title.append(make("small", ` ${state.note}`, { class: "dim" }));
  const said = make("p", "", { id: "said", role: "status" });
  const changed = before ? changes(before.rows, state.rows) : [];
  said.textContent = !before ? "The start."
    : `${here.verb}: ` + (changed.map(([label, parts]) => `${label} ${parts.join(", ")}`).join("; ")
      || "changes nothing that is drawn");
  const keys = make("p", "Keys: 1 to 9 follow a move, \u2190 and \u2192 go along the path, "
    + "Home returns to the start, g jumps to a state by its number.", { class: "dim" });
  const columns = make("div", "", { class: "columns" });
  columns.append(drawnMoves(state), drawnPath());
  return [drawnBar(), title, said, drawnState(state, before), columns, keys];
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || !walk || !walk.states.length) return;
  if (event.target.matches("input, select")) return;
  const actions = { ArrowLeft: () => go(place - 1), Backspace: () => go(place - 1),
    ArrowRight: () => go(place + 1), Home: () => go(0), End: () => go(path.length - 1),
    g: () => document.getElementById("number").focus() };
  const action = /^[1-9]$/.test(event.key) ? () => follow(Number(event.key) - 1)
    : Object.hasOwn(actions, event.key) ? actions[event.key] : null;
  if (!action) return;
  event.preventDefault();
  action();
});

if (walks.length) choose(0);
