// An A2A client made of the public JavaScript SDK: node client.mjs --agent BASE_URL [--token TOKEN]
//
// It reads commands from standard input, one JSON object a line: {"id": 1, "operation": "send", "params": {…}} with
// params in the protocol's own JSON, and answers each with one line {"id": 1, "result": …} or {"id": 1, "error": {…}}.
// Commands run at the same time. The client is made from the agent card found under the base URL.
import { CancelTaskRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse, Message, SendMessageRequest, StreamResponse, Task } from "@a2a-js/sdk";
import { ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory } from "@a2a-js/sdk/client";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: { agent: { type: "string" }, token: { type: "string", default: "" } },
});

function withToken(input, init = {}) {
  const headers = new Headers(init.headers);
  if (options.token) headers.set("Authorization", `Bearer ${options.token}`);
  return fetch(input, { ...init, headers });
}

// The card is public and read without the token; every call carries it.
const client = await new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports: [new JsonRpcTransportFactory({ fetchImpl: withToken })],
})).createFromUrl(options.agent);

const toJSON = (result) => "messageId" in result ? { message: Message.toJSON(result) } : { task: Task.toJSON(result) };

async function collect(events) {
  const seen = [];
  for await (const event of events) seen.push({ at: Date.now(), ...StreamResponse.toJSON(event) });
  return seen;
}

const operations = {
  send: async (params) => toJSON(await client.sendMessage(SendMessageRequest.fromJSON(params))),
  stream: (params) => collect(client.sendMessageStream(SendMessageRequest.fromJSON(params))),
  get: async (params) => Task.toJSON(await client.getTask(GetTaskRequest.fromJSON(params))),
  list: async (params) => ListTasksResponse.toJSON(await client.listTasks(ListTasksRequest.fromJSON(params))),
  cancel: async (params) => Task.toJSON(await client.cancelTask(CancelTaskRequest.fromJSON(params))),
  version: async () => client.protocolVersion,
};

async function run({ id, operation, params }) {
  try {
    if (!operations[operation]) throw new Error(`no operation ${operation}`);
    return { id, result: await operations[operation](params ?? {}) };
  } catch (error) {
    return { id, error: { name: error.constructor.name, code: error.envelopeCode ?? error.code, message: error.message } };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  run(JSON.parse(line)).then((answer) => console.log(JSON.stringify(answer)));
}
