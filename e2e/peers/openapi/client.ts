// A typed client of our OpenAPI document: what does not fit the document does not compile.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

export async function talk(baseUrl: string, token: string, operator: string) {
  const client = createClient<paths, "application/json">({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
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
  const turns = await createClient<paths, "application/json">({ baseUrl, headers: { Authorization: `Bearer ${operator}` } }).GET("/api/v1/held", {});
  const held: number | undefined = turns.data?.held.length;
  // @ts-expect-error: the document knows no such member, so the compiler must not either
  chat.data.nothing;
  return { reply, said, state, code, held };
}
