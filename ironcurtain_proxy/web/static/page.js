// The reviewer's page. Every word of a question becomes a text node, never markup.
"use strict";

const GUARD_MS = 400; // no key answers what came up by itself just now
const $ = (id) => document.getElementById(id);
const state = {
  key: "", waiting: [], shown: null, readyAt: 0, seen: {}, busy: false, passkeys: false,
  trouble: "", answered: "",
};
const GONE = "the command has ended, or cannot be reached";

// --- the server ---------------------------------------------------------------------------------

async function openPage() {
  const ticket = location.hash.slice(1);
  if (ticket) {
    history.replaceState(null, "", location.pathname);
    const answer = await fetch("/api/page", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ticket }),
    });
    const found = await answer.json();
    if (!answer.ok) return found.problem;
    sessionStorage.setItem("key", found.key);
    sessionStorage.setItem("person", found.person || "");
  }
  const person = sessionStorage.getItem("person");
  $("logout").textContent = `Log out ${person}`;
  $("logout").hidden = !person;
  state.key = sessionStorage.getItem("key") || "";
  if (state.key) return "";
  return location.pathname === "/" ? "Open this page by the link that `ironcurtain-proxy web` shows."
    : "You are not logged in: open this address without /page.";
}

async function ask(path, fields) {
  const headers = { Authorization: `Bearer ${state.key}` };
  const how = fields === undefined ? { headers } : {
    method: "POST",
    headers: { ...headers, "Content-Type": "application/json" },
    body: JSON.stringify(fields),
  };
  try {
    const answer = await fetch(path, how);
    const found = await answer.json();
    return answer.ok ? found : { problem: found.problem || `error ${answer.status}` };
  } catch {
    return { problem: GONE };
  }
}

// While there is trouble, nobody knows what waits: nothing can be answered.
function connected(trouble) {
  state.trouble = trouble;
  $("link").textContent = trouble || "listening";
  $("link").className = trouble ? "lost" : "";
  $("empty").textContent = trouble || "Nothing is waiting. A call that needs you will appear here.";
  setButtons();
}

