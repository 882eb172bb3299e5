// activitypub.bot for the end-to-end tests: node server.mjs --host NAME --address IP:PORT --certificate FILE --key FILE --database URL
//
// The package serves https://NAME at the address with two accounts: ann, a person, and clock, a bot. It prints one JSON line:
// {"control": "http://127.0.0.1:…", "actor": "…"}. The control port takes POST /resolve, /follow, /unfollow, /mention, /reply, /edit,
// /remove, /like and /unlike (see commands; clock only mentions), and GET /received?after=N&wait=MILLISECONDS, /reads and
// /following?actor=IRI.
// It ends when its standard input is closed.
import "../network.mjs";
import "./activitystreams.mjs";
import { Bot, makeApp } from "@evanp/activitypub-bot";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import { parseArgs } from "node:util";
import { Happened, serveCommands } from "../control.mjs";

const { values: options } = parseArgs({
  options: Object.fromEntries(["host", "address", "certificate", "key", "database"].map((name) => [name, { type: "string" }])),
});

const PUBLIC = "https://www.w3.org/ns/activitystreams#Public";
const happened = new Happened(); // every POST to an inbox with its answer, and what the package then told the account
const reads = []; // every GET: path, user agent, scheme of its signature

class Person extends Bot {
  get type() {
    return "Person"; // the package's own is Service
  }

  async onMention(object, activity) {
    happened.add({ told: "mention", object: object.id, activity: { id: activity.id } });
  }
}

const bots = { ann: new Person("ann", { fullname: "Ann" }), clock: new Bot("clock") };
const app = await makeApp({
  databaseUrl: options.database,
  origin: `https://${options.host}`,
  bots,
  allowPrivateNetworkRequests: true, // the network of the tests is loopback
});

function schemeOf(request) {
  if (request.headers["signature-input"]) return "rfc9421";
  return request.headers.signature ? "draft-cavage" : "none";
}

const server = createServer({ cert: readFileSync(options.certificate), key: readFileSync(options.key) }, (request, response) => {
  const path = request.url;
  if (request.method !== "POST") reads.push({ path, agent: request.headers["user-agent"], scheme: schemeOf(request) });
  response.on("finish", () => {
    if (request.method !== "POST") return;
    happened.add({
      path,
      scheme: schemeOf(request),
      status: response.statusCode,
      owner: request.auth?.subject, // whose signature the package verified
      verified: request.auth?.subject !== undefined,
      accepted: response.statusCode === 202,
      activity: JSON.parse(request.rawBodyText ?? "null"),
    });
  });
  app(request, response);
});
const [address, port] = options.address.split(":");
await new Promise((resolve, reject) => {
  server.once("error", reject);
  server.listen(port, address, resolve);
});

const ann = bots.ann._context;

// The address of a handle, as the package finds it, and the account there.
async function find(handle) {
  const id = await ann.toActorId(handle.replace(/^@/, ""));
  if (!id) throw new Error(`no actor behind ${handle}`);
  return ann.getObject(id);
}

function addressing(visibility, actor, followers) {
  switch (visibility) {
    case "public": return { to: [PUBLIC], cc: [followers, actor.id] };
    case "unlisted": return { to: [followers], cc: [PUBLIC, actor.id] };
    case "followers": return { to: [followers], cc: [actor.id] };
    case "direct": return { to: [actor.id] };
    default: throw new Error(`unknown visibility ${visibility}`);
  }
}

const commands = {
  "POST /resolve": async (_url, { handle }) => {
    const actor = await find(handle);
    return { id: actor.id, name: actor.get("preferredUsername").first };
  },
  "POST /follow": async (_url, { to }) => ({ activity: (await ann.followActor(await find(to))).id }),
  "POST /unfollow": async (_url, { to }) => ({ activity: (await ann.unfollowActor(await find(to))).id }),
  "GET /following": async (url) => ann.isFollowing(await ann.getObject(url.searchParams.get("actor"))),
  "POST /mention": async (_url, { from = "ann", to, visibility = "public", content }) => {
    const author = bots[from]._context;
    return { note: (await author.sendNote(`${to} ${content}`, addressing(visibility, await find(to), author.getFollowersId()))).id };
  },
  "POST /reply": async (_url, { to, content, inReplyTo }) =>
    ({ note: (await ann.sendReply(`${to} ${content}`, await ann.getObject(inReplyTo))).id }),
  "POST /edit": async (_url, { note, content }) =>
    ({ note: (await ann.updateNote(await ann.getObject(note), `<p>${content}</p>`)).id }),
  "POST /remove": async (_url, { note }) => ({ activity: (await ann.deleteNote(await ann.getObject(note))).id }),
  "POST /like": async (_url, { note }) => ({ activity: (await ann.likeObject(await ann.getObject(note))).id }),
  "POST /unlike": async (_url, { note }) => ({ activity: (await ann.unlikeObject(await ann.getObject(note))).id }),
  "GET /received": (url) => happened.after(Number(url.searchParams.get("after") ?? 0), Number(url.searchParams.get("wait") ?? 0)),
  "GET /reads": () => reads,
};

console.log(JSON.stringify({ control: await serveCommands(commands), actor: ann.botActorId }));
