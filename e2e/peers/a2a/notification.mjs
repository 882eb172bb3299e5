// Verifies a notification to a webhook as docs/a2a.md tells receivers to, with the keys that the server publishes:
// node notification.mjs --keys URL --issuer ISSUER --audience URL --token JWT, the body on standard input.
//
// It prints one line of JSON: the task that the notification is about, or the error.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRemoteJWKSet, jwtVerify } from "jose";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: { keys: { type: "string" }, issuer: { type: "string" }, audience: { type: "string" }, token: { type: "string" } },
});

try {
  const keys = createRemoteJWKSet(new URL(options.keys));
  const { payload } = await jwtVerify(options.token, keys, {
    issuer: options.issuer, audience: options.audience, typ: "a2a-notification+jwt", algorithms: ["EdDSA"],
  });
  const genuine = payload.request_body_sha256 === createHash("sha256").update(readFileSync(0)).digest("hex");
  console.log(JSON.stringify(genuine ? { task: payload.taskId } : { error: "another body" }));
} catch (error) {
  console.log(JSON.stringify({ error: error.message }));
}