async function follow() {
  for (;;) {
    try {
      const answer = await fetch("/api/questions", {
        headers: { Authorization: `Bearer ${state.key}` },
      });
      if (!answer.ok) {
        connected((await answer.json()).problem);
        if (answer.status === 401) return;
      } else {
        connected("");
        await readLines(answer.body.getReader());
      }
    } catch {
      connected(GONE);
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function readLines(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) show(JSON.parse(line));
  }
}

// --- questions ----------------------------------------------------------------------------------

// A line has all questions; or, if it says what has gone, those that came.
function show({ questions, gone, passkeys }) {
  state.passkeys = Boolean(passkeys) && "PublicKeyCredential" in window;
  $("passkey").hidden = !state.passkeys;
  const before = new Map(state.waiting.map((one) => [one.id, one]));
  const place = state.waiting.findIndex((one) => state.shown && one.id === state.shown.id);
  const came = questions.filter((one) => !before.has(one.id));
  const known = gone ? before : new Map();
  for (const id of gone || []) known.delete(id);
  // The clock of this device may be set to another time meanwhile: `performance.now` goes on.
  const at = performance.now();
  for (const one of questions) {
    known.set(one.id, { ...one, ends: one.secondsLeft === null ? null : at + one.secondsLeft * 1000 });
  }
  const waiting = state.waiting = [...known.values()];
  const count = waiting.reduce((sum, one) => sum + 1 + one.equal.length, 0);
  $("count").textContent = count;
  document.title = (count ? `(${count}) ` : "") + "ironcurtain-proxy";
  if (came.length) notify(came);
  const shown = state.shown && state.waiting.find((one) => one.id === state.shown.id);
  // What joins a card that is shown was not read yet: it gets a card of its own afterwards.
  if (shown && shown.digest === state.shown.digest) {
    state.shown = { ...shown, equal: state.shown.equal };
  }
  else {
    if (state.shown && !shown && state.shown.id !== state.answered) {
      tell(`No longer waits, or was answered elsewhere: ${title(state.shown)}`);
    }
    // The next one stands where the answered one stood: who goes through a list stays there.
    choose(state.waiting[Math.max(0, Math.min(place, state.waiting.length - 1))] || null, true);
  }
  drawList();
}

function notify(came) {
  if (document.hasFocus() || !("Notification" in window)) return;
  if (Notification.permission !== "granted") return;
  new Notification("A call waits for you", { body: came[0].headline, tag: "ironcurtain" });
}

// A row stays the same element while its question waits: a new one would lose the keyboard's focus,
// and a click that was pressed on the old one.
function drawList() {
  const list = $("waiting");
  const wanted = new Set(state.waiting.map(rowName));
  const at = [...list.children].findIndex((row) => row.contains(document.activeElement));
  for (const row of [...list.children]) if (!wanted.has(row.dataset.name)) row.remove();
  state.waiting.forEach((one, place) => {
    const name = rowName(one);
    const row = [...list.children].find((known) => known.dataset.name === name) || newRow(one, name);
    if (list.children[place] !== row) list.insertBefore(row, list.children[place] || null);
    update(row.firstChild, one);
  });
  const next = list.children[Math.min(at, list.children.length - 1)];
  if (at >= 0 && next && !list.contains(document.activeElement)) next.firstChild.focus();
}

function rowName(one) {
  return `${one.id} ${one.digest}`;
}

function title(one) {
  return (one.equal.length ? `${one.equal.length + 1} x ` : "") + one.headline;
}

function newRow(one, name) {
  const button = element("button", { type: "button" }, element("span", {}, title(one)));
  if (one.ends !== null) button.append(element("small", {}, ""));
  button.addEventListener("click", () => {
    choose(state.waiting.find((known) => rowName(known) === name) || null, false);
    drawList();
  });
  return element("li", { "data-name": name }, button);
}

function update(button, one) {
  if (!state.shown || one.id !== state.shown.id) button.removeAttribute("aria-current");
  else if (!button.hasAttribute("aria-current")) {
    button.setAttribute("aria-current", "true");
    button.scrollIntoView({ block: "nearest" });
  }
  if (one.ends === null) return;
  const left = Math.max(0, Math.round((one.ends - performance.now()) / 1000));
  const time = button.querySelector("small");
  time.textContent = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")} left`;
  time.className = left < 60 ? "soon" : "";
}

function choose(one, byItself) {
  state.shown = one;
  if (byItself) state.readyAt = performance.now() + GUARD_MS;
  for (const id of ["question", "actions"]) $(id).hidden = one === null;
  $("empty").hidden = one !== null;
  if (one === null) return;
  const [why, ...others] = one.reasons;
  const [reason = "", ...rest] = why.lines;
  const more = rest.length ? [{ ...why, name: "and", lines: rest }, ...others] : others;
  $("reason").replaceChildren(...inOrder(reason));
  $("headline").className = one.long ? "whole" : "";
  $("headline").replaceChildren(...inOrder(one.headline));
  $("asker").replaceChildren(...inOrder(one.asker));
  $("body").replaceChildren(...parts(one, more));
  $("remembered").replaceChildren(
    ...(one.also.length ? [list(one.also, "reasons")] : []), ...rememberedBy(one));
  $("names").replaceChildren(list(one.record, ""));
  $("kind").replaceChildren(...one.candidates.map((words, place) =>
    element("option", { value: String(place) }, words)));
  $("kinds").hidden = one.candidates.length === 0;
  $("note").value = "";
  $("edited").value = one.editable || "";
  $("edit").hidden = $("change").hidden = one.editable === null;
  $("question").scrollTop = 0;
  watchEnd();
  setButtons();
}

function parts(one, reasons) {
  const found = [];
  const section = (title, inside) => found.push(element("h3", {}, title), inside);
  if (reasons.length) found.push(list(reasons, "reasons"));
  if (one.arguments.length) section("Arguments, in full", list(one.arguments, ""));
  if (one.changes.length) section("What it changes", change(one.changes));
  one.equal.forEach((other, place) => {
    section(`And ${place + 2} of ${one.equal.length + 1}: ${other.headline}`,
      list(other.arguments, ""));
    if (other.changes.length) found.push(change(other.changes));
  });
  return found;
}

function rememberedBy(one) {
  return [element("h3", {}, "What can be remembered"), one.candidates.length
    ? element("ul", {}, ...one.candidates.map((words) => element("li", {}, words)))
    : element("p", {}, "Nothing of this call can be remembered.")];
}

function list(fields, kind) {
  const rows = fields.flatMap((field) => [
    element("dt", {}, field.name), element("dd", {}, field.lines.join("\n"))]);
  return element("dl", { class: kind }, ...rows);
}

function change(lines) {
  const kinds = { "+": "add", "-": "del", "(": "say" };
  return element("pre", { class: "change", tabindex: "0" }, ...lines.map((line) =>
    element("span", { class: kinds[line[0]] || "" }, line || " ")));
}

let watcher = null;

// A call can be approved once all that it would do was on the screen, and not below the buttons, and
// be remembered once what would be remembered was there, too.
function watchEnd() {
  if (watcher) watcher.disconnect();
  watcher = new IntersectionObserver((entries) => {
    for (const one of entries) {
      if (state.shown && one.isIntersecting) state.seen[one.target.id] = state.shown.digest;
    }
    setButtons();
  }, { rootMargin: `0px 0px -${$("actions").offsetHeight}px 0px` });
  for (const id of ["end", "whole"]) watcher.observe($(id));
}

function setButtons() {
  const one = state.shown;
  if (one === null) return;
  const seen = state.seen.end === one.digest;
  const whole = seen && state.seen.whole === one.digest;
  const may = (!one.objection || state.passkeys) && !state.busy && !state.trouble;
  $("approve").disabled = !may || !seen;
  $("remember").disabled = !may || !whole || one.candidates.length === 0;
  $("deny").disabled = !may;
  $("edit").disabled = !may || !seen;
  $("hint").textContent = state.trouble || one.objection
    || (seen ? "" : "Read to the end to approve.");
}

async function answer(approve, remember, edited) {
  const one = state.shown;
  const name = approve ? (remember === null ? "approve" : "remember") : "deny";
  const button = $(edited === undefined ? name : "edit");
  if (one === null || button.disabled) return;
  if (performance.now() < state.readyAt) {
    state.readyAt = performance.now() + GUARD_MS;
    tell("That came too soon: another call had just come up.");
    return;
  }
  state.busy = true;
  state.answered = one.id;
  setButtons();
  const fields = {
    id: one.id, digest: one.digest, approve, remember, note: $("note").value,
    arguments: edited, equal: one.equal.map((other) => other.digest),
  };
  let found = await ask("/api/answers", fields);
  if (found.sign) found = await withPasskey("/api/answers", fields, found.sign);
  state.busy = false;
  tell(found.told || found.problem);
  setButtons();
}

// A passkey signs what the server has computed of this answer; only the machine that asks checks it.
async function withPasskey(path, fields, options) {
  try {
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
    const passkey = (await navigator.credentials.get({ publicKey })).toJSON();
    return await ask(path, { ...fields, passkey });
  } catch (error) {
    return { problem: `not signed: ${error.message}` };
  }
}

async function makePasskey() {
  const asked = await ask("/api/passkey", {});
  if (asked.problem) { tell(asked.problem); return; }
  try {
    const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(asked.make);
    const made = (await navigator.credentials.create({ publicKey })).toJSON();
    const found = await ask("/api/passkey", { made });
    showLines(found.problem || "Whoever keeps reviewers.json saves this line as a file, and runs\n"
      + `ironcurtain-proxy reviewers add NAME FILE --risk high\n\n${found.line}`);
  } catch (error) {
    tell(`no passkey was made: ${error.message}`);
  }
}

async function logOut() {
  const found = await ask("/api/logout", {});
  if (found.problem) { tell(found.problem); return; }
  sessionStorage.clear();
  location.assign(found.elsewhere || "/page");
}

// The page writes no rule: its line is copied to a terminal.
async function drawRule() {
  const one = state.shown;
  if (one === null) return;
  const found = await ask(`/api/rule?${new URLSearchParams({ id: one.id })}`);
  if (found.problem) { tell(found.problem); return; }
  showLines(found.command
    ? `A rule that allows such calls, for a terminal:\n\n${found.command}`
    : "Calls of this kind are asked about each time: there is no rule to offer.");
}

async function drawWhy() {
  const one = state.shown;
  if (one === null) return;
  const found = await ask(`/api/explanation?${new URLSearchParams({ id: one.id })}`);
  if (found.problem) tell(found.problem);
  else showLines(found.lines.join("\n"));
}

// --- the record and the day ---------------------------------------------------------------------

// What a choice asked for first may be answered last, and would stand below a later choice.
async function askLatest(path, chosen) {
  const number = latest[path] = (latest[path] || 0) + 1;
  const found = await ask(`${path}?${new URLSearchParams(chosen)}`);
  return number === latest[path] ? found : null;
}

const latest = {};

const PAGE_ROWS = 200;

// A look reads a bounded number of lines: looks follow each other until the page is full.
async function drawRecord(older) {
  const chosen = {
    text: $("text").value, decision: $("decision").value, by: $("by").value,
    since: $("since").value,
  };
  $("older").hidden = true;
  let before = older || "", rows = 0;
  do {
    const found = await askLatest("/api/calls", { ...chosen, before });
    if (found === null) return;
    if (found.problem) { tell(found.problem); return; }
    if (!before) $("calls").replaceChildren();
    showCalls(found);
    rows += found.calls.length;
    before = found.before;
  } while (before && rows < PAGE_ROWS && !$("record").hidden);
  $("older").value = before;
  $("older").hidden = !before;
}

function showCalls(found) {
  $("searched").textContent = found.before ? `Searched back to ${found.begin}.` : "";
  $("calls").append(...found.calls.map((one) => {
    const number = element("button", { type: "button" }, one.number);
    number.addEventListener("click", () => drawCall(one.reference));
    // The roles hold where a phone's style shows a row as a card.
    const cell = (kind, inside) => element("td", { role: "cell", class: kind }, inside);
    return element("tr", { role: "row" }, cell("number", number), cell("time", one.time),
      cell(one.decision, one.decision), cell("by", one.by), cell("tool", one.tool),
      cell("argument", one.argument), cell("outcome", one.outcome));
  }));
  $("nocalls").hidden = $("calls").children.length > 0 || Boolean(found.before);
}

async function drawCall(number) {
  const found = await ask(`/api/call?${new URLSearchParams({ number })}`);
  showLines(found.problem || found.lines.join("\n") || "There is no such call.");
}

function showLines(words) {
  $("lines").replaceChildren(...inOrder(words));
  $("call").showModal();
}

async function drawDay() {
  const found = await askLatest("/api/day", { since: $("span").value });
  if (found === null) return;
  if (found.problem) { tell(found.problem); return; }
  // Markup of the server's own, in which every text is escaped; the content policy runs no script.
  $("plots").innerHTML = found.markup;
}

// --- the page -----------------------------------------------------------------------------------

function element(name, attributes, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value) made.setAttribute(key, value);
  made.append(...inside.flatMap((one) => typeof one === "string" ? inOrder(one) : [one]));
  return made;
}

