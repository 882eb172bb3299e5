// A Fedify server for the end-to-end tests: node server.mjs --keys FILE
//
// It listens on two loopback ports of the kernel's choice and prints them as one JSON line:
// {"origin": "http://127.0.0.1:…", "control": "http://127.0.0.1:…", "actor": "…", "handle": "@…"}.
// The control port takes POST /mention, /follow, /resolve with a JSON body and GET /received?after=N&wait=MILLISECONDS.
// It ends when its standard input is closed, so it never outlives the test that started it.
import "./prelude.mjs";
import { createServer } from "node:http";
import { Readable } from "node:stream";
import { parseArgs } from "node:util";
import { Community } from "./community.mjs";
import { keyPairs } from "./keys.mjs";

const { values: options } = parseArgs({
  options: { keys: { type: "string" }, name: { type: "string", default: "alice" } },
});
if (!options.keys) throw new Error("--keys FILE is needed: where the test keys are kept");

function listen(handler) {
  const server = createServer(handler);
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${server.address().port}`));
  });
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

let community;
const origin = await listen(async (incoming, outgoing) => {
  try {
    await answer(outgoing, await community.fetch(toRequest(incoming, origin)));
  } catch (error) {
    console.error("federation:", error);
    outgoing.writeHead(500).end();
  }
});
community = new Community({ origin, name: options.name, keys: await keyPairs(options.keys) });

const commands = {
  "POST /mention": (_url, body) => community.mention(body),
  "POST /follow": (_url, body) => community.follow(body),
  "POST /resolve": async (_url, body) => (await community.resolve(body.handle)).toJsonLd(),
  "GET /received": (url) =>
    community.after(Number(url.searchParams.get("after") ?? 0), Number(url.searchParams.get("wait") ?? 0)),
};

const control = await listen(async (incoming, outgoing) => {
  const request = toRequest(incoming, "http://control");
  const url = new URL(request.url);
  try {
    const command = commands[`${request.method} ${url.pathname}`];
    if (!command) throw new Error(`no command ${request.method} ${url.pathname}`);
    const result = await command(url, request.method === "POST" ? await request.json() : undefined);
    await answer(outgoing, Response.json(result));
  } catch (error) {
    await answer(outgoing, Response.json({ error: error.message }, { status: 500 }));
  }
});

process.stdin.resume().on("end", () => process.exit(0));
const host = new URL(origin).host;
console.log(JSON.stringify({
  origin,
  control,
  actor: community.context().getActorUri(options.name).href,
  handle: `@${options.name}@${host}`,
}));
