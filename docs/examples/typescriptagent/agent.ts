// An agent in twenty lines: it checks that a message comes from the inbox server and answers it.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const secret = process.env.INBOX_SECRET ?? "";
const [host, port] = (process.env.LISTEN ?? "127.0.0.1:9001").split(":");

function verified(body: Buffer, header: string): boolean {
  const ours = Buffer.from("sha256=" + createHmac("sha256", secret).update(body).digest("hex"));
  const same = (given: Buffer) => given.length === ours.length && timingSafeEqual(given, ours);
  return secret !== "" && header.split(",").some((given) => same(Buffer.from(given.trim())));
}

createServer(async (request, response) => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  if (!verified(body, String(request.headers["x-inbox-signature"] ?? ""))) {
    response.writeHead(401).end();
    return;
  }
  const sender: string = JSON.parse(body.toString()).message.sender.address;
  const text = { kind: "text", mime: "text/markdown", content: `Hello *${sender}* from TypeScript!` };
  response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify({ parts: [text] }));
}).listen(Number(port), host, () => console.log(`listening on ${host}:${port}`));
