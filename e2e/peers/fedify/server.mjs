// A Fedify server for the end-to-end tests: node server.mjs --host NAME --address IP:PORT --certificate FILE --key FILE --keys FILE
//
// It serves https://NAME at the address, and commands on a loopback port of the kernel's choice. It prints one JSON line:
// {"origin": "https://NAME", "control": "http://127.0.0.1:…", "actor": "…", "handle": "@…"}.
// Its persons are alice, who proves what she sends, and bob and any number of carols, who do not. The control port takes POST /mention,
// /write, /forward, /edit, /remove, /follow (see sending.mjs), /resolve, /behave ({"refuse", "secure"}), /down and /up with a
// JSON body, and GET /received?after=N&wait=MILLISECONDS and /reads.
// It ends when its standard input is closed, so it never outlives the test that started it.
import "../network.mjs";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import { Readable } from "node:stream";
import { parseArgs } from "node:util";
import { serveCommands } from "../control.mjs";
import { Community } from "./community.mjs";
import { keyPairs } from "./keys.mjs";
import * as sending from "./sending.mjs";

const { values: options } = parseArgs({
  options: Object.fromEntries(["host", "address", "certificate", "key", "keys"].map((name) => [name, { type: "string" }])),
});

// An address that can be given up for a while, as by a server that is down, and taken again.
class Door {
  constructor(identity, handler) {
    Object.assign(this, { identity, handler });
  }

  open() {
    const [address, port] = options.address.split(":");
    this.server = createServer(this.identity, this.handler);
    return new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen(port, address, () => resolve({}));
    });
  }

  shut() {
    return new Promise((resolve) => {
      this.server.close(() => resolve({}));
      this.server.closeAllConnections();
    });
  }
}

// A fetch-style Request of a Node request, and back.
function toRequest(incoming, origin) {
  const hasBody = incoming.method !== "GET" && incoming.method !== "HEAD";
  return new Request(origin + incoming.url, {
    method: incoming.method,
    headers: Object.entries(incoming.headersDistinct).flatMap(([name, values]) => values.map((value) => [name, value])),
    body: hasBody ? Readable.toWeb(incoming) : undefined,
    duplex: hasBody ? "half" : undefined,
  });
}

async function answer(outgoing, response) {
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.end(Buffer.from(await response.arrayBuffer()));
}

const origin = `https://${options.host}`;
const community = new Community({ origin, people: /^(alice|bob|carol\d*)$/, proving: /^alice$/, keys: await keyPairs(options.keys) });
const identity = { cert: readFileSync(options.certificate), key: readFileSync(options.key) };
const door = new Door(identity, async (incoming, outgoing) => {
  try {
    await answer(outgoing, await community.fetch(toRequest(incoming, origin)));
  } catch (error) {
    console.error("federation:", error);
    outgoing.writeHead(500).end();
  }
});
await door.open();

const asAlice = (command) => (_url, body) => command(community, { from: "alice", ...body });
const commands = {
  "POST /mention": asAlice(sending.mention),
  "POST /write": asAlice(sending.write),
  "POST /forward": asAlice(sending.forward),
  "POST /edit": asAlice(sending.edit),
  "POST /remove": asAlice(sending.remove),
  "POST /follow": asAlice(sending.follow),
  "POST /behave": (_url, body) => Object.assign(community.behaviour, body),
  "POST /down": () => door.shut(),
  "POST /up": () => door.open(),
  "GET /reads": () => community.reads,
  "POST /resolve": async (_url, body) => (await community.resolve(body.handle)).toJsonLd(),
  "GET /received": (url) =>
    community.arrived.after(Number(url.searchParams.get("after") ?? 0), Number(url.searchParams.get("wait") ?? 0)),
};

console.log(JSON.stringify({
  origin,
  control: await serveCommands(commands),
  actor: community.context().getActorUri("alice").href,
  handle: `@alice@${options.host}`,
}));
