// One small fediverse server with one person, built on Fedify's own actor, inbox and signature code.
import { createFederation, MemoryKvStore, verifyRequestDetailed } from "@fedify/fedify";
import { Activity, Create, Endpoints, Follow, Mention, Note, Person, PUBLIC_COLLECTION } from "@fedify/vocab";
import { Temporal } from "@js-temporal/polyfill";
import { randomUUID } from "node:crypto";

const PERSON = "/users/{identifier}";

/** An origin's federation, its notes and everything that arrived in its inboxes. */
export class Community {
  constructor({ origin, name, keys }) {
    this.origin = origin;
    this.name = name;
    this.keys = keys;
    this.notes = new Map();
    this.arrived = []; // every POST to an inbox, verified or not, in order
    this.accepted = new Set(); // ids of activities that Fedify verified and handed to a listener
    this.waiting = [];
    this.federation = createFederation({ kv: new MemoryKvStore(), origin, allowPrivateAddress: true });
    this.#dispatch();
    this.#listen();
  }

  context() {
    return this.federation.createContext(new URL(this.origin), undefined);
  }

  #dispatch() {
    this.federation.setActorDispatcher(PERSON, async (ctx, identifier) => {
      if (identifier !== this.name) return null;
      const keys = await ctx.getActorKeyPairs(identifier);
      return new Person({
        id: ctx.getActorUri(identifier),
        preferredUsername: identifier,
        name: "A person on a Fedify server",
        url: ctx.getActorUri(identifier),
        inbox: ctx.getInboxUri(identifier),
        outbox: ctx.getOutboxUri(identifier),
        followers: ctx.getFollowersUri(identifier),
        endpoints: new Endpoints({ sharedInbox: ctx.getInboxUri() }),
        publicKey: keys[0].cryptographicKey,
        assertionMethods: keys.map((pair) => pair.multikey),
      });
    }).setKeyPairsDispatcher((_ctx, identifier) => identifier === this.name ? this.keys : []);
    this.federation.setObjectDispatcher(Note, PERSON + "/notes/{id}", (_ctx, { id }) => this.notes.get(id) ?? null);
    this.federation.setOutboxDispatcher(PERSON + "/outbox", () => ({ items: [] }));
    this.federation.setFollowersDispatcher(PERSON + "/followers", () => ({ items: [] }));
  }

  #listen() {
    this.federation.setInboxListeners(PERSON + "/inbox", "/inbox")
      .on(Activity, (_ctx, activity) => { this.accepted.add(activity.id?.href); })
      .onError((_ctx, error) => { console.error("inbox:", error.message); });
  }

  /** Answers one HTTP request. A POST is also judged by Fedify's verifier alone and written down. */
  async fetch(request) {
    if (request.method !== "POST") return this.#serve(request);
    const copy = request.clone();
    const verdict = await this.#verify(request.clone());
    const response = await this.#serve(request);
    this.#record(copy, await copy.text(), verdict, response.status);
    return response;
  }

  #serve(request) {
    return this.federation.fetch(request, {
      contextData: undefined,
      onNotFound: () => new Response("not found\n", { status: 404 }),
      onNotAcceptable: () => new Response("not acceptable\n", { status: 406 }),
    });
  }

  async #verify(request) {
    const ctx = this.context();
    const result = await verifyRequestDetailed(request, {
      documentLoader: ctx.documentLoader,
      contextLoader: ctx.contextLoader,
    });
    return result.verified
      ? { verified: true, key: result.key.id?.href, owner: result.key.ownerId?.href ?? result.key.controllerId?.href }
      : { verified: false, reason: result.reason };
  }

  #record(request, body, verdict, status) {
    let activity = null;
    try {
      activity = JSON.parse(body);
    } catch { /* the raw body is reported */ }
    this.arrived.push({
      ...verdict,
      status,
      path: new URL(request.url).pathname,
      headers: Object.fromEntries(request.headers),
      accepted: this.accepted.has(activity?.id),
      activity,
      body,
    });
    for (const wake of this.waiting.splice(0)) wake();
  }

  /** Everything after the first n arrivals; waits up to the given time when there is nothing yet. */
  async after(n, milliseconds) {
    if (this.arrived.length <= n) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, milliseconds);
        this.waiting.push(() => { clearTimeout(timer); resolve(); });
      });
    }
    return this.arrived.slice(n);
  }

  /** Looks an actor up by handle or IRI, as a Fedify application does. */
  async resolve(handle) {
    const actor = await this.context().lookupObject(handle);
    if (actor?.inboxId == null) throw new Error(`no actor behind ${handle}`);
    return actor;
  }

  /** Sends a note that mentions the actor, and gives what was sent. */
  async mention({ to, content, visibility = "public", inReplyTo, id = randomUUID() }) {
    const ctx = this.context();
    const actor = await this.resolve(to);
    const author = ctx.getActorUri(this.name);
    const { tos, ccs } = this.#addressing(visibility, actor.id);
    const handle = `@${actor.preferredUsername}@${actor.id.host}`;
    const note = new Note({
      id: ctx.getObjectUri(Note, { identifier: this.name, id }),
      attribution: author,
      tos,
      ccs,
      replyTarget: inReplyTo ? new URL(inReplyTo) : undefined,
      content: `<p><span class="h-card"><a href="${actor.id.href}" class="u-url mention">@<span>${actor.preferredUsername}</span></a></span> ${content}</p>`,
      published: Temporal.Now.instant(),
      tags: [new Mention({ href: actor.id, name: handle })],
    });
    this.notes.set(id, note);
    const create = new Create({ id: new URL("#create", note.id), actor: author, object: note, tos, ccs, published: note.published });
    await this.#send(actor, create);
    return { activity: create.id.href, note: note.id.href, actor: actor.id.href };
  }

  #addressing(visibility, mentioned) {
    const followers = this.context().getFollowersUri(this.name);
    switch (visibility) {
      case "public": return { tos: [PUBLIC_COLLECTION], ccs: [followers, mentioned] };
      case "unlisted": return { tos: [followers], ccs: [PUBLIC_COLLECTION, mentioned] };
      case "followers": return { tos: [followers], ccs: [mentioned] };
      case "direct": return { tos: [mentioned], ccs: [] };
      default: throw new Error(`unknown visibility ${visibility}`);
    }
  }

  /** Follows the actor. */
  async follow({ to }) {
    const ctx = this.context();
    const actor = await this.resolve(to);
    const author = ctx.getActorUri(this.name);
    const follow = new Follow({ id: new URL(`#follow-${randomUUID()}`, author), actor: author, object: actor.id });
    await this.#send(actor, follow);
    return { activity: follow.id.href, actor: actor.id.href };
  }

  // An error of the receiving server (a 4xx, for instance) reaches the caller: nothing is queued.
  #send(actor, activity) {
    return this.context().sendActivity({ identifier: this.name }, actor, activity, { immediate: true });
  }
}
