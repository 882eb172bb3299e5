// The last SDK of 0.3, with its JSON turned from and into that of 1.0.
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from "a2a-sdk-v03/client";

async function transport({ binding, fetchImpl }) {
  switch (binding) {
    case "JSONRPC": return new JsonRpcTransportFactory({ fetchImpl });
    case "HTTP+JSON": return new RestTransportFactory({ fetchImpl });
    case "GRPC": return new (await import("a2a-sdk-v03/client/grpc")).GrpcTransportFactory();
  }
  throw new Error(`no binding ${binding}`);
}

const stateName = (state) => "TASK_STATE_" + state.toUpperCase().replaceAll("-", "_");

function partFrom({ kind, text, data, file, metadata }) {
  if (kind === "text") return { text, metadata };
  if (kind === "data") return { data, metadata };
  return { raw: file.bytes, url: file.uri, mediaType: file.mimeType, filename: file.name, metadata };
}

function partTo({ text, data, raw, url, mediaType, filename }) {
  if (text !== undefined) return { kind: "text", text };
  if (data !== undefined) return { kind: "data", data };
  const where = raw !== undefined ? { bytes: raw } : { uri: url }; // the SDK asks which of the two members is there
  return { kind: "file", file: { ...where, mimeType: mediaType, name: filename } };
}

const messageFrom = ({ kind, role, parts, ...more }) => ({ ...more, role: "ROLE_" + role.toUpperCase(), parts: parts.map(partFrom) });
const messageTo = ({ role, parts, ...more }) => ({ ...more, kind: "message", role: role.replace("ROLE_", "").toLowerCase(), parts: parts.map(partTo) });
const artifactFrom = (artifact) => ({ ...artifact, parts: artifact.parts.map(partFrom) });
const statusFrom = ({ state, message, timestamp }) => ({ state: stateName(state), message: message && messageFrom(message), timestamp });

const taskFrom = ({ kind, status, history, artifacts, ...more }) => ({
  ...more, status: statusFrom(status), history: history?.map(messageFrom), artifacts: artifacts?.map(artifactFrom),
});

function eventFrom({ kind, final, ...event }) {
  switch (kind) {
    case "task": return { task: taskFrom(event) };
    case "message": return { message: messageFrom(event) };
    case "status-update": return { statusUpdate: { ...event, status: statusFrom(event.status) } };
    case "artifact-update": return { artifactUpdate: { ...event, artifact: artifactFrom(event.artifact) } };
  }
  throw new Error(`no kind of event: ${kind}`);
}

const hookTo = ({ taskId, url, token, id, authentication }) => ({
  taskId, pushNotificationConfig: {
    url, token, id, authentication: authentication && { schemes: [authentication.scheme], credentials: authentication.credentials },
  },
});

const hookFrom = ({ taskId, pushNotificationConfig: { url, token, id, authentication } }) => ({
  taskId, url, token, id, authentication: authentication && { scheme: authentication.schemes[0], credentials: authentication.credentials },
});

function sendTo({ message, configuration = {}, metadata }) {
  const { returnImmediately, taskPushNotificationConfig: hook, historyLength, acceptedOutputModes } = configuration;
  return {
    message: messageTo(message), metadata,
    configuration: {
      blocking: !returnImmediately, historyLength, acceptedOutputModes: acceptedOutputModes ?? [],
      pushNotificationConfig: hook && hookTo(hook).pushNotificationConfig,
    },
  };
}

async function collect(events, told) {
  const seen = [];
  for await (const event of events) {
    const json = eventFrom(event);
    told(json);
    seen.push({ at: Date.now(), ...json });
  }
  return seen;
}

export async function connect({ agent, binding, call, fetchImpl }) {
  // A preference decides although the card names JSON-RPC first: no other transport is known.
  const client = await new ClientFactory({ transports: [await transport({ binding, fetchImpl })] }).createFromUrl(agent);
  const way = client.transport;
  return {
    send: async (params) => eventFrom(await client.sendMessage(sendTo(params), call)),
    stream: (params, told) => collect(client.sendMessageStream(sendTo(params), call), told),
    get: async (params) => taskFrom(await client.getTask(params, call)),
    cancel: async (params) => taskFrom(await client.cancelTask(params, call)),
    subscribe: (params, told) => collect(client.resubscribeTask(params, call), told),
    createHook: async (params) => hookFrom(await client.setTaskPushNotificationConfig(hookTo(params), call)),
    getHook: async ({ taskId, id }) => hookFrom(await client.getTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId: id }, call)),
    listHooks: async ({ taskId }) => ({ configs: (await client.listTaskPushNotificationConfig({ id: taskId }, call)).map(hookFrom) }),
    deleteHook: ({ taskId, id }) => client.deleteTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId: id }, call),
    extendedCard: () => way.getExtendedAgentCard(call),
    version: async () => "0.3",
  };
}
