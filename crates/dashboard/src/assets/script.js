// What the pages cannot do by themselves: live parts, local times, copying, choosing all, shortcuts, values of charts.
"use strict";

document.documentElement.classList.add("with-script");

// --- Times: the server writes UTC, readers see their own zone. The tooltip keeps UTC.

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const minutes = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const dayOfYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });

function localTime(at) {
  const today = new Date();
  if (at.toDateString() === today.toDateString()) return clock.format(at);
  const date = at.getFullYear() === today.getFullYear() ? day : dayOfYear;
  return `${date.format(at)}, ${clock.format(at)}`;
}

// The length of a time in its two largest units, as the server writes it.
function span(ms) {
  const s = Math.floor(ms / 1000), min = Math.floor(s / 60), h = Math.floor(min / 60);
  if (s < 60) return `${s} s`;
  if (min < 60) return `${min} min ${s % 60} s`;
  return h < 48 ? `${h} h ${min % 60} min` : `${Math.floor(h / 24)} days`;
}

function relative(at) {
  const ms = Date.now() - at;
  if (ms < -1000) return `in ${span(-ms)}`;
  return ms < 1000 ? "just now" : `${span(ms)} ago`;
}

function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    const text = "ago" in time.dataset ? `${localTime(at)} (${relative(at)})` : localTime(at);
    if (time.textContent !== text) time.textContent = text;
  }
}

// The axis and the values of charts.
function showChartTimes(root) {
  for (const axis of root.querySelectorAll("text[data-at]")) {
    const at = new Date(axis.dataset.at);
    axis.textContent = "day" in axis.dataset ? day.format(at) : minutes.format(at);
  }
  for (const hit of root.querySelectorAll(".hit[data-at]")) {
    hit.querySelector("title").textContent = `${localTime(new Date(hit.dataset.at))}: ${hit.dataset.values}`;
  }
}

function countDown(root) {
  for (const element of root.querySelectorAll("[data-until]")) {
    const left = (Date.parse(element.dataset.until) - Date.now()) / 1000;
    element.textContent = left > 60 ? span(left * 1000) : left > 0 ? left.toFixed(left < 10 ? 1 : 0) + " s" : "due";
  }
}

function localize(root) {
  showTimes(root);
  showChartTimes(root);
  countDown(root);
}

// --- Live parts

const RETRY_MS = 3000;
// The server says that it is there every 15 s at least.
const SILENCE_MS = 40000;

function keepLive(part) {
  const contact = document.getElementById("contact");
  let source = null, lostAt = null, heardAt = Date.now(), retry = 0;
  const say = (text, isLost) => {
    if (contact.textContent !== text) contact.textContent = text;
    contact.classList.toggle("lost", isLost);
  };
  const heard = () => {
    heardAt = Date.now();
    if (lostAt) say(`Live again since ${clock.format(new Date())}, contact was lost at ${clock.format(lostAt)}`, false);
    else if (!contact.textContent) say("Live", false);
    lostAt = null;
  };
  const lose = () => {
    lostAt ??= new Date();
    say(`Contact lost at ${clock.format(lostAt)}, trying again. What is shown is from then.`, true);
    source.close();
    clearTimeout(retry);
    retry = setTimeout(open, RETRY_MS);
  };
  const close = () => {
    clearTimeout(retry);
    source?.close();
    source = null;
  };
  const open = () => {
    heardAt = Date.now();
    source = new EventSource(part.dataset.live);
    source.onmessage = (event) => {
      heard();
      draw(part, event.data);
    };
    source.addEventListener("alive", heard);
    source.addEventListener("alerts", (event) => showOpenAlerts(event.data));
    source.addEventListener("refused", (event) => {
      close();
      say(event.data, true);
    });
    source.onerror = lose;
  };
  // Nobody watches a hidden page.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (!source) open();
  });
  window.addEventListener("offline", () => {
    if (source) lose();
  });
  setInterval(() => {
    if (source && !lostAt && Date.now() - heardAt > SILENCE_MS) lose();
  }, RETRY_MS);
  open();
}

// The number beside the entry of the navigation.
function showOpenAlerts(number) {
  const count = document.getElementById("open-alerts");
  if (!count) return;
  count.textContent = number;
  count.hidden = number === "0";
}

function announcement(part) {
  return part.querySelector("[data-announce]")?.textContent ?? "";
}

// Draws a part again. Focus, what is typed and chosen, open details and selected text stay.
function draw(part, html) {
  const before = announcement(part);
  const focused = document.activeElement;
  const template = document.createElement("template");
  template.innerHTML = html;
  localize(template.content);
  merge(part, template.content);
  if (focused.isConnected && focused !== document.activeElement) focused.focus();
  if (announcement(part) !== before) announce(announcement(part));
  countChosen();
}

function announce(text) {
  document.getElementById("announcer").textContent = text;
}

// By which a node is found again: its own key, or its kind and its place among those of its kind.
function keysOf(nodes) {
  const counts = new Map();
  return nodes.map((node) => {
    const own = ownKey(node);
    if (own) return own;
    const kind = `${node.nodeName} ${node.className ?? ""}`;
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
    return `${kind} ${counts.get(kind)}`;
  });
}

