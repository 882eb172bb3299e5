// What the persons of a community can do. Every command names its person in `from`, and may name the scheme of the
// first signature (`scheme`: rfc9421 or draft-cavage) and the inboxes (`inboxes`: personal or shared, in order).
import { signRequest } from "@fedify/fedify";
import { Create, Delete, Follow, Mention, Note, PUBLIC_COLLECTION, Tombstone, Update } from "@fedify/vocab";
import { Temporal } from "@js-temporal/polyfill";
import { randomUUID } from "node:crypto";

// An error of the receiving server (a 4xx, for instance) reaches the caller: nothing is queued.
async function send(community, { from, scheme, inboxes = ["personal"] }, actor, activity) {
  const ctx = community.stranger(scheme);
  for (const inbox of inboxes) {
    await ctx.sendActivity({ identifier: from }, actor, activity, { immediate: true, preferSharedInbox: inbox === "shared" });
  }
}

function addressing(community, from, visibility, mentioned) {
  const followers = community.context().getFollowersUri(from);
  switch (visibility) {
    case "public": return { tos: [PUBLIC_COLLECTION], ccs: [followers, mentioned] };
    case "unlisted": return { tos: [followers], ccs: [PUBLIC_COLLECTION, mentioned] };
    case "followers": return { tos: [followers], ccs: [mentioned] };
    case "direct": return { tos: [mentioned], ccs: [] };
    default: throw new Error(`unknown visibility ${visibility}`);
  }
}

function words(actor, content) {
  return `<p><span class="h-card"><a href="${actor.id.href}" class="u-url mention">@<span>${actor.preferredUsername}</span></a></span> ${content}</p>`;
}

function compose(community, actor, { from, content, visibility, inReplyTo }) {
  const ctx = community.context();
  const id = randomUUID();
  const author = ctx.getActorUri(from);
  const { tos, ccs } = addressing(community, from, visibility, actor.id);
  const note = new Note({
    id: ctx.getObjectUri(Note, { identifier: from, id }),
    attribution: author,
    tos,
    ccs,
    replyTarget: inReplyTo ? new URL(inReplyTo) : undefined,
    content: words(actor, content),
    published: Temporal.Now.instant(),
    tags: [new Mention({ href: actor.id, name: `@${actor.preferredUsername}@${actor.id.host}` })],
  });
  community.notes.set(id, note);
  return new Create({ id: new URL("#create", note.id), actor: author, object: note, tos, ccs, published: note.published });
}

const told = async (activity, actor) => ({ activity: activity.id.href, note: activity.objectId?.href, actor: actor.id.href });

/** Sends a note that mentions the actor, and gives what was sent. */
export async function mention(community, { visibility = "public", ...command }) {
  const actor = await community.resolve(command.to);
  const create = compose(community, actor, { visibility, ...command });
  await send(community, command, actor, create);
  return told(create, actor);
}

/** Writes a public note that mentions the actor and sends it to nobody: it is only there to be read. */
export async function write(community, command) {
  const actor = await community.resolve(command.to);
  return told(compose(community, actor, { visibility: "public", ...command }), actor);
}

/** Sends a note signed by another person of the community: as a server that forwards it, or with no HTTP signature. */
export async function forward(community, { visibility = "public", by, ...command }) {
  const actor = await community.resolve(command.to);
  const create = compose(community, actor, { visibility, ...command });
  const ctx = community.context();
  // the bytes that Fedify sends for this person, proof included
  await ctx.sendActivity({ identifier: command.from }, { id: actor.id, inboxId: new URL("/capture", community.origin) }, create, { immediate: true });
  let request = new Request(actor.inboxId, {
    method: "POST",
    headers: { "content-type": "application/activity+json" },
    body: community.captured,
  });
  if (by) {
    const [rsa] = await ctx.getActorKeyPairs(by);
    request = await signRequest(request, rsa.privateKey, rsa.keyId);
  }
  const response = await fetch(request);
  return { ...await told(create, actor), status: response.status, reason: await response.text() };
}

const noteOf = (community, iri) => community.notes.get(new URL(iri).pathname.split("/").at(-1));

/** Changes a note that was sent. */
export async function edit(community, { note, content, ...command }) {
  const actor = await community.resolve(command.to);
  const old = noteOf(community, note);
  const changed = old.clone({ content: words(actor, content), updated: Temporal.Now.instant() });
  community.notes.set(old.id.pathname.split("/").at(-1), changed);
  const update = new Update({
    id: new URL(`#update-${randomUUID()}`, old.id), actor: old.attributionId, object: changed, tos: [PUBLIC_COLLECTION], ccs: [actor.id],
  });
  await send(community, command, actor, update);
  return told(update, actor);
}

/** Deletes a note that was sent. */
export async function remove(community, { note, ...command }) {
  const actor = await community.resolve(command.to);
  const id = new URL(note);
  community.forget(id);
  const author = community.context().getActorUri(command.from);
  const deletion = new Delete({
    id: new URL("#delete", id), actor: author, object: new Tombstone({ id, deleted: Temporal.Now.instant() }), tos: [PUBLIC_COLLECTION], ccs: [actor.id],
  });
  await send(community, command, actor, deletion);
  return told(deletion, actor);
}

/** Follows the actor. */
export async function follow(community, command) {
  const actor = await community.resolve(command.to);
  const author = community.context().getActorUri(command.from);
  const activity = new Follow({ id: new URL(`#follow-${randomUUID()}`, author), actor: author, object: actor.id });
  await send(community, command, actor, activity);
  return told(activity, actor);
}
