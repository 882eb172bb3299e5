// Checks the OpenAPI document of a server with a validator, makes types of it, compiles a client against them, runs that
// client, and prints what it saw as one line of JSON:
//   node check.mjs BASE_URL TOKEN OPERATOR_TOKEN DIRECTORY
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Validator } from "@seriousme/openapi-schema-validator";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const [base, token, operator, directory] = process.argv.slice(2);
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
console.log(JSON.stringify({ version: validator.version, paths: Object.keys(document.paths).length, ...(await talk(base, token, operator)) }));
