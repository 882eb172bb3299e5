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
  const second = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" });
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
      const kind = element.dataset.time;
      const words = kind === "ago" ? ago(at) : (kind === "second" ? second : full).format(at);
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

  // The conversation that is open is in sight in the list beside it, without a move of the page.
  function showCurrent() {
    const row = document.querySelector(".row[aria-current]"), pane = row?.closest(".pane-list");
    if (pane && pane.scrollHeight > pane.clientHeight) pane.scrollTop += row.getBoundingClientRect().bottom - pane.getBoundingClientRect().bottom + 48;
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

  // ---- keys: an element with data-key is clicked or focused by that key. j and k go through the rows of a list (data-row) or, where the
  // focus is among them, the messages of a conversation (data-message); r and e act on the one that has the focus. They are single characters
  // without a modifier, so they do nothing in a field and can be turned off (WCAG 2.2, success criterion 2.1.4).

  const keysKey = "inbox-keys";
  function keysOn() { try { return localStorage.getItem(keysKey) !== "off"; } catch { return true; } }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    const typing = event.target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
    if (typing) {
      if (event.key === "Escape") typing.blur();
      return;
    }
    if (!keysOn() || document.querySelector("dialog[open]") || event.key.length !== 1 || event.key === " ") return;
    if (press(event.key)) event.preventDefault();
  });

  function press(key) {
    if (key === "j" || key === "k") return step(key === "j" ? 1 : -1);
    const row = document.activeElement?.closest("[data-row]");
    if (row && key === "e" && row.dataset.edit) return go(row.dataset.edit);
    if (row && key === "r" && row.getAttribute("aria-current") !== "true") return go(`${row.getAttribute("href").split("#")[0]}#reply`);
    const correct = document.activeElement?.closest("[data-message]")?.nextElementSibling?.querySelector("[data-correct]")
      || Array.from(document.querySelectorAll("[data-correct]")).at(-1);
    if (key === "e" && !row && correct) return go(correct.getAttribute("href"));
    const found = Array.from(document.querySelectorAll("[data-key]")).find((element) => element.dataset.key === key && (element.checkVisibility?.() !== false || element.hasAttribute("data-keys-help")));
    if (!found) return false;
    if (found.matches("input, textarea, select")) found.focus();
    else if (found.hasAttribute("data-keys-help")) help();
    else found.click();
    return true;
  }

  function go(address) {
    location.assign(address);
    return true;
  }

  function step(by) {
    const at = document.activeElement;
    const messages = at?.closest("[data-message]");
    let all = shown(messages ? "[data-message]" : "[data-row]");
    if (!all.length) all = shown("[data-message]");
    if (!all.length) return false;
    const current = all.indexOf(at?.closest("[data-row], [data-message]"));
    const open = all.findIndex((element) => element.getAttribute("aria-current") === "true");
    const from = current >= 0 ? current : open;
    const next = all[from < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, from + by))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
    return true;
  }
  function shown(selector) {
    return Array.from(document.querySelectorAll(selector)).filter((element) => element.checkVisibility?.() !== false);
  }

  function help() { document.querySelector("dialog#keys")?.showModal(); }

  // An address that ends with #reply is that of the field: it is written in at once.
  function focusNamed() {
    const field = location.hash === "#reply" && document.getElementById("reply");
    if (field) field.focus();
  }
  addEventListener("hashchange", focusNamed);

  // ---- the page, and what htmx puts into it

  addEventListener("DOMContentLoaded", () => {
    times(document);
    showTabs();
    showCurrent();
    connection();
    setInterval(() => times(document), 30000);
    for (const select of document.querySelectorAll("[data-theme-choice]")) select.value = theme();
    for (const box of document.querySelectorAll("[data-keys]")) box.checked = keysOn();
    focusNamed();
    document.body.addEventListener("htmx:afterSwap", (event) => times(event.target));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (button) copy(button);
    if (event.target.closest?.("[data-keys-help]")) help();
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches?.("[data-keys]")) {
      try { if (event.target.checked) localStorage.removeItem(keysKey); else localStorage.setItem(keysKey, "off"); } catch { /* keys stay as they are */ }
    }
    if (!event.target.matches?.("[data-theme-choice]")) return;
    const name = event.target.value;
    try { if (name) localStorage.setItem(themeKey, name); else localStorage.removeItem(themeKey); } catch { /* as long as the page */ }
    paint(name);
  });
})();
