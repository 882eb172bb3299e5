// The chat of one agent for any web page, in one file and without dependencies:
//   <script src="https://agents.example/chat.js" data-agent="echo" async></script>
// It stands where the script stands, or in the element that data-target selects. data-title is its name, data-token a
// bearer token for agents that are closed to guests. What is sent is kept until the server has it, and an answer that was
// cut off goes on after a reload.
(() => {
  "use strict";

  const script = document.currentScript;
  if (!script || !script.dataset.agent) return;
  const { agent, token, target } = script.dataset;
  const title = script.dataset.title || agent;
  const inPage = "page" in script.dataset;
  const base = new URL(script.src).origin;
  const keys = { session: `inbox-chat:${base}:${agent}:session`, unsent: `inbox-chat:${base}:${agent}:unsent` };

  // A browser may refuse to store anything: then the conversation lasts as long as the page.
  const memory = new Map();
  const store = {
    get(key) { try { return localStorage.getItem(key); } catch { return memory.get(key) ?? null; } },
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
  style.replaceSync(`
    :host { display: block; color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif }
    section { display: flex; flex-direction: column; gap: .5rem; block-size: var(--inbox-chat-height, 30rem); max-block-size: 85dvh }
    ol { flex: 1; overflow-y: auto; margin: 0; padding: .5rem; list-style: none; border: 1px solid; border-radius: .5rem; overscroll-behavior: contain }
    li { margin: .35rem 0; padding: .4rem .7rem; border-radius: .6rem; max-inline-size: 85%; inline-size: fit-content; overflow-wrap: anywhere; white-space: pre-wrap;
      background: color-mix(in srgb, CanvasText 8%, Canvas) }
    li.user { margin-inline-start: auto; background: color-mix(in srgb, AccentColor 22%, Canvas) }
    .who { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap }
    .status { margin: 0; min-block-size: 1.5em; font-size: .9rem }
    .error { margin: 0; padding: .4rem .7rem; border: 2px solid; border-radius: .4rem; font-weight: 600 }
    .error[hidden] { display: none }
    form { display: flex; gap: .5rem; align-items: end }
    textarea { flex: 1; font: inherit; font-size: max(1rem, 16px); padding: .5rem; resize: none; min-block-size: 2.9rem; max-block-size: 10rem; field-sizing: content; box-sizing: border-box;
      border: 1px solid; border-radius: .5rem; background: Canvas; color: CanvasText; min-inline-size: 0 }
    button { font: inherit; min-block-size: 2.9rem; min-inline-size: 2.9rem; padding: .3rem 1rem; border: 2px solid; border-radius: .5rem; background: none; color: inherit; cursor: pointer }
    button[type=submit] { font-weight: 700; background: CanvasText; color: Canvas; border-color: CanvasText }
    button:disabled { opacity: .5; cursor: default }
    .anew { align-self: end; min-block-size: 2rem; padding: 0 .7rem; border-width: 1px; font-size: .85rem }
    :focus-visible { outline: 3px solid; outline-offset: 2px }`);
  if (inPage) {
    const page = new CSSStyleSheet();
    page.replaceSync(`:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif }
      body { margin: 0 auto; padding: .75rem; max-width: 44rem } h1 { margin: 0; font-size: 1.3rem } p { margin: .25rem 0 .75rem }
      #inbox-chat { --inbox-chat-height: calc(100dvh - 8rem) }`);
    document.adoptedStyleSheets.push(page);
  }

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const log = element("ol", { role: "log", "aria-live": "polite", "aria-label": `Conversation with ${title}`, tabindex: "0" });
  const status = element("p", { class: "status", role: "status" });
  const problem = element("p", { class: "error", role: "alert", hidden: "" });
  const text = element("textarea", { id: "text", rows: "1", "aria-label": `Message to ${title}`, placeholder: "Write a message", maxlength: "100000", enterkeyhint: "send" });
  const send = element("button", { type: "submit" }, "Send");
  const anew = element("button", { type: "button", class: "anew" }, "New conversation");
  const form = element("form", { "aria-label": "Write a message" }, text, send);
  const host = element("div", { class: "inbox-chat" });
  const root = host.attachShadow({ mode: "open" });
  root.adoptedStyleSheets = [style];
  root.append(element("section", { "aria-label": `Chat with ${title}` }, anew, log, status, problem, form));

  // Addresses become links, everything else stays text: nothing that an agent says is markup of this page.
  function show(item, words) {
    const body = item.lastChild;
    body.replaceChildren();
    let last = 0;
    for (const match of words.matchAll(/https?:\/\/[^\s<>"')\]]+/g)) {
      body.append(words.slice(last, match.index), element("a", { href: match[0], rel: "noopener noreferrer nofollow", target: "_blank" }, match[0]));
      last = match.index + match[0].length;
    }
    body.append(words.slice(last));
    log.scrollTop = log.scrollHeight;
  }

  function message(role, words) {
    const item = element("li", { class: role }, element("span", { class: "who" }, role === "user" ? "You: " : `${title}: `), element("span", {}));
    log.append(item);
    show(item, words);
    return item;
  }

  function fail(words) {
    problem.textContent = words;
    problem.hidden = words === "";
  }

  // ---- what the server hears

  class Refused extends Error {}

  function headers(more) {
    return { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more };
  }

  async function ask(path, options) {
    const response = await fetch(base + path, { credentials: "omit", cache: "no-store", ...options });
    if (response.ok) return response;
    let words = `The server answers ${response.status}.`;
    try { words = (await response.json()).error.message; } catch { /* no words */ }
    const error = response.status >= 500 || response.status === 429 ? new Error(words) : new Refused(words);
    error.status = response.status;
    throw error;
  }

  async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      held += value;
      for (let end = held.indexOf("\n\n"); end >= 0; end = held.indexOf("\n\n")) {
        const event = { name: "message", id: "", data: "" };
        for (const line of held.slice(0, end).split("\n")) {
          const at = line.indexOf(": ");
          if (at <= 0) continue;
          const field = line.slice(0, at);
          if (field === "event") event.name = line.slice(at + 2);
          if (field === "id" || field === "data") event[field] = line.slice(at + 2);
        }
        held = held.slice(end + 2);
        if (event.data !== "") yield { ...event, data: JSON.parse(event.data) };
      }
    }
  }

  const patience = [500, 1000, 2000, 4000, 8000, 8000, 8000, 8000];
  let run = 0; // a newer conversation ends the reading of an older one

  // answer reads one answer to its end, over as many connections as it takes. Before the server has the message the same
  // request is sent again; afterwards the rest is asked for.
  async function answer(begin, from) {
    const mine = ++run;
    let last = from, item = null, words = "", tries = 0;
    busy(true);
    for (;;) {
      try {
        const response = last === "" ? await begin() : await ask(`/v1/chat?agent=${encodeURIComponent(agent)}`, {
          headers: headers({ Accept: "text/event-stream", "Chat-Session": store.get(keys.session) ?? "", "Last-Event-ID": last }),
        });
        for await (const { name, id, data } of events(response)) {
          if (mine !== run) return;
          if (id !== "") last = id;
          if (name === "start") {
            store.set(keys.session, data.session);
            store.drop(keys.unsent);
            if (last === "") last = data.event_id;
            status.textContent = `${title} is writing…`;
          } else if (name === "delta") {
            words += data.text;
            item ??= message("assistant", "");
            item.setAttribute("aria-busy", "true"); // screen readers hear the whole answer at its end
            show(item, words);
          } else if (name === "tool") {
            status.textContent = `${title} uses ${data.name}…`;
          } else if (name === "reply") {
            item ??= data.reply ? message("assistant", "") : null;
            if (item) {
              show(item, data.reply);
              item.removeAttribute("aria-busy");
            }
            if (data.status === "failed") fail("The message could not be answered.");
            status.textContent = "";
            busy(false);
            return;
          }
          tries = 0;
        }
        throw new Error("The connection was cut.");
      } catch (error) {
        if (mine !== run) return;
        if (error instanceof Refused || tries >= patience.length) {
          status.textContent = "";
          busy(false);
          throw error;
        }
        status.textContent = "The connection is lost. Trying again…";
        await new Promise((resume) => setTimeout(resume, patience[tries++]));
      }
    }
  }

  function busy(is) {
    send.disabled = is;
    anew.disabled = is;
  }

  async function deliver(unsent) {
    fail("");
    status.textContent = "Sending…";
    store.set(keys.unsent, JSON.stringify(unsent));
    const item = message("user", unsent.message);
    const session = store.get(keys.session);
    try {
      await answer(() => ask("/v1/chat", {
        method: "POST", headers: headers({ "Content-Type": "application/json", Accept: "text/event-stream" }),
        body: JSON.stringify({ agent, message: unsent.message, run_id: unsent.run, ...(session ? { session } : {}), client_context: { client_name: "web-chat" } }),
      }), "");
    } catch (error) {
      if (store.get(keys.unsent) !== null) { // the server has it not: the words go back to their writer
        store.drop(keys.unsent);
        item.remove();
        if (text.value.trim() === "") text.value = unsent.message;
      }
      fail(`${error.message || "The server cannot be reached."} Your message was not answered.`);
      text.focus();
    }
  }

  // reload brings back what was said, the answer that is still growing, and the message that never arrived.
  async function reload() {
    const session = store.get(keys.session);
    const unsent = JSON.parse(store.get(keys.unsent) ?? "null");
    let known = { messages: [] };
    if (session) {
      try {
        const response = await ask(`/v1/chat?agent=${encodeURIComponent(agent)}`, { headers: headers({ "Chat-Session": session }) });
        known = await response.json();
      } catch (error) {
        if (error.status === 404) store.drop(keys.session);
        else fail(error.message || "The server cannot be reached.");
      }
    }
    for (const one of known.messages) message(one.role, one.content);
    if (known.running) {
      store.drop(keys.unsent);
      try { await answer(null, known.running.event_id); } catch (error) { fail(error.message); }
    } else if (unsent && !known.messages.some((one) => one.run_id === unsent.run)) {
      await deliver(unsent);
    } else {
      store.drop(keys.unsent);
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const words = text.value.trim();
    if (words === "" || send.disabled) return;
    text.value = "";
    deliver({ message: words, run: uuid() });
  });
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  anew.addEventListener("click", () => {
    run++;
    store.drop(keys.session);
    store.drop(keys.unsent);
    log.replaceChildren();
    fail("");
    status.textContent = "A new conversation begins.";
    text.focus();
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
