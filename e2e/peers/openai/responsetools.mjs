// Lets an agent call a tool of this program by POST /v1/responses, through OpenAI's SDK, OpenAI's Agents SDK and the AI SDK of Vercel, and
// prints what they saw as one line of JSON:
//   node responsetools.mjs BASE_URL API_KEY MODEL
import OpenAI from "openai";
import { Agent, run, setDefaultOpenAIClient, setTracingDisabled, tool as agentTool } from "@openai/agents";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey });
const asked = [];
const look = (item) => { asked.push(item); return JSON.stringify({ in_stock: 3 }); };
const parameters = z.object({ item: z.string() });
const question = "is there milk";
const seen = {};

const tools = [{ type: "function", name: "look_up", description: "", strict: true, parameters: { type: "object", properties: { item: { type: "string" } }, required: ["item"], additionalProperties: false } }];
const input = [{ role: "user", content: question }];
const called = await client.responses.create({ model, input, tools });
const call = called.output.find((one) => one.type === "function_call");
const output = { type: "function_call_output", call_id: call.call_id, output: look(JSON.parse(call.arguments).item) };
const whole = await client.responses.create({ model, input: [...input, ...called.output, output], tools });
const streamed = await client.responses.stream({ model, input, tools }).finalResponse();
const held = streamed.output.find((one) => one.type === "function_call");
const chained = await client.responses.stream({
  model, tools, previous_response_id: streamed.id,
  input: [{ type: "function_call_output", call_id: held.call_id, output: look(JSON.parse(held.arguments).item) }],
}).finalResponse();
seen.openai = [whole.output_text, chained.output_text];

setDefaultOpenAIClient(client);
setTracingDisabled(true);
const agent = new Agent({
  name: "Asker", model, tools: [agentTool({ name: "look_up", description: "looks", parameters, execute: async ({ item }) => look(item) })],
});
const running = await run(agent, question, { stream: true });
await running.completed;
seen.agents = [(await run(agent, question)).finalOutput, running.finalOutput];

const settings = {
  model: createOpenAI({ baseURL, apiKey })(model), prompt: question, stopWhen: stepCountIs(5),
  tools: { look_up: tool({ description: "looks", inputSchema: parameters, execute: async ({ item }) => look(item) }) },
};
const flowing = streamText(settings);
await flowing.consumeStream();
seen.vercel = [(await generateText(settings)).text, await flowing.text];
seen.asked = asked;
console.log(JSON.stringify(seen));
