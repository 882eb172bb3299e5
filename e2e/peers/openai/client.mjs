// Talks to a server through OpenAI's SDK and prints what it saw as one line of JSON:
//   node client.mjs BASE_URL API_KEY MODEL
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "first question" },
  { role: "assistant", content: "first answer" },
  { role: "user", content: "second question" },
];

async function refusal(make) {
  try {
    await make();
    return { type: "none" };
  } catch (error) {
    return { type: error.constructor.name, status: error.status ?? null, code: error.code ?? null };
  }
}

const seen = { models: (await client.models.list()).data.map((one) => one.id), model: (await client.models.retrieve(model)).id };
const whole = await client.chat.completions.create({ model, messages });
seen.whole = { text: whole.choices[0].message.content, finish: whole.choices[0].finish_reason, usage: whole.usage, id: whole.id };

const stream = await client.chat.completions.create({ model, messages, stream: true, stream_options: { include_usage: true } });
seen.stream = { text: "", chunks: 0, finish: null, usage: null };
for await (const chunk of stream) {
  seen.stream.chunks++;
  seen.stream.text += chunk.choices[0]?.delta?.content ?? "";
  seen.stream.finish = chunk.choices[0]?.finish_reason ?? seen.stream.finish;
  seen.stream.usage = chunk.usage ?? seen.stream.usage;
}

const helper = client.chat.completions.stream({ model, messages });
seen.helper = await helper.finalContent();
const say = (content, more = {}) => client.chat.completions.create({ model, messages: [{ role: "user", content }], ...more });
seen.refused = {
  key: await refusal(() => new OpenAI({ baseURL, apiKey: "sk-wrong", maxRetries: 0 }).models.list()),
  model: await refusal(() => say("x", { model: "nobody" })),
  failed: await refusal(() => say("please fail")),
  failedStream: await refusal(async () => { for await (const _ of await say("please fail", { stream: true })); }),
};
seen.refused.two = await refusal(() => say("x", { n: 2 }));
seen.address = (await client.models.retrieve(`@${model}`)).id;

// The answer is lost on the way, and the SDK asks again by itself.
let sent = 0;
const losing = async (url, init) => {
  const answer = await fetch(url, init);
  if (++sent > 1) return answer;
  await answer.body.cancel();
  throw new TypeError("the network is gone");
};
const repeating = new OpenAI({ baseURL, apiKey, maxRetries: 2, fetch: losing });
seen.repeated = { text: (await repeating.chat.completions.create({ model, messages })).choices[0].message.content, sent };

// Somebody leaves in the middle of a stream, and comes back by the same key.
const leaving = new AbortController();
const left = await client.chat.completions.create({ model, messages: [{ role: "user", content: "slowly" }], stream: true }, { signal: leaving.signal, headers: { "Idempotency-Key": "left" } });
for await (const chunk of left) if (chunk.choices[0].delta.content) break;
leaving.abort();
console.log(JSON.stringify(seen));
process.stdin.once("data", async () => {
  const back = await client.chat.completions.create({ model, messages: [{ role: "user", content: "slowly" }] }, { headers: { "Idempotency-Key": "left" } });
  console.log(JSON.stringify({ text: back.choices[0].message.content }));
});
process.stdin.once("end", () => process.exit(0));