// Letters that run from right to left would turn the signs between them: `A > B` into `B < A`.
const TURNING =
  /([\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]+)/u;

function inOrder(text) {
  return String(text).split(TURNING).map((part, place) => {
    if (place % 2 === 0) return part;
    const word = document.createElement("bdi");
    word.append(part);
    return word;
  });
}

function tell(words) {
  $("told").replaceChildren(...inOrder(words));
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => { $("told").textContent = ""; }, 6000);
}

function view(name) {
  for (const button of document.querySelectorAll("nav button")) {
    const here = button.dataset.view === name;
    if (here) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
    $(button.dataset.view).hidden = !here;
  }
  if (name === "record") drawRecord();
  if (name === "day") drawDay();
}

function move(step) {
  const place = state.waiting.findIndex((one) => state.shown && one.id === state.shown.id);
  const next = state.waiting[place + step];
  if (next) { choose(next, false); drawList(); }
}

const KEYS = {
  a: () => answer(true, null),
  r: () => answer(true, Number($("kind").value)),
  d: () => answer(false, null),
  n: () => { $("more").open = true; $("note").focus(); },
  c: () => { $("more").open = true; $("edited").focus(); },
  p: () => drawRule(),
  e: () => drawWhy(),
  j: () => move(1),
  k: () => move(-1),
  " ": () => $("question").scrollBy(0, $("question").clientHeight * 0.9),
  q: () => view("questions"),
  l: () => view("record"),
  y: () => view("day"),
  "?": () => showLines(KEY_WORDS),
};

