// Reads one streamed answer through OpenAI's SDK with no option set but address and key, and prints its words as one line of JSON:
//   node silence.mjs BASE_URL API_KEY MODEL
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const stream = await new OpenAI({ baseURL, apiKey }).chat.completions.create({ model, stream: true, messages: [{ role: "user", content: "hi" }] });
const seen = { text: "", finish: null };
for await (const chunk of stream) {
  seen.text += chunk.choices[0]?.delta?.content ?? "";
  seen.finish = chunk.choices[0]?.finish_reason ?? seen.finish;
}
console.log(JSON.stringify(seen));
