// A small fediverse server built on Fedify's own actor, inbox and signature code. Its persons have the same RSA key;
// those whose names fit `proving` also have an Ed25519 key, with which Fedify proves what they send.
import { createFederation, MemoryKvStore, verifyObject, verifyRequestDetailed } from "@fedify/fedify";
import { Activity, Endpoints, Note, Person, Tombstone } from "@fedify/vocab";
import { Temporal } from "@js-temporal/polyfill";
import { Happened } from "../control.mjs";

const PERSON = "/users/{identifier}";
const RFC9421 = "rfc9421";
const DRAFT = "draft-cavage-http-signatures-12";

/** An origin's federation, its notes and everything that arrived in its inboxes. */
export class Community {
  constructor({ origin, people, proving, keys }) {
    this.origin = origin;
    this.people = people;
    this.proving = proving;
    this.keys = keys;
    this.notes = new Map(); // id → Note, or Tombstone
    this.arrived = new Happened(); // every POST to an inbox, verified or not, in order
    this.captured = ""; // the last activity that was sent to /capture
    this.reads = []; // every GET of an actor or note: path, user agent, scheme of its signature
    this.accepted = new Set(); // ids of activities that Fedify verified and handed to a listener
    // refuse: a scheme that inboxes answer with 401 without looking; secure: actors and notes want a signed GET
    this.behaviour = { refuse: "", secure: false };
    this.federation = this.#federation(RFC9421);
  }

  #federation(firstKnock) {
    const federation = createFederation({ kv: new MemoryKvStore(), origin: this.origin, allowPrivateAddress: true, firstKnock });
    this.#dispatch(federation);
    this.#listen(federation);
    return federation;
  }

  context() {
    return this.federation.createContext(new URL(this.origin), undefined);
  }

  /** A context that remembers no server, so that its first knock is of the given scheme. */
  stranger(scheme) {
    return this.#federation(scheme === "draft-cavage" ? DRAFT : RFC9421).createContext(new URL(this.origin), undefined);
  }

  #dispatch(federation) {
    const signed = async (ctx) => !this.behaviour.secure || await ctx.getSignedKeyOwner() != null;
    federation.setActorDispatcher(PERSON, async (ctx, identifier) => {
      if (!this.people.test(identifier)) return null;
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
    })
      .setKeyPairsDispatcher((_ctx, identifier) => {
        if (!this.people.test(identifier)) return [];
        return this.proving.test(identifier) ? this.keys : this.keys.slice(0, 1);
      })
      .authorize((ctx) => signed(ctx));
    federation.setObjectDispatcher(Note, PERSON + "/notes/{id}", (_ctx, { id }) => {
      const note = this.notes.get(id);
      return note instanceof Tombstone ? null : note ?? null;
    }).authorize((ctx) => signed(ctx));
    federation.setOutboxDispatcher(PERSON + "/outbox", () => ({ items: [] }));
    federation.setFollowersDispatcher(PERSON + "/followers", () => ({ items: [] }));
  }

  #listen(federation) {
    federation.setInboxListeners(PERSON + "/inbox", "/inbox")
      .on(Activity, (_ctx, activity) => { this.accepted.add(activity.id?.href); })
      .onError((_ctx, error) => { console.error("inbox:", error.message); });
  }

  /** Answers one HTTP request. A POST is also judged by Fedify's verifiers alone and written down. */
  async fetch(request) {
    const scheme = schemeOf(request);
    if (request.method !== "POST") {
      this.reads.push({ path: new URL(request.url).pathname, agent: request.headers.get("user-agent"), scheme });
      return this.#serve(request);
    }
    if (new URL(request.url).pathname === "/capture") {
      this.captured = await request.text();
      return new Response("kept\n", { status: 202 });
    }
    const copy = request.clone();
    if (scheme === this.behaviour.refuse) {
      await this.#record(copy, { verified: false, scheme }, 401);
      return new Response("this scheme is not known here\n", { status: 401 });
    }
    const verdict = { scheme, ...await this.#verify(request.clone()) };
    const response = await this.#serve(request);
    await this.#record(copy, verdict, response.status);
    return response;
  }

  #serve(request) {
    return this.federation.fetch(request, {
      contextData: undefined,
      onNotFound: () => new Response("not found\n", { status: 404 }),
      onNotAcceptable: () => new Response("not acceptable\n", { status: 406 }),
      onUnauthorized: () => new Response("sign your request\n", { status: 401 }),
    });
  }

  #loaders() {
    const ctx = this.context();
    return { documentLoader: ctx.documentLoader, contextLoader: ctx.contextLoader };
  }

  async #verify(request) {
    const result = await verifyRequestDetailed(request, this.#loaders());
    return result.verified
      ? { verified: true, key: result.key.id?.href, owner: result.key.ownerId?.href ?? result.key.controllerId?.href }
      : { verified: false, reason: result.reason };
  }

  // absent, valid or invalid: what Fedify says of the proof inside the activity
  async #proof(activity) {
    if (activity?.proof == null) return "absent";
    try {
      return await verifyObject(Activity, activity, this.#loaders()) == null ? "invalid" : "valid";
    } catch {
      return "invalid";
    }
  }

  async #record(request, verdict, status) {
    const body = await request.text();
    let activity = null;
    try {
      activity = JSON.parse(body);
    } catch { /* the raw body is reported */ }
    this.arrived.add({
      ...verdict,
      status,
      path: new URL(request.url).pathname,
      headers: Object.fromEntries(request.headers),
      accepted: this.accepted.has(activity?.id),
      proof: await this.#proof(activity),
      activity,
      body,
    });
  }

  /** Looks an actor up by handle or IRI, as a Fedify application does. */
  async resolve(handle) {
    const actor = await this.context().lookupObject(handle);
    if (actor?.inboxId == null) throw new Error(`no actor behind ${handle}`);
    return actor;
  }

  /** Marks a note as deleted: from now on it is not served. */
  forget(id) {
    this.notes.set(id.pathname.split("/").at(-1), new Tombstone({ id, deleted: Temporal.Now.instant() }));
  }
}

function schemeOf(request) {
  if (request.headers.has("signature-input")) return RFC9421;
  return request.headers.has("signature") ? "draft-cavage" : "none";
}
