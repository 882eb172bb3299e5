// A typed client of our OpenAPI document: what does not fit the document does not compile.
import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema.js";

export type Tokens = { peer: string; bridge: string; operator: string; connector: (body: string) => string };
type Run = components["schemas"]["RunAnswer"];

export async function talk(baseUrl: string, tokens: Tokens, recorder: Middleware) {
  const as = (token: string) => {
    const client = createClient<paths, "application/json">({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
    client.use(recorder);
    return client;
  };
  const client = as(tokens.peer), bridge = as(tokens.bridge), operator = as(tokens.operator);

  const chat = await client.POST("/v1/chat", { body: { agent: "echo", message: "typed hello" } });
  if (!chat.data) throw new Error(`chat: ${chat.error?.error.message}`);
  const reply: string = chat.data.reply;
  const session = await client.GET("/v1/chat", { params: { query: { agent: "echo" }, header: { "Chat-Session": chat.data.session } } });
  if (!session.data) throw new Error(`session: ${session.error?.error.message}`);
  const said: string[] = session.data.messages.map((message) => `${message.role}: ${message.content}`);
  const rpc = await client.POST("/v1/agent/{agent}", {
    params: { path: { agent: "echo" } },
    body: { jsonrpc: "2.0", id: 1, method: "message/send", params: { message: { role: "user", parts: [{ type: "text", text: "rpc" }] } } },
  });
  const state: string | undefined = rpc.data?.result?.status.state;
  const refused = await client.POST("/v1/chat", { body: { agent: "nobody", message: "x" } });
  const code: string | undefined = refused.error?.error.code;
  const held: number | undefined = (await operator.GET("/api/v1/held", {})).data?.items.length;

  const models: string[] = (await client.GET("/v1/models", {})).data?.data.map((model) => model.id) ?? [];
  const completion = await client.POST("/v1/chat/completions", { body: { model: "echo", messages: [{ role: "user", content: "typed completion" }] } });
  const completed: string | null | undefined = completion.data?.choices[0]?.message.content;

  // A bridge: register, send, fetch what waits, acknowledge it.
  await bridge.POST("/v1/bridge/register", { body: { connector_id: "matrix" } });
  const registered: string | null | undefined = (await bridge.GET("/v1/bridge/client", {})).data?.connector_id;
  const sent = await bridge.POST("/v1/bridge/send", {
    body: { message: "typed bridge", agent: "echo", external_conversation_id: "room", external_message_id: "m1", sender_id: "ann" },
  });
  const run: Run | undefined = sent.data;
  if (!run) throw new Error(`send: ${sent.error?.error.message}`);
  const pending = await bridge.GET("/v1/bridge/pending", { params: { query: { wait: "20s" } } });
  const items = pending.data?.items ?? [];
  const acked: number | undefined = (await bridge.POST("/v1/bridge/ack", { body: { queue_ids: items.map((item) => item.queue_id) } })).data?.acked;
  const status: string | undefined = (await bridge.GET("/v1/runs/{run}", { params: { path: { run: run.run_id } } })).data?.status;
  const events: string[] = (await bridge.GET("/v1/runs/{run}/events", { params: { path: { run: run.run_id } } })).data?.events.map((event) => event.type) ?? [];

  // Sessions: begin one, say something, take it out and in again under another name.
  const begun = await client.POST("/v1/sessions", { body: { agent: "echo", title: "Groceries" } });
  if (!begun.data) throw new Error(`sessions: ${begun.error?.error.message}`);
  const path = { session: begun.data.session_id };
  const queued = await client.POST("/v1/sessions/{session}/messages", { params: { path, query: { wait: "20s" } }, body: { message: "typed session" } });
  const answered: string | undefined = queued.data?.reply;
  const exported = await client.GET("/v1/sessions/{session}/export", { params: { path } });
  if (!exported.data) throw new Error(`export: ${exported.error?.error.message}`);
  const imported = await client.POST("/v1/import", { body: { ...exported.data, session_id: "imported" } });
  const created: boolean | undefined = imported.data?.sessions[0]?.created;
  const lines = await client.GET("/v1/sessions/{session}/messages", { params: { path: { session: "imported" } } });
  const sessions: number | undefined = (await client.GET("/v1/sessions", { params: { query: { limit: 10 } } })).data?.sessions.length;
  const deleted: boolean | undefined = (await client.DELETE("/v1/sessions/{session}", { params: { path } })).data?.deleted;

  // A connector signs the bytes that it sends.
  const message = { text: "typed connector", external_conversation_id: "C1", external_message_id: "1", sender_id: "U1", wait: "20s" };
  const connector = createClient<paths, "application/json">({ baseUrl, headers: { "X-Inbox-Signature": tokens.connector(JSON.stringify(message)) } });
  connector.use(recorder);
  const relayed: string | undefined = (await connector.POST("/v1/connectors/{connector}/messages", { params: { path: { connector: "slack" } }, body: message })).data?.reply;

  // @ts-expect-error: the document knows no such member, so the compiler must not either
  chat.data.nothing;
  // @ts-expect-error: a member that is needed is missing
  void (() => bridge.POST("/v1/bridge/ack", { body: {} }));
  // @ts-expect-error: a member has another type
  void (() => client.POST("/v1/sessions", { body: { agent: 7 } }));
  return {
    reply, said, state, code, held, models, completed, registered, acked, status, events, answered, created, sessions, deleted, relayed,
    lines: lines.data?.messages.map((line) => `${line.role}: ${line.content}`),
  };
}
