// The chat of one agent for any web page, in one file and without dependencies:
//   <script src="https://agents.example/chat.js" data-agent="echo" async></script>
// It stands where the script stands, or in the element that data-target selects. data-title is its name, data-token a
// bearer token for agents that are closed to guests, data-greeting what it says first, data-suggestions a JSON list of questions to begin
// with, data-theme "light", "dark" or "contrast", data-lang the language of its own words. What is sent is kept until the server has it, and an answer that was
// cut off goes on after a reload.
(() => {
  "use strict";

  const script = document.currentScript;
  if (!script || !script.dataset.agent) return;
  const { agent, token, target } = script.dataset;
  const title = script.dataset.title || agent;
  const inPage = "page" in script.dataset;
  const language = (script.dataset.lang || (inPage ? document.documentElement.lang : navigator.language) || "en").split("-")[0];
  const translations = __WORDS__[language] ?? {};
  // t translates what is written here; {name} stands for a value.
  const t = (english, values = {}) => (translations[english] ?? english).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
  const base = new URL(script.src).origin;
  const keys = { session: `inbox-chat:${base}:${agent}:session`, unsent: `inbox-chat:${base}:${agent}:unsent` };

  // A browser may refuse to store anything: then the conversation lasts as long as the page.
  const memory = new Map();
  const store = {
    get(key) { try { return localStorage.getItem(key) ?? memory.get(key) ?? null; } catch { return memory.get(key) ?? null; } },
    set(key, value) { try { localStorage.setItem(key, value); } catch { memory.set(key, value); } },
    drop(key) { try { localStorage.removeItem(key); } catch { /* was never stored */ } memory.delete(key); },
  };

  // crypto.randomUUID is there on https only.
  function uuid() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  }

  // ---- what people see

  const style = new CSSStyleSheet();
  style.replaceSync(__TOKENS__ + `
    *, *::before, *::after { box-sizing: border-box }
    :host { display: block; font: var(--text)/var(--leading) var(--sans); color: var(--ink); min-inline-size: 0 }
    section { display: flex; flex-direction: column; gap: .5rem; block-size: var(--inbox-chat-height, 32rem); max-block-size: 88dvh; padding: .75rem;
      background: var(--surface); border: 1px solid var(--line); border-radius: var(--radius-large); position: relative }
    section.dropping { outline: 3px dashed var(--accent); outline-offset: -6px }
    .log { flex: 1; overflow-y: auto; margin: 0; padding: .25rem; list-style: none; overscroll-behavior: contain; display: flex; flex-direction: column; gap: .6rem }
    .log:empty { flex: 0; padding: 0 }
    .log > li { margin: 0; padding: .55rem .85rem; border-radius: var(--radius-large); border-end-start-radius: .2rem; max-inline-size: min(40rem, 88%); inline-size: fit-content;
      overflow-wrap: anywhere; background: var(--sunken); position: relative; flex: none }
    .log > li.user { margin-inline-start: auto; background: var(--accent-soft); color: var(--on-accent-soft); border-end-start-radius: var(--radius-large); border-end-end-radius: .2rem }
    .start { flex: 1; overflow-y: auto; display: flex; flex-direction: column; justify-content: end; gap: .75rem; padding: .25rem }
    .greeting { margin: 0; padding: .55rem .85rem; border-radius: var(--radius-large); border-end-start-radius: .2rem; background: var(--sunken); inline-size: fit-content; max-inline-size: 88%; white-space: pre-wrap; overflow-wrap: anywhere }
    .suggestions { display: flex; flex-wrap: wrap; gap: .5rem }
    .suggestions button { min-block-size: 2.25rem; border-radius: 2rem; font-size: var(--small); text-align: start; overflow-wrap: anywhere }
    .about { margin: 0; font-size: var(--tiny); color: var(--muted); text-wrap: pretty }
    .who { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap }
    .body { white-space: pre-wrap; overflow-x: clip }
    .body.rich { white-space: normal }
    .rich > :first-child { margin-block-start: 0 } .rich > :last-child { margin-block-end: 0 }
    .rich :is(p, ul, ol, pre, table, blockquote, h3, h4, h5, h6) { margin-block: .5em } .rich :is(h3, h4, h5, h6) { font-size: 1em }
    .rich :is(ul, ol) { padding-inline-start: 1.4em } .rich blockquote { margin-inline: 0; padding-inline-start: .7em; border-inline-start: 3px solid var(--edge) }
    .rich pre, .rich table { overflow-x: auto; max-inline-size: 100% } .rich pre { padding: .6em .8em; border: 1px solid var(--line); border-radius: .4rem; background: var(--surface) } .rich table { display: block; border-collapse: collapse }
    .rich :is(th, td) { border: 1px solid var(--edge); padding: .2em .5em } code { font-family: var(--mono); font-size: .9em }
    a { color: var(--accent); text-underline-offset: .18em } .user a { color: inherit }
    .files { margin: .35rem 0 0; padding: 0; list-style: none; font-size: .9rem; display: flex; flex-direction: column; gap: .25rem } .files img { display: block; max-inline-size: 100%; max-block-size: 15rem; border-radius: .4rem }
    .steps { margin-block-end: .4rem; font-size: var(--tiny); color: var(--muted) } .steps summary { cursor: pointer; min-block-size: 1.5rem; align-content: center } .steps ul { margin: 0; padding-inline-start: 1.2em }
    .steps pre { margin: .2rem 0; white-space: pre-wrap; overflow-wrap: anywhere; max-block-size: 12rem; overflow-y: auto; font: .9em/1.4 var(--mono) }
    .copy { position: absolute; inset-block-start: .15rem; inset-inline-end: -2.1rem; min-block-size: 1.75rem; min-inline-size: 1.75rem; padding: 0; border-color: transparent; background: none; color: var(--muted); opacity: 0 }
    li:hover > .copy, .copy:focus-visible, .copy.done { opacity: 1 } .copy.done { color: var(--ok) } @media (hover: none) { .copy { opacity: 1 } }
    svg { inline-size: 1.15em; block-size: 1.15em; display: block; fill: none; stroke: currentColor; stroke-width: 1.75; stroke-linecap: round; stroke-linejoin: round }
    .status { margin: 0; min-block-size: 1.5em; font-size: var(--small); color: var(--muted); display: flex; gap: .5rem; align-items: center }
    .status.writing::before { content: ""; inline-size: 1.7rem; block-size: .45rem; background: radial-gradient(circle closest-side, var(--accent) 92%, transparent) 0 0 / 33.3% 100%; animation: write 1.2s steps(4, jump-none) infinite }
    @keyframes write { from { clip-path: inset(0 100% 0 0) } to { clip-path: inset(0) } }
    .offline { margin: 0; padding: .4rem .7rem; border-radius: var(--radius); background: var(--warn-soft); color: var(--warn); font-size: var(--small); font-weight: 600 }
    .error { margin: 0; padding: .5rem .75rem; border-inline-start: 4px solid var(--bad); border-radius: var(--radius); background: var(--bad-soft); color: var(--ink); display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; justify-content: space-between }
    [hidden] { display: none !important }
    form { display: flex; gap: .5rem; align-items: end; flex-wrap: wrap }
    .held { flex: 1 0 100%; display: flex; flex-wrap: wrap; gap: .4rem; margin: 0; padding: 0; list-style: none } .held:empty { display: none }
    .held li { display: flex; align-items: center; gap: .4rem; padding: .1rem .1rem .1rem .7rem; border-radius: 2rem; background: var(--sunken); font-size: var(--tiny); max-inline-size: 100%; overflow-wrap: anywhere }
    .held button { min-block-size: 1.75rem; min-inline-size: 1.75rem; padding: 0; border: 0; border-radius: 50%; background: none }
    textarea { flex: 1; font: inherit; font-size: max(1rem, 16px); padding: .6rem .75rem; resize: none; min-block-size: 2.75rem; max-block-size: 10rem; field-sizing: content;
      border: 1px solid var(--edge); border-radius: var(--radius); background: var(--surface); color: var(--ink); min-inline-size: 0 }
    textarea::placeholder { color: var(--muted); opacity: 1 }
    button { font: inherit; font-weight: 550; min-block-size: 2.75rem; min-inline-size: 2.75rem; padding: .3rem 1rem; border: 1px solid var(--rim); border-radius: var(--radius); background: var(--surface); color: var(--ink); cursor: pointer }
    button:hover { background: var(--sunken) }
    button[type=submit] { background: var(--accent); color: var(--on-accent); border-color: var(--accent) } button[type=submit]:hover { background: var(--accent-strong) }
    button:disabled { opacity: .5; cursor: default }
    .attach { padding: 0; display: grid; place-items: center }
    .tools { display: flex; gap: .5rem; justify-content: end; flex-wrap: wrap }
    .tools button { min-block-size: 2rem; padding: 0 .7rem; font-size: var(--tiny) }
    :focus-visible { outline: 3px solid var(--accent); outline-offset: 2px }
    @media (forced-colors: active) { .log > li, .greeting { border: 1px solid } }
    @media (prefers-reduced-motion: reduce) { * { animation: none !important; transition: none !important } }`);

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const log = element("ol", { class: "log", role: "log", "aria-live": "polite", "aria-label": t("Conversation with {agent}", { agent: title }), tabindex: "0" });
  const status = element("p", { class: "status", role: "status" });
  const trouble = element("span", { role: "alert" });
  const again = element("button", { type: "button", class: "again" }, t("Try again"));
  const problem = element("div", { class: "error", hidden: "" }, trouble, again);
  const hint = element("p", { class: "who", id: "hint" }, t("Enter sends, Shift and Enter make a new line, Escape stops the answer."));
  const text = element("textarea", {
    id: "text", rows: "1", "aria-label": t("Message to {agent}", { agent: title }), "aria-describedby": "hint", placeholder: t("Write a message"), maxlength: "100000", enterkeyhint: "send",
  });
  const send = element("button", { type: "submit" }, t("Send"));
  const stop = element("button", { type: "button", class: "stop", hidden: "" }, t("Stop"));
  const anew = element("button", { type: "button", class: "anew" }, t("New conversation"));
  const forget = element("button", { type: "button", class: "forget", hidden: "" }, t("Delete conversation"));
  const picker = element("input", { type: "file", multiple: "", hidden: "" });
  const attachButton = element("button", { type: "button", class: "attach", "aria-label": t("Add files") }, icon("M20 11.5 12 19.5a5 5 0 0 1-7-7L13.5 4a3.3 3.3 0 0 1 4.700 4.700l-8.200 8.200a1.6 1.6 0 0 1-2.3-2.3l7.5-7.5"));
  const heldList = element("ul", { class: "held", "aria-label": t("Files of the next message") });
  const form = element("form", { "aria-label": t("Write a message") }, heldList, attachButton, text, stop, send, picker);
  const greeting = element("p", { class: "greeting", dir: "auto" }, script.dataset.greeting || t("Hello! What can I do for you?"));
  const suggestions = element("div", { class: "suggestions", role: "group", "aria-label": t("Questions to begin with") });
  const about = element("p", { class: "about" }, t("{agent} is a program and no person. What it says can be wrong.", { agent: title }));
  const start = element("div", { class: "start" }, greeting, suggestions);
  const offline = element("p", { class: "offline", role: "status", hidden: "" }, t("You are offline. What you write is kept until it can be sent."));
  const host = element("div", { class: "inbox-chat" });
  const root = host.attachShadow({ mode: "open" });
  root.adoptedStyleSheets = [style];
  const section = element("section", { "aria-label": t("Chat with {agent}", { agent: title }) }, element("div", { class: "tools" }, forget, anew), start, log, status, problem, offline, hint, form, about);
  root.append(section);

  // The colours are those of the page that has the chat as its own, and else those that the tag names.
  function paint() {
    const theme = inPage ? document.documentElement.dataset.theme : script.dataset.theme;
    if (theme) host.dataset.theme = theme;
    else delete host.dataset.theme;
  }
  paint();
  if (inPage) new MutationObserver(paint).observe(document.documentElement, { attributeFilter: ["data-theme"] });

  function icon(path) {
    const drawn = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    drawn.setAttribute("viewBox", "0 0 24 24");
    drawn.setAttribute("aria-hidden", "true");
    line.setAttribute("d", path);
    drawn.append(line);
    return drawn;
  }

  // begun hides what stands there before anything was said.
  function begun() { start.hidden = log.childElementCount > 0; }
  new MutationObserver(begun).observe(log, { childList: true });

  function suggested() {
    try {
      const list = JSON.parse(script.dataset.suggestions || "[]");
      return Array.isArray(list) ? list.filter((one) => typeof one === "string" && one.trim() !== "").slice(0, 6) : [];
    } catch { return []; }
  }
  for (const question of suggested()) {
    const button = element("button", { type: "button", dir: "auto" }, question);
    button.addEventListener("click", () => {
      if (!send.disabled) deliver({ message: question, run: uuid(), files: [] });
      text.focus();
    });
    suggestions.append(button);
  }

  function connection() { offline.hidden = navigator.onLine; }
  addEventListener("online", connection);
  addEventListener("offline", connection);
  connection();

  // ---- files of the next message

  const limits = __LIMITS__; // of one message
  const mostFiles = limits.files, mostBytes = script.dataset.token ? limits.token : limits.guest;
  let held = [];
  async function take(files) {
    fail("");
    for (const file of files) {
      const total = held.reduce((sum, one) => sum + one.size, 0);
      if (held.length >= mostFiles || total + file.size > mostBytes) {
        fail(t("At most {count} files and {size} together.", { count: mostFiles, size: size(mostBytes) }));
        break;
      }
      held.push({ name: file.name || t("file"), mimeType: file.type || "application/octet-stream", size: file.size, bytes: await encoded(file) });
    }
    showHeld();
  }
  function encoded(file) {
    return new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(file);
    });
  }
  function showHeld() {
    heldList.replaceChildren(...held.map((file) => {
      const remove = element("button", { type: "button", "aria-label": t("Remove {file}", { file: file.name }) }, "×");
      remove.addEventListener("click", () => { held = held.filter((one) => one !== file); showHeld(); text.focus(); });
      return element("li", {}, `${file.name} (${size(file.size)})`, remove);
    }));
  }
  const taken = (files) => { if (files.length > 0) take(files).catch(() => fail(t("The file could not be read."))); };
  attachButton.addEventListener("click", () => picker.click());
  picker.addEventListener("change", () => { taken([...picker.files]); picker.value = ""; });
  text.addEventListener("paste", (event) => {
    if (!event.clipboardData?.files.length) return;
    event.preventDefault();
    taken([...event.clipboardData.files]);
  });
  for (const kind of ["dragenter", "dragover"]) section.addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    section.classList.add("dropping");
  });
  section.addEventListener("dragleave", (event) => { if (!section.contains(event.relatedTarget)) section.classList.remove("dropping"); });
  section.addEventListener("drop", (event) => {
    event.preventDefault();
    section.classList.remove("dropping");
    taken([...(event.dataTransfer?.files ?? [])]);
  });

  const outside = { rel: "noopener noreferrer nofollow", target: "_blank" };

  // The server cleans the HTML of an answer. It is read in a document that runs nothing, and only what is named here is
  // built anew: nothing of an answer becomes markup of this page otherwise.
  const known = new Set("P BR HR STRONG B EM I DEL S CODE PRE BLOCKQUOTE H3 H4 H5 H6 UL OL LI TABLE THEAD TBODY TR TH TD A".split(" "));
  function built(from, into) {
    for (const node of from.childNodes) {
      if (node.nodeType === Node.TEXT_NODE) into.append(node.data);
      if (node.nodeType !== Node.ELEMENT_NODE) continue;
      const fits = node.namespaceURI === "http://www.w3.org/1999/xhtml" && known.has(node.tagName);
      if (!fits) continue;
      const made = document.createElement(node.tagName);
      if (made.tagName === "A") {
        const href = node.getAttribute("href") ?? "";
        if (/^(https?:|mailto:)/i.test(href)) for (const [key, value] of Object.entries({ href, ...outside })) made.setAttribute(key, value);
      }
      if (made.tagName === "OL" && /^\d+$/.test(node.getAttribute("start") ?? "")) made.setAttribute("start", node.getAttribute("start"));
      if (made.tagName === "PRE") made.setAttribute("tabindex", "0"); // it scrolls
      built(node, made);
      into.append(made);
    }
    return into;
  }

  // Addresses in plain text become links.
  function linked(words, into) {
    let last = 0;
    for (const match of words.matchAll(/https?:\/\/[^\s<>"')\]]+/g)) {
      into.append(words.slice(last, match.index), element("a", { href: match[0], ...outside }, match[0]));
      last = match.index + match[0].length;
    }
    into.append(words.slice(last));
  }

  function show(item, words, html) {
    const body = item.querySelector(".body");
    item.dataset.words = words;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60; // who reads above is left there
    body.replaceChildren();
    body.classList.toggle("rich", Boolean(html));
    try {
      if (html) built(new DOMParser().parseFromString(html, "text/html").body, body);
    } catch { // a page that forbids reading HTML
      body.classList.remove("rich");
      html = "";
      body.replaceChildren();
    }
    if (!html) linked(words, body);
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  function size(bytes) {
    return bytes >= 1 << 20 ? `${(bytes / (1 << 20)).toFixed(1)} MiB` : bytes >= 1024 ? `${Math.round(bytes / 1024)} KiB` : `${bytes} bytes`;
  }

  // steps shows which tools were called for an answer, folded.
  function steps(item, tools) {
    item.querySelector(".steps")?.remove();
    if (!tools?.length) return;
    const list = element("ul", {});
    for (const tool of tools) {
      const state = { running: t("running"), succeeded: t("done"), failed: t("failed") }[tool.status] ?? tool.status;
      const entry = element("li", {}, `${tool.name}: ${state}`);
      for (const detail of [tool.args, tool.result, tool.error]) {
        if (detail === undefined || detail === null || detail === "") continue;
        entry.append(element("pre", { tabindex: "0" }, typeof detail === "string" ? detail : JSON.stringify(detail, null, 1)));
      }
      list.append(entry);
    }
    const fold = element("details", { class: "steps" }, element("summary", {}, t(tools.length === 1 ? "1 tool" : "{count} tools", { count: tools.length })), list);
    item.querySelector(".body").before(fold);
  }

  function copyable(item) {
    const button = element("button", { type: "button", class: "copy", "aria-label": t("Copy this answer") }, icon("M9 9h10v11H9zM15 9V4H5v11h4"));
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(item.dataset.words ?? "");
        button.classList.add("done");
        setTimeout(() => button.classList.remove("done"), 1500);
      } catch { fail(t("The browser does not let this page copy.")); }
    });
    item.append(button);
  }

  function attach(item, files) {
    item.querySelector(".files")?.remove();
    if (!files?.length) return;
    const list = element("ul", { class: "files", "aria-label": t("Files") });
    for (const file of files) {
      const words = file.size ? `${file.name} (${size(file.size)})` : file.name;
      const entry = element("li", {});
      if (!/^https?:/i.test(file.url ?? "")) entry.append(words);
      else {
        const link = element("a", { href: file.url, ...outside }, words);
        if (/^image\/(png|jpeg|gif|webp|avif)$/.test(file.mime) && new URL(file.url).origin === base) {
          link.prepend(element("img", { src: file.url, alt: "", loading: "lazy" }));
        }
        entry.append(link);
      }
      list.append(entry);
    }
    item.append(list);
  }

  function message(role, words, html, files, tools) {
    const item = element("li", { class: role, role: "article" }, // a log is no list, so its items are none either
      element("span", { class: "who" }, role === "user" ? `${t("You")}: ` : `${title}: `), element("div", { class: "body", dir: "auto" }));
    log.append(item);
    if (role === "assistant" && navigator.clipboard) copyable(item);
    show(item, words, html);
    steps(item, tools);
    attach(item, files);
    log.scrollTop = log.scrollHeight;
    return item;
  }

  let retry = null;
  function fail(words, way) {
    trouble.textContent = words;
    problem.hidden = words === "";
    retry = way ?? null;
    again.hidden = retry === null;
  }

  // ---- what the server hears

  class Refused extends Error {}

  function headers(more) {
    return { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more };
  }

  async function ask(path, options) {
    const response = await fetch(base + path, { credentials: "omit", cache: "no-store", ...options });
    if (response.ok) return response;
    let words = t("The server answers {status}.", { status: response.status });
    try { words = (await response.json()).error.message; } catch { /* no words */ }
    const error = response.status >= 500 || response.status === 429 ? new Error(words) : new Refused(words);
    error.status = response.status;
    throw error;
  }

  async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        const event = { name: "message", id: "", data: "" };
        for (const line of rest.slice(0, end).split("\n")) {
          const at = line.indexOf(": ");
          if (at <= 0) continue;
          const field = line.slice(0, at);
          if (field === "event") event.name = line.slice(at + 2);
          if (field === "id" || field === "data") event[field] = line.slice(at + 2);
        }
        rest = rest.slice(end + 2);
        if (event.data !== "") yield { ...event, data: JSON.parse(event.data) };
      }
    }
  }

  const patience = [500, 1000, 2000, 4000, 8000, 8000, 8000, 8000];
  const pause = (time) => new Promise((resume) => setTimeout(resume, time));
  let run = 0; // a newer conversation ends the reading of an older one
  let current = null; // id of the run that is being answered

  function rest(last, more) {
    return ask(`/v1/chat?agent=${encodeURIComponent(agent)}${more}`, {
      headers: headers({ Accept: "text/event-stream", "Chat-Session": store.get(keys.session) ?? "", "Last-Event-ID": last }),
    });
  }

  // answer reads one answer to its end, over as many connections as it takes, and gives the last event. Before the server
  // has the message the same request is sent again; afterwards the rest is asked for.
  async function answer(begin, from) {
    const mine = ++run;
    let last = from, item = null, words = "", tries = 0;
    const called = new Map(); // tools by id, as they were last told
    busy(true);
    try {
      for (;;) {
        try {
          const response = last === "" ? await begin() : await rest(last, "");
          for await (const { name, id, data } of events(response)) {
            if (mine !== run) return null;
            if (id !== "") last = id;
            if (name === "start") {
              store.set(keys.session, data.session);
              store.drop(keys.unsent);
              current = data.run_id;
              if (last === "") last = data.event_id;
              status.textContent = t("{agent} is writing…", { agent: title });
              status.classList.add("writing");
            } else if (name === "delta") {
              words += data.text;
              item ??= message("assistant", "");
              item.setAttribute("aria-busy", "true"); // screen readers hear the whole answer at its end
              show(item, words);
            } else if (name === "reset") { // the agent begins its answer again
              words = "";
            } else if (name === "tool") {
              status.textContent = t("{agent} uses {tool}…", { agent: title, tool: data.name });
              called.set(data.id, data);
            } else if (name === "reply") {
              finish(item, words, { tools: [...called.values()], ...data });
              return data;
            }
            tries = 0;
          }
          throw new Error(t("The connection was cut."));
        } catch (error) {
          if (mine !== run) return null;
          if (error instanceof Refused || tries >= patience.length) {
            status.textContent = "";
            item?.removeAttribute("aria-busy");
            throw Object.assign(error, { last });
          }
          status.textContent = t("The connection is lost. Trying again…");
          await pause(patience[tries++]);
        }
      }
    } finally {
      if (mine === run) {
        busy(false);
        status.classList.remove("writing");
      }
    }
  }

  // finish shows the last event of an answer.
  function finish(item, words, data) {
    const stopped = data.status === "cancelled";
    const whole = stopped ? data.reply || words : data.reply;
    if (whole || data.files?.length) {
      item ??= message("assistant", "");
      show(item, whole, stopped && !data.reply ? "" : data.html);
      steps(item, data.tools);
      attach(item, data.files);
      item.removeAttribute("aria-busy");
    } else {
      item?.remove();
    }
    status.textContent = stopped ? t("Stopped.") : "";
    if (data.event_id) {
      status.textContent = t("The answer will appear here.");
      expect(data.event_id, item ?? message("assistant", ""));
    }
  }

  let expected = 0; // a newer run that waits is listened for instead
  // expect waits for the answer of a run that waits for somebody else, and puts it where the notice stands.
  async function expect(from, item) {
    const mine = ++expected;
    for (let tries = 0; mine === expected; tries++) {
      try {
        for await (const { name, data } of events(await rest(from, "&wait=1"))) {
          if (mine !== expected) return;
          if (name !== "reply") continue;
          expected++;
          finish(item, "", data);
          if (data.status === "failed") fail(t("The message could not be answered."));
          return;
        }
        tries = 0; // it was open for as long as the server allows
      } catch (error) {
        if (error instanceof Refused) return;
      }
      await pause(patience[Math.min(tries, patience.length - 1)]);
    }
  }

  function busy(is) {
    forget.disabled = is;
    forget.hidden = store.get(keys.session) === null;
    const hadFocus = root.activeElement === stop;
    send.disabled = is;
    anew.disabled = is;
    stop.hidden = !is;
    if (!is) current = null;
    if (!is && hadFocus) text.focus();
  }

  async function halt() {
    if (current === null) return;
    status.textContent = t("Stopping…");
    try {
      await ask("/v1/chat/stop", {
        method: "POST", headers: headers({ "Content-Type": "application/json" }),
        body: JSON.stringify({ agent, session: store.get(keys.session), run_id: current }),
      });
    } catch (error) {
      status.textContent = "";
      fail(`${error.message || t("The server cannot be reached.")} ${t("The answer could not be stopped.")}`);
    }
  }

  async function deliver(unsent, shown) {
    fail("");
    status.textContent = t("Sending…");
    store.set(keys.unsent, JSON.stringify(unsent));
    const files = unsent.files ?? [];
    const item = shown ?? message("user", unsent.message, "", files);
    const session = store.get(keys.session);
    try {
      const data = await answer(() => ask("/v1/chat", {
        method: "POST", headers: headers({ "Content-Type": "application/json", Accept: "text/event-stream" }),
        body: JSON.stringify({ agent, message: unsent.message, run_id: unsent.run, ...(files.length > 0 ? { attachments: files.map(({ name, mimeType, bytes }) => ({ name, mimeType, bytes })) } : {}), ...(session ? { session } : {}), client_context: { client_name: "web-chat" } }),
      }), "");
      if (data?.status === "failed") fail(t("The message could not be answered."), () => deliver({ ...unsent, run: uuid() }));
    } catch (error) {
      const words = `${error.message || t("The server cannot be reached.")} ${t("Your message was not answered.")}`;
      if (store.get(keys.unsent) === null) { // the server has it
        fail(words, () => resume(error.last));
      } else if (error instanceof Refused) { // the words go back to their writer
        store.drop(keys.unsent);
        item.remove();
        if (text.value.trim() === "") text.value = unsent.message;
        if (held.length === 0) { held = files; showHeld(); }
        fail(words);
      } else {
        fail(words, () => deliver(unsent, item));
      }
      text.focus();
    }
  }

  async function resume(from) {
    fail("");
    log.querySelector(":scope > li:last-child.assistant")?.remove(); // a half one: it comes again from its begin
    try {
      const data = await answer(null, `${from.split(".")[0]}.0`);
      if (data?.status === "failed") fail(t("The message could not be answered."));
    } catch (error) {
      fail(error.message || t("The server cannot be reached."), () => resume(error.last));
    }
  }

  // reload brings back what was said, the answer that is still growing, and the message that never arrived.
  async function reload() {
    fail("");
    const session = store.get(keys.session);
    const unsent = JSON.parse(store.get(keys.unsent) ?? "null");
    let told = { messages: [] };
    if (session) {
      try {
        const response = await ask(`/v1/chat?agent=${encodeURIComponent(agent)}`, { headers: headers({ "Chat-Session": session }) });
        told = await response.json();
      } catch (error) {
        if (error.status !== 404) return fail(error.message || t("The server cannot be reached."), reload);
        store.drop(keys.session);
      }
    }
    log.replaceChildren();
    forget.hidden = store.get(keys.session) === null;
    let item = null;
    for (const one of told.messages) item = message(one.role, one.content, one.html, one.files, one.tools);
    if (told.running) {
      store.drop(keys.unsent);
      current = told.running.run_id;
      await resume(told.running.event_id);
    } else if (unsent && !told.messages.some((one) => one.run_id === unsent.run)) {
      await deliver(unsent);
    } else {
      store.drop(keys.unsent);
      if (told.waiting) {
        status.textContent = t("The answer will appear here.");
        expect(told.waiting.event_id, item);
      }
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const words = text.value.trim();
    if (words === "" && held.length === 0 || send.disabled) return;
    text.value = "";
    const files = held;
    held = [];
    showHeld();
    deliver({ message: words, run: uuid(), files });
  });
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || stop.hidden || event.isComposing) return;
    event.preventDefault();
    halt();
  });
  stop.addEventListener("click", halt);
  again.addEventListener("click", () => {
    const way = retry;
    text.focus();
    if (way && !send.disabled) way();
  });
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  function clear(words) {
    run++;
    expected++;
    store.drop(keys.session);
    store.drop(keys.unsent);
    log.replaceChildren();
    forget.hidden = true;
    fail("");
    status.textContent = words;
    text.focus();
  }
  anew.addEventListener("click", () => clear(t("A new conversation begins.")));
  forget.addEventListener("click", async () => {
    if (!confirm(t("Delete this conversation, also on the server?"))) return;
    try {
      await ask(`/v1/chat?agent=${encodeURIComponent(agent)}`, { method: "DELETE", headers: headers({ "Chat-Session": store.get(keys.session) ?? "" }) });
    } catch (error) {
      if (error.status !== 404) return fail(`${error.message || t("The server cannot be reached.")} ${t("The conversation was not deleted.")}`);
    }
    clear(t("The conversation is deleted."));
  });

  function stand() {
    const place = (target && document.querySelector(target)) || (inPage && document.getElementById("inbox-chat"));
    if (place) place.append(host);
    else if (script.closest("body")) script.after(host);
    else document.body.append(host);
    reload();
  }
  if (document.readyState === "loading" && (target || !script.closest("body"))) addEventListener("DOMContentLoaded", stand);
  else stand();
})();
