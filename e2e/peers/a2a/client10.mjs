// The SDK of 1.0, which also speaks 0.3 where the card offers it.
import {
  AgentCard, CancelTaskRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
  ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, Message, SendMessageRequest, StreamResponse,
  SubscribeToTaskRequest, Task, TaskPushNotificationConfig, DeleteTaskPushNotificationConfigRequest,
} from "@a2a-js/sdk";
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";

async function transport({ binding, fetchImpl, legacyCompat }) {
  switch (binding) {
    case "JSONRPC": return new JsonRpcTransportFactory({ fetchImpl, legacyCompat });
    case "HTTP+JSON": return new RestTransportFactory({ fetchImpl, legacyCompat });
    case "GRPC": return new (await import("@a2a-js/sdk/client/grpc")).GrpcTransportFactory({ legacyCompat });
  }
  throw new Error(`no binding ${binding}`);
}

const resultJSON = (result) => "messageId" in result ? { message: Message.toJSON(result) } : { task: Task.toJSON(result) };

async function collect(events, told) {
  const seen = [];
  for await (const event of events) {
    const json = StreamResponse.toJSON(event);
    told(json);
    seen.push({ at: Date.now(), ...json });
  }
  return seen;
}

export async function connect({ agent, binding, protocol, call, fetchImpl }) {
  const legacyCompat = { enabled: protocol !== "1.0" };
  // The SDK prefers 1.0 for a binding that is offered in both versions; a card with 0.3 alone makes it speak that.
  const resolver = {
    async resolve(...where) {
      const card = await new DefaultAgentCardResolver().resolve(...where);
      const wanted = legacyCompat.enabled ? "0.3" : "1.0";
      card.supportedInterfaces = card.supportedInterfaces.filter((one) => one.protocolVersion === wanted);
      return card;
    },
  };
  const client = await new ClientFactory({
    transports: [await transport({ binding, fetchImpl, legacyCompat })], cardResolver: resolver,
  }).createFromUrl(agent);
  return {
    send: async (params) => resultJSON(await client.sendMessage(SendMessageRequest.fromJSON(params), call)),
    stream: (params, told) => collect(client.sendMessageStream(SendMessageRequest.fromJSON(params), call), told),
    get: async (params) => Task.toJSON(await client.getTask(GetTaskRequest.fromJSON(params), call)),
    list: async (params) => ListTasksResponse.toJSON(await client.listTasks(ListTasksRequest.fromJSON(params), call)),
    cancel: async (params) => Task.toJSON(await client.cancelTask(CancelTaskRequest.fromJSON(params), call)),
    subscribe: (params, told) => collect(client.resubscribeTask(SubscribeToTaskRequest.fromJSON(params), call), told),
    createHook: async (params) => TaskPushNotificationConfig.toJSON(
      await client.createTaskPushNotificationConfig(TaskPushNotificationConfig.fromJSON(params), call)),
    getHook: async (params) => TaskPushNotificationConfig.toJSON(
      await client.getTaskPushNotificationConfig(GetTaskPushNotificationConfigRequest.fromJSON(params), call)),
    listHooks: async (params) => ListTaskPushNotificationConfigsResponse.toJSON(
      await client.listTaskPushNotificationConfig(ListTaskPushNotificationConfigsRequest.fromJSON(params), call)),
    deleteHook: (params) => client.deleteTaskPushNotificationConfig(DeleteTaskPushNotificationConfigRequest.fromJSON(params), call),
    extendedCard: async () => AgentCard.toJSON(await client.transport.getExtendedAgentCard({ tenant: "" }, call)),
    version: async () => client.protocolVersion,
  };
}
