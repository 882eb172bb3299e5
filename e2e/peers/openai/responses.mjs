// Talks to a server by POST /v1/responses through OpenAI's SDK, OpenAI's Agents SDK and the AI SDK of Vercel, each with nothing set but the
// address and the key, and prints what they saw as one line of JSON:
//   node responses.mjs BASE_URL API_KEY MODEL
import OpenAI from "openai";
import { Agent, run, setDefaultOpenAIClient, setTracingDisabled } from "@openai/agents";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey });
const seen = {};

async function refusal(make) {
  try {
    await make();
    return { code: "none" };
  } catch (error) {
    return { status: error.status ?? null, code: error.code ?? null };
  }
}

// OpenAI's SDK
const first = await client.responses.create({ model, input: "first question", instructions: "Be brief.", metadata: { ticket: "7" } });
const second = await client.responses.create({ model, input: [{ role: "user", content: "second question" }], previous_response_id: first.id });
const stored = await client.responses.retrieve(first.id);
seen.whole = { text: first.output_text, status: first.status, usage: first.usage.total_tokens, ticket: first.metadata.ticket, stored: stored.output_text, storedTicket: stored.metadata.ticket };
seen.second = { text: second.output_text, previous: second.previous_response_id === first.id };

const stream = client.responses.stream({ model, input: "streamed question" });
seen.events = [];
seen.numbered = true;
let number = 0;
for await (const event of stream) {
  seen.numbered &&= event.sequence_number === number++;
  if (seen.events.at(-1) !== event.type) seen.events.push(event.type);
}
const final = await stream.finalResponse();
seen.streamed = { text: final.output_text, status: final.status, usage: final.usage.total_tokens };
seen.refused = {
  failed: await refusal(() => client.responses.create({ model, input: "please fail" })),
  unknown: await refusal(() => client.responses.create({ model, input: "x", previous_response_id: "resp_" + "0".repeat(32) })),
};
const unsettled = [];
for await (const event of await client.responses.create({ model, input: "please fail", stream: true })) unsettled.push(event);
seen.refused.stream = { type: unsettled.at(-1).type, code: unsettled.at(-1).response?.error?.code };

// OpenAI's Agents SDK
setDefaultOpenAIClient(client);
setTracingDisabled(true);
const agent = new Agent({ name: "Asker", instructions: "Be brief.", model });
const result = await run(agent, "agents question");
const again = await run(agent, [...result.history, { role: "user", content: "agents again" }]);
const chained = await run(agent, "agents chained", { previousResponseId: result.lastResponseId });
const running = await run(agent, "agents streamed", { stream: true });
let grown = "";
for await (const piece of running.toTextStream()) grown += piece;
await running.completed;
seen.agents = [result.finalOutput, again.finalOutput, chained.finalOutput, grown, running.finalOutput];

// The AI SDK
const provider = createOpenAI({ baseURL, apiKey });
const generated = await generateText({ model: provider(model), prompt: "vercel question" });
const messages = [{ role: "user", content: "vercel question" }, ...generated.response.messages, { role: "user", content: "vercel again" }];
const followed = await generateText({ model: provider(model), messages });
const flowing = streamText({ model: provider(model), prompt: "vercel streamed" });
let flown = "";
for await (const piece of flowing.textStream) flown += piece;
seen.vercel = [generated.text, followed.text, flown];
seen.finish = [generated.finishReason, followed.finishReason, await flowing.finishReason, (await flowing.usage).totalTokens];
console.log(JSON.stringify(seen));
