// What every page does for its reader, and what each page works without: times in their zone, buttons that copy, the choice of colours,
// the word that the connection is gone, keys. It runs in the head, so that a chosen theme is there before the first paint.
(() => {
  "use strict";

  const root = document.documentElement;
  const language = root.lang || "en";
  const said = JSON.parse(document.currentScript.dataset.words || "{}"); // words of the page's language
  root.classList.add("scripted");

  // ---- colours

  const themeKey = "inbox-theme";
  function theme() { try { return localStorage.getItem(themeKey) || ""; } catch { return ""; } }
  function paint(name) {
    if (name) root.dataset.theme = name;
    else delete root.dataset.theme;
  }
  paint(theme());
  addEventListener("storage", (event) => { if (event.key === themeKey) paint(event.newValue); });

  // ---- times

  const full = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" });
  const exact = new Intl.DateTimeFormat(language, { dateStyle: "full", timeStyle: "long" });
  const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
  const units = [["second", 60], ["minute", 60], ["hour", 24], ["day", 7]];

  function ago(at) {
    let count = (at - Date.now()) / 1000;
    for (const [unit, size] of units) {
      if (Math.abs(count) < size) return relative.format(Math.trunc(count), unit);
      count /= size;
    }
    return full.format(at);
  }

  function times(within) {
    for (const element of within.querySelectorAll("time[data-time]")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const words = element.dataset.time === "ago" ? ago(at) : full.format(at);
      if (element.textContent !== words) element.textContent = words;
      if (!element.title) element.title = exact.format(at);
    }
  }

  // The current part of several that do not fit into the window is in sight.
  function showTabs() {
    for (const tab of document.querySelectorAll(".tabs > [aria-current]")) {
      const bar = tab.parentElement;
      bar.scrollLeft += tab.getBoundingClientRect().right - bar.getBoundingClientRect().right + 48;
    }
  }

  // ---- copy

  async function copy(button) {
    const before = button.textContent;
    let done = true;
    try { await navigator.clipboard.writeText(button.dataset.copy); } catch { // there on https only
      const held = document.createElement("textarea");
      held.value = button.dataset.copy;
      document.body.append(held);
      held.select();
      done = document.execCommand("copy");
      held.remove();
      button.focus();
    }
    if (!done) return;
    button.textContent = said.copied || "Copied";
    button.classList.add("done");
    setTimeout(() => { button.textContent = before; button.classList.remove("done"); }, 1500);
  }

  // ---- the connection

  function connection() {
    const bar = document.querySelector(".offline");
    if (bar) bar.hidden = navigator.onLine;
  }
  addEventListener("online", connection);
  addEventListener("offline", connection);

  // ---- keys: an element with data-key is clicked or focused by that key, or by two keys one after the other ("g i")

  let before = "", beforeAt = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (typing) {
      if (event.key === "Escape") typing.blur();
      return;
    }
    const two = Date.now() - beforeAt < 1000 ? `${before} ${event.key}` : event.key;
    const found = find(two) || find(event.key);
    before = event.key;
    beforeAt = Date.now();
    if (!found) return;
    event.preventDefault();
    beforeAt = 0;
    if (found.matches("input, textarea, select")) found.focus();
    else found.click();
  });
  function find(keys) {
    return Array.from(document.querySelectorAll("[data-key]")).find((element) => element.dataset.key === keys && element.checkVisibility?.() !== false);
  }

  // ---- the page, and what htmx puts into it

  addEventListener("DOMContentLoaded", () => {
    times(document);
    showTabs();
    connection();
    setInterval(() => times(document), 30000);
    for (const select of document.querySelectorAll("[data-theme-choice]")) select.value = theme();
    document.body.addEventListener("htmx:afterSwap", (event) => times(event.target));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (button) copy(button);
  });
  document.addEventListener("change", (event) => {
    if (!event.target.matches?.("[data-theme-choice]")) return;
    const name = event.target.value;
    try { if (name) localStorage.setItem(themeKey, name); else localStorage.removeItem(themeKey); } catch { /* as long as the page */ }
    paint(name);
  });
})();
