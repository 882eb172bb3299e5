// An A2A client made of the public JavaScript SDK:
// node client.mjs --agent BASE_URL [--token TOKEN] [--binding JSONRPC|HTTP+JSON|GRPC] [--protocol 1.0|0.3-compat|0.3]
//
// It reads commands from standard input, one JSON object a line: {"id": 1, "operation": "send", "params": {…}} with
// params in the JSON of 1.0, and answers each with one line {"id": 1, "result": …} or {"id": 1, "error": {…}}; the results
// have the form of 1.0 too, whatever was spoken. Each event of a stream is a line {"id": 1, "event": …} before.
// Commands run at the same time. The client is made from the agent card found under the base URL. 0.3-compat is 0.3 as
// the SDK of 1.0 speaks it, 0.3 is the last SDK that knew nothing else.
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: {
    agent: { type: "string" },
    token: { type: "string", default: "" },
    binding: { type: "string", default: "JSONRPC" },
    protocol: { type: "string", default: "1.0" },
  },
});

// The card is public and read without the token; every call carries it.
const credentials = options.token ? { Authorization: `Bearer ${options.token}` } : {};
const { connect } = await import(options.protocol === "0.3" ? "./client03.mjs" : "./client10.mjs");
const operations = await connect({
  agent: options.agent,
  binding: options.binding,
  protocol: options.protocol,
  // gRPC has no fetch; what it sends as metadata would be the same header.
  call: options.binding === "GRPC" ? { serviceParameters: credentials } : undefined,
  fetchImpl(input, init = {}) {
    const headers = new Headers(init.headers);
    for (const [name, value] of Object.entries(credentials)) headers.set(name, value);
    return fetch(input, { ...init, headers });
  },
});

const print = (line) => console.log(JSON.stringify(line));

async function run({ id, operation, params }) {
  try {
    if (!operations[operation]) throw new Error(`no operation ${operation}`);
    return { id, result: await operations[operation](params ?? {}, (event) => print({ id, event })) ?? null };
  } catch (error) {
    // The SDKs wrap an error that came as an event of a stream.
    const shown = error.constructor === Error && error.cause instanceof Error ? error.cause : error;
    return { id, error: { name: shown.constructor.name, code: shown.envelopeCode ?? shown.code, message: error.message } };
  }
}

for await (const line of createInterface({ input: process.stdin })) run(JSON.parse(line)).then(print);
process.exit(0); // an open channel of gRPC would keep the process
