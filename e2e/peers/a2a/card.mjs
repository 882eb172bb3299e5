// Verifies a signed agent card with software that knows nothing of ours: node card.mjs --card URL [--token TOKEN --endpoint URL]
//
// It prints one line of JSON: how many signatures fit the whole document (RFC 7515 over RFC 8785, jose and canonicalize),
// whether the public JavaScript SDK verifies the card, and whether both refuse the card after one character was changed.
// With an endpoint it reads the extended card there by JSON-RPC instead, which only the SDK's form covers.
import { AgentCard, verifyAgentCardSignature } from "@a2a-js/sdk";
import canonicalize from "canonicalize";
import { createRemoteJWKSet, flattenedVerify } from "jose";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: { card: { type: "string" }, token: { type: "string" }, endpoint: { type: "string" } },
});

async function read() {
  if (!options.endpoint) return (await fetch(options.card)).json();
  const response = await fetch(options.endpoint, {
    method: "POST",
    headers: { "Content-Type": "application/json", "A2A-Version": "1.0", Authorization: `Bearer ${options.token}` },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "GetExtendedAgentCard", params: {} }),
  });
  return (await response.json()).result;
}

// Keys come from the card's own origin, whatever a signature says.
const keys = createRemoteJWKSet(new URL("/.well-known/jwks.json", options.card ?? options.endpoint));

async function whole(card) {
  const { signatures = [], ...rest } = card;
  const payload = Buffer.from(canonicalize(rest)).toString("base64url");
  let fit = 0;
  for (const signature of signatures) {
    try {
      await flattenedVerify({ ...signature, payload }, keys);
      fit++;
    } catch { /* of the other form */ }
  }
  return fit;
}

// sdk verifies as the SDK's samples do with what they fetched, and as its client does with what it read.
async function sdk(card) {
  if (!card.supportedInterfaces) return null;
  const verify = verifyAgentCardSignature((kid) => keys({ kid, alg: "EdDSA" }));
  try {
    await verify(card);
    await verify(AgentCard.fromJSON(card));
    return true;
  } catch {
    return false;
  }
}

console.log = console.info = console.debug = console.error; // the SDK says there which signatures do not fit

const card = await read();
const forged = { ...card, description: `${card.description}.` };
process.stdout.write(`${JSON.stringify({
  name: card.name, skills: (card.skills ?? card.a2a?.skills ?? []).map((skill) => skill.id), signatures: (card.signatures ?? []).length,
  whole: await whole(card), sdk: await sdk(card), forgedWhole: await whole(forged), forgedSDK: await sdk(forged),
})}\n`);
