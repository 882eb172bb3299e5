// Lets an agent call a tool of this program through the tool runner of OpenAI's SDK, and prints what it saw as one line of JSON:
//   node tools.mjs BASE_URL API_KEY MODEL
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const asked = [];
const tools = [{
  type: "function",
  function: {
    name: "look_up", description: "", parameters: { type: "object", properties: { item: { type: "string" } } }, parse: JSON.parse,
    function: ({ item }) => { asked.push(item); return JSON.stringify({ in_stock: 3 }); },
  },
}];
const messages = [{ role: "user", content: "is there milk" }];
const seen = { whole: await client.chat.completions.runTools({ model, messages, tools }).finalContent() };
const runner = client.chat.completions.runTools({ model, messages, tools, stream: true });
seen.streamed = await runner.finalContent();
seen.asked = asked;
console.log(JSON.stringify(seen));
