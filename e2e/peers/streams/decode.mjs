// Decodes the stream of server-sent events on standard input with eventsource-parser, which most programs in JavaScript use, and prints the
// data of its events as one line of JSON.
import { createParser } from "eventsource-parser";

const data = [];
const errors = [];
const parser = createParser({ onEvent: (event) => data.push(event.data), onError: (error) => errors.push(error.message) });
process.stdin.setEncoding("utf8");
for await (const piece of process.stdin) parser.feed(piece);
console.log(JSON.stringify({ data, errors }));
