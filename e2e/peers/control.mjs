// What the servers of others have in common: commands for the test, and a list of what happened that a test can wait for.
import { createServer } from "node:http";

/** Everything that happened, in order. */
export class Happened {
  constructor() {
    this.list = [];
    this.waiting = [];
  }

  add(one) {
    this.list.push(one);
    for (const wake of this.waiting.splice(0)) wake();
  }

  /** Everything after the first n; waits up to the given time when there is nothing yet. */
  async after(n, milliseconds) {
    if (this.list.length <= n) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, milliseconds);
        this.waiting.push(() => { clearTimeout(timer); resolve(); });
      });
    }
    return this.list.slice(n);
  }
}

async function bodyOf(incoming) {
  let text = "";
  for await (const piece of incoming.setEncoding("utf8")) text += piece;
  return text === "" ? undefined : JSON.parse(text);
}

/** Answers commands, functions of address and body by "METHOD /path", with JSON on a loopback port. Returns the address. */
export function serveCommands(commands) {
  const server = createServer(async (incoming, outgoing) => {
    const url = new URL(incoming.url, "http://control");
    let status = 200;
    let result;
    try {
      const command = commands[`${incoming.method} ${url.pathname}`];
      if (!command) throw new Error(`no command ${incoming.method} ${url.pathname}`);
      result = await command(url, await bodyOf(incoming));
    } catch (error) {
      status = 500;
      result = { error: error.message };
    }
    outgoing.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(result));
  });
  process.stdin.resume().on("end", () => process.exit(0)); // the server never outlives its test
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${server.address().port}`));
  });
}
