// Checks the OpenAPI document of a server with a validator, makes types of it, compiles a client against them, runs that
// client, and prints what it saw as one line of JSON:
//   node check.mjs BASE_URL TOKEN BRIDGE_TOKEN OPERATOR_TOKEN CONNECTOR_SECRET DIRECTORY
// Everything that the client and the server say to each other is held to the document by another validator.
import { createHmac } from "node:crypto";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Validator } from "@seriousme/openapi-schema-validator";
import Ajv from "ajv/dist/2020.js";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const [base, peer, bridge, operator, secret, directory] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const document = await (await fetch(`${base}/openapi.json`)).json();
const validator = new Validator();
const verdict = await validator.validate(structuredClone(document));
if (!verdict.valid) {
  console.log(JSON.stringify({ problems: JSON.stringify(verdict.errors).slice(0, 4000) }));
  process.exit(0);
}

mkdirSync(directory, { recursive: true });
symlinkSync(join(here, "..", "node_modules"), join(directory, "node_modules"));
writeFileSync(join(directory, "package.json"), '{"type":"module"}');
writeFileSync(join(directory, "schema.d.ts"), astToString(await openapiTS(document)));
writeFileSync(join(directory, "client.ts"), readFileSync(join(here, "client.ts")));
const program = ts.createProgram([join(directory, "client.ts")], {
  strict: true, noEmit: true, skipLibCheck: true, types: [], lib: ["lib.es2022.d.ts", "lib.dom.d.ts", "lib.dom.iterable.d.ts"],
  target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext,
});
const problems = ts.getPreEmitDiagnostics(program).map((one) => `${one.file?.fileName ?? ""}:${one.start ?? ""} ${ts.flattenDiagnosticMessageText(one.messageText, "\n")}`);
if (problems.length > 0) {
  console.log(JSON.stringify({ problems: problems.join("\n").slice(0, 4000) }));
  process.exit(0);
}
const script = ts.transpileModule(readFileSync(join(directory, "client.ts"), "utf8"), { compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 } });
writeFileSync(join(directory, "client.js"), script.outputText);
const { talk } = await import(pathToFileURL(join(directory, "client.js")));

const ajv = new Ajv.default({ strict: false, validateFormats: false });
for (const [name, schema] of Object.entries(document.components.schemas)) { // types have exactly these members
  if (schema.properties && !schema.title) document.components.schemas[name].additionalProperties ??= false;
}
ajv.addSchema(document, "document");
const wrong = [];
const seen = new Set();
const pointer = (steps) => "document#/" + steps.map((step) => encodeURIComponent(step.replaceAll("~", "~0").replaceAll("/", "~1"))).join("/");
function hold(what, steps, value) {
  const validate = ajv.compile({ $ref: pointer(steps) });
  if (!validate(value)) wrong.push(`${what}: ${ajv.errorsText(validate.errors)}`);
}
const recorder = {
  async onRequest({ request, schemaPath }) {
    const method = request.method.toLowerCase();
    const text = await request.clone().text();
    if (text !== "") hold(`${method} ${schemaPath} request`, ["paths", schemaPath, method, "requestBody", "content", "application/json", "schema"], JSON.parse(text));
  },
  async onResponse({ request, response, schemaPath }) {
    const method = request.method.toLowerCase();
    let steps = ["paths", schemaPath, method, "responses", String(response.status)];
    let described = document.paths[schemaPath][method].responses[response.status];
    if (!described) return void wrong.push(`${method} ${schemaPath}: the status ${response.status} is not described`);
    if (described.$ref) steps = described.$ref.slice(2).split("/");
    seen.add(`${method} ${schemaPath}`);
    if (response.status !== 204) hold(`${method} ${schemaPath} ${response.status}`, [...steps, "content", "application/json", "schema"], await response.clone().json());
  },
};
const connector = (body) => "sha256=" + createHmac("sha256", secret).update(body).digest("hex");
const said = await talk(base, { peer, bridge, operator, connector }, recorder);
console.log(JSON.stringify({ version: validator.version, paths: Object.keys(document.paths).length, called: seen.size, wrong, ...said }));