const KEY_WORDS = `a      approve the call
r      approve and remember
d      deny
n      a note to the agent
c      change arguments, and approve the changed call
e      why it is asked about, step by step
p      a rule that would allow such calls
j k    the next and the previous call
space  scroll
q l y  questions, record, day`;

function onKey(event) {
  const typing = event.target.closest("input, select, textarea, dialog[open]");
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === " " && event.target.closest("button")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

async function start() {
  $("approve").addEventListener("click", KEYS.a);
  $("remember").addEventListener("click", KEYS.r);
  $("deny").addEventListener("click", KEYS.d);
  $("edit").addEventListener("click", () => answer(true, null, $("edited").value));
  $("rule").addEventListener("click", KEYS.p);
  $("why").addEventListener("click", KEYS.e);
  $("help").addEventListener("click", KEYS["?"]);
  $("passkey").addEventListener("click", makePasskey);
  $("logout").addEventListener("click", logOut);
  // A phone has no room for the call beside them.
  const narrow = matchMedia("(max-width: 720px)");
  narrow.addEventListener("change", () => { $("more").open = !narrow.matches; });
  $("more").open = !narrow.matches;
  // What the buttons cover was not seen: they grow with a note, and with a turned screen.
  new ResizeObserver(watchEnd).observe($("actions"));
  $("actions").addEventListener("submit", (event) => event.preventDefault());
  $("filter").addEventListener("submit", (event) => event.preventDefault());
  $("filter").addEventListener("input", () => drawRecord());
  $("older").addEventListener("click", () => drawRecord($("older").value));
  $("span").addEventListener("change", drawDay);
  for (const button of document.querySelectorAll("nav button")) {
    button.addEventListener("click", () => {
      if ("Notification" in window && Notification.permission === "default") {
        Notification.requestPermission();
      }
      view(button.dataset.view);
    });
  }
  document.addEventListener("keydown", onKey);
  const problem = await openPage();
  if (problem) { connected(problem); return; }
  setInterval(drawList, 1000);
  follow();
}

start();