function ownKey(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return "";
  if (node.id || node.dataset.key) return node.id || node.dataset.key;
  return node.matches("tr, li") ? node.querySelector("a[href]")?.getAttribute("href") ?? "" : "";
}

function merge(old, drawn) {
  const nodes = [...old.childNodes], wanted = [...drawn.childNodes];
  const keys = keysOf(nodes), wantedKeys = keysOf(wanted);
  const kept = new Set(wantedKeys);
  const byKey = new Map();
  nodes.forEach((node, index) => {
    if (kept.has(keys[index]) && !byKey.has(keys[index])) byKey.set(keys[index], node);
    else node.remove();
  });
  let next = old.firstChild;
  wanted.forEach((node, index) => {
    const found = byKey.get(wantedKeys[index]);
    byKey.delete(wantedKeys[index]);
    if (found && found === next) next = next.nextSibling;
    else old.insertBefore(found ?? node, next);
    if (found) update(found, node);
  });
}

function update(found, wanted) {
  if (found.nodeType !== Node.ELEMENT_NODE) {
    if (found.data !== wanted.data) found.data = wanted.data;
    return;
  }
  for (const { name } of [...found.attributes]) {
    if (!wanted.hasAttribute(name) && name !== "open") found.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (found.getAttribute(name) !== value && name !== "open") found.setAttribute(name, value);
  }
  if (!("keep" in found.dataset)) merge(found, wanted);
}

// --- Copying and choosing

async function copy(button) {
  const text = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages without TLS have no clipboard; a selected field can still be copied.
    const field = document.body.appendChild(document.createElement("textarea"));
    field.value = text;
    field.select();
    document.execCommand("copy");
    field.remove();
    button.focus();
  }
  button.classList.add("copied");
  announce("Copied");
  setTimeout(() => button.classList.remove("copied"), 2000);
}

function chooseAll(form) {
  const boxes = [...form.querySelectorAll("input[type=checkbox]")];
  const all = boxes.every((box) => box.checked);
  for (const box of boxes) box.checked = !all;
  countChosen();
}

function countChosen() {
  for (const count of document.querySelectorAll("[data-chosen]")) {
    count.textContent = count.closest("form").querySelectorAll("input[type=checkbox]:checked").length;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[type=button]");
  if (button?.dataset.copy !== undefined) copy(button);
  if (button?.matches(".choose-all")) chooseAll(button.form);
});
document.addEventListener("change", countChosen);

// --- Dates are picked in the reader's zone and sent in UTC.

function localDate(utc) {
  const at = new Date(utc + "Z");
  return new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

for (const input of document.querySelectorAll("input[type=datetime-local]")) {
  if (input.value) input.value = localDate(input.value);
  input.labels[0].querySelector(".zone").textContent = "local time";
  input.form.addEventListener("formdata", ({ formData }) => {
    if (input.value) formData.set(input.name, new Date(input.value).toISOString().slice(0, 19));
  });
}

// --- Values of charts: by pointer, or with the arrow keys once a chart has the focus.

function showValue(hit) {
  const chart = hit.closest("figure");
  chart.querySelector(".hit.shown")?.classList.remove("shown");
  hit.classList.add("shown");
  chart.querySelector(".readout").textContent = hit.querySelector("title").textContent;
}

document.addEventListener("pointerover", (event) => {
  const hit = event.target.closest?.(".hit");
  if (hit) showValue(hit);
});

function stepChart(chart, key) {
  const hits = [...chart.querySelectorAll(".hit")];
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -hits.length, End: hits.length };
  if (!(key in steps) || hits.length === 0) return false;
  const shown = hits.findIndex((hit) => hit.matches(".shown"));
  const from = shown < 0 ? hits.length : shown;
  showValue(hits[Math.min(Math.max(from + steps[key], 0), hits.length - 1)]);
  return true;
}

// --- Shortcuts

let leadsOn = false;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches?.("figure svg") && stepChart(event.target, event.key)) return event.preventDefault();
  if (event.target.closest?.("input, select, textarea")) return;
  const target = leadsOn
    ? document.querySelector(`nav.tabs a[data-shortcut="${CSS.escape(event.key)}"]`)
    : document.querySelector({ "/": "#search", "?": "a[data-help]" }[event.key] ?? ":not(*)");
  leadsOn = !leadsOn && event.key === "g";
  if (!target) return;
  event.preventDefault();
  if (target.matches("a")) target.click();
  else target.select();
});

// --- To begin with

localize(document);
setInterval(() => showTimes(document), 1000);
setInterval(() => countDown(document), 100);
for (const part of document.querySelectorAll("[data-live]")) keepLive(part);
for (const form of document.querySelectorAll("form[data-submit-now]")) form.submit();
for (const select of document.querySelectorAll("select[data-submit-on-change]")) {
  select.form.querySelector("button").hidden = true;
  select.addEventListener("change", () => select.form.submit());
}
countChosen();
