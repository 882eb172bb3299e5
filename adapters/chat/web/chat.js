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
    .log { flex: 1; overflow-y: auto; margin: 0; padding: .5rem; list-style: none; border: 1px solid; border-radius: .5rem; overscroll-behavior: contain }
    .log > li { margin: .35rem 0; padding: .4rem .7rem; border-radius: .6rem; max-inline-size: 85%; inline-size: fit-content; overflow-wrap: anywhere;
      background: color-mix(in srgb, CanvasText 8%, Canvas) }
    .log > li.user { margin-inline-start: auto; background: color-mix(in srgb, AccentColor 22%, Canvas) }
    .who { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap }
    .body { white-space: pre-wrap }
    .body.rich { white-space: normal }
    .rich > :first-child { margin-block-start: 0 } .rich > :last-child { margin-block-end: 0 }
    .rich :is(p, ul, ol, pre, table, blockquote, h3, h4, h5, h6) { margin-block: .5em } .rich :is(h3, h4, h5, h6) { font-size: 1em }
    .rich :is(ul, ol) { padding-inline-start: 1.4em } .rich blockquote { margin-inline: 0; padding-inline-start: .7em; border-inline-start: 3px solid }
    .rich pre, .rich table { overflow-x: auto; max-inline-size: 100% } .rich pre { padding: .5em; border: 1px solid; border-radius: .3rem } .rich table { display: block; border-collapse: collapse }
    .rich :is(th, td) { border: 1px solid; padding: .2em .5em } code { font-family: ui-monospace, monospace; font-size: .95em }
    a { color: LinkText } .files { margin: .3rem 0 0; padding: 0; list-style: none; font-size: .9rem } .files img { display: block; max-inline-size: 100%; max-block-size: 15rem; border-radius: .3rem }
    .status { margin: 0; min-block-size: 1.5em; font-size: .9rem }
    .error { margin: 0; padding: .4rem .7rem; border: 2px solid; border-radius: .4rem; font-weight: 600 }
    [hidden] { display: none !important }
    .error { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; justify-content: space-between }
    form { display: flex; gap: .5rem; align-items: end }
    textarea { flex: 1; font: inherit; font-size: max(1rem, 16px); padding: .5rem; resize: none; min-block-size: 2.9rem; max-block-size: 10rem; field-sizing: content; box-sizing: border-box;
      border: 1px solid; border-radius: .5rem; background: Canvas; color: CanvasText; min-inline-size: 0 }
    button { font: inherit; min-block-size: 2.9rem; min-inline-size: 2.9rem; padding: .3rem 1rem; border: 2px solid; border-radius: .5rem; background: none; color: inherit; cursor: pointer }
    button[type=submit] { font-weight: 700; background: CanvasText; color: Canvas; border-color: CanvasText }
    button:disabled { opacity: .5; cursor: default }
    .tools { display: flex; gap: .5rem; justify-content: end; flex-wrap: wrap }
    .tools button { min-block-size: 2rem; padding: 0 .7rem; border-width: 1px; font-size: .85rem }
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

  const log = element("ol", { class: "log", role: "log", "aria-live": "polite", "aria-label": `Conversation with ${title}`, tabindex: "0" });
  const status = element("p", { class: "status", role: "status" });
  const trouble = element("span", { role: "alert" });
  const again = element("button", { type: "button", class: "again" }, "Try again");
  const problem = element("div", { class: "error", hidden: "" }, trouble, again);
  const hint = element("p", { class: "who", id: "hint" }, "Enter sends, Shift and Enter make a new line, Escape stops the answer.");
  const text = element("textarea", {
    id: "text", rows: "1", "aria-label": `Message to ${title}`, "aria-describedby": "hint", placeholder: "Write a message", maxlength: "100000", enterkeyhint: "send",
  });
  const send = element("button", { type: "submit" }, "Send");
  const stop = element("button", { type: "button", class: "stop", hidden: "" }, "Stop");
  const anew = element("button", { type: "button", class: "anew" }, "New conversation");
  const forget = element("button", { type: "button", class: "forget", hidden: "" }, "Delete conversation");
  const form = element("form", { "aria-label": "Write a message" }, text, stop, send);
  const host = element("div", { class: "inbox-chat" });
  const root = host.attachShadow({ mode: "open" });
  root.adoptedStyleSheets = [style];
  root.append(element("section", { "aria-label": `Chat with ${title}` }, element("div", { class: "tools" }, forget, anew), log, status, problem, hint, form));

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

  function attach(item, files) {
    item.querySelector(".files")?.remove();
    if (!files?.length) return;
    const list = element("ul", { class: "files", "aria-label": "Files" });
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

  function message(role, words, html, files) {
    const item = element("li", { class: role }, element("span", { class: "who" }, role === "user" ? "You: " : `${title}: `), element("div", { class: "body" }));
    log.append(item);
    show(item, words, html);
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
              status.textContent = `${title} is writing…`;
            } else if (name === "delta") {
              words += data.text;
              item ??= message("assistant", "");
              item.setAttribute("aria-busy", "true"); // screen readers hear the whole answer at its end
              show(item, words);
            } else if (name === "tool") {
              status.textContent = `${title} uses ${data.name}…`;
            } else if (name === "reply") {
              finish(item, words, data);
              return data;
            }
            tries = 0;
          }
          throw new Error("The connection was cut.");
        } catch (error) {
          if (mine !== run) return null;
          if (error instanceof Refused || tries >= patience.length) {
            status.textContent = "";
            item?.removeAttribute("aria-busy");
            throw Object.assign(error, { last });
          }
          status.textContent = "The connection is lost. Trying again…";
          await pause(patience[tries++]);
        }
      }
    } finally {
      if (mine === run) busy(false);
    }
  }

  // finish shows the last event of an answer.
  function finish(item, words, data) {
    const stopped = data.status === "cancelled";
    const whole = stopped ? data.reply || words : data.reply;
    if (whole || data.files?.length) {
      item ??= message("assistant", "");
      show(item, whole, stopped && !data.reply ? "" : data.html);
      attach(item, data.files);
      item.removeAttribute("aria-busy");
    } else {
      item?.remove();
    }
    status.textContent = stopped ? "Stopped." : "";
    if (data.event_id) {
      status.textContent = "The answer will appear here.";
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
          if (data.status === "failed") fail("The message could not be answered.");
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
    status.textContent = "Stopping…";
    try {
      await ask("/v1/chat/stop", {
        method: "POST", headers: headers({ "Content-Type": "application/json" }),
        body: JSON.stringify({ agent, session: store.get(keys.session), run_id: current }),
      });
    } catch (error) {
      status.textContent = "";
      fail(`${error.message || "The server cannot be reached."} The answer could not be stopped.`);
    }
  }

  async function deliver(unsent, shown) {
    fail("");
    status.textContent = "Sending…";
    store.set(keys.unsent, JSON.stringify(unsent));
    const item = shown ?? message("user", unsent.message);
    const session = store.get(keys.session);
    try {
      const data = await answer(() => ask("/v1/chat", {
        method: "POST", headers: headers({ "Content-Type": "application/json", Accept: "text/event-stream" }),
        body: JSON.stringify({ agent, message: unsent.message, run_id: unsent.run, ...(session ? { session } : {}), client_context: { client_name: "web-chat" } }),
      }), "");
      if (data?.status === "failed") fail("The message could not be answered.", () => deliver({ message: unsent.message, run: uuid() }));
    } catch (error) {
      const words = `${error.message || "The server cannot be reached."} Your message was not answered.`;
      if (store.get(keys.unsent) === null) { // the server has it
        fail(words, () => resume(error.last));
      } else if (error instanceof Refused) { // the words go back to their writer
        store.drop(keys.unsent);
        item.remove();
        if (text.value.trim() === "") text.value = unsent.message;
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
      if (data?.status === "failed") fail("The message could not be answered.");
    } catch (error) {
      fail(error.message || "The server cannot be reached.", () => resume(error.last));
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
        if (error.status !== 404) return fail(error.message || "The server cannot be reached.", reload);
        store.drop(keys.session);
      }
    }
    log.replaceChildren();
    forget.hidden = store.get(keys.session) === null;
    let item = null;
    for (const one of told.messages) item = message(one.role, one.content, one.html, one.files);
    if (told.running) {
      store.drop(keys.unsent);
      current = told.running.run_id;
      await resume(told.running.event_id);
    } else if (unsent && !told.messages.some((one) => one.run_id === unsent.run)) {
      await deliver(unsent);
    } else {
      store.drop(keys.unsent);
      if (told.waiting) {
        status.textContent = "The answer will appear here.";
        expect(told.waiting.event_id, item);
      }
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const words = text.value.trim();
    if (words === "" || send.disabled) return;
    text.value = "";
    deliver({ message: words, run: uuid() });
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
  anew.addEventListener("click", () => clear("A new conversation begins."));
  forget.addEventListener("click", async () => {
    if (!confirm("Delete this conversation, also on the server?")) return;
    try {
      await ask(`/v1/chat?agent=${encodeURIComponent(agent)}`, { method: "DELETE", headers: headers({ "Chat-Session": store.get(keys.session) ?? "" }) });
    } catch (error) {
      if (error.status !== 404) return fail(`${error.message || "The server cannot be reached."} The conversation was not deleted.`);
    }
    clear("The conversation is deleted.");
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
