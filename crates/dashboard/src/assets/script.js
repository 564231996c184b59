// What the pages cannot do by themselves: live parts, countdowns, and two forms that send themselves.
"use strict";

// A live part is replaced by what the server draws. Focus stays where it was.
function keepLive(part) {
  const status = document.getElementById(part.id + "-status");
  const source = new EventSource(part.dataset.live);
  source.onmessage = (event) => {
    const focused = part.contains(document.activeElement) ? pathOf(document.activeElement) : null;
    const opened = announcement(part);
    part.innerHTML = event.data;
    if (focused) part.querySelector(focused)?.focus();
    const now = announcement(part);
    if (status && now !== opened) status.textContent = now;
    countDown();
  };
}

function announcement(part) {
  return part.querySelector("[data-announce]")?.textContent ?? "";
}

// A selector that finds the same link or button after the part was replaced.
function pathOf(element) {
  if (element.matches("a[href]")) return `a[href="${CSS.escape(element.getAttribute("href"))}"]`;
  const form = element.closest("form");
  return form ? `form[action="${CSS.escape(form.getAttribute("action"))}"] button` : null;
}

function countDown() {
  for (const element of document.querySelectorAll("[data-until]")) {
    const left = (Date.parse(element.dataset.until) - Date.now()) / 1000;
    element.textContent = left > 0 ? left.toFixed(left < 10 ? 1 : 0) + " s" : "now";
  }
}

for (const part of document.querySelectorAll("[data-live]")) keepLive(part);
for (const form of document.querySelectorAll("form[data-submit-now]")) form.submit();
for (const select of document.querySelectorAll("select[data-submit-on-change]")) {
  select.form.querySelector("button").hidden = true;
  select.addEventListener("change", () => select.form.submit());
}
countDown();
setInterval(countDown, 100);
