// Must be imported before the package. The package is made for activitystrea.ms 4, of which registries have 3.1.0 only: this gives 3.1.0
// the three members that it lacks.
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);

// Contexts are registered for all loaders; this is before the rest of the library makes its own.
const Loader = require("activitystrea.ms/src/contextloader.js");
const registered = new Map();
const { makeDocLoader } = Loader.prototype;
Loader.prototype.makeDocLoader = function () {
  const load = makeDocLoader.call(this);
  return async (url) => registered.has(url) ? { contextUrl: null, document: registered.get(url), documentUrl: url } : load(url);
};
const as2 = require("activitystrea.ms");
as2.registerContext = (url, context) => registered.set(url, context);

// The contexts that an object came with, by the name under which the library itself looks for them.
const Environment = require("activitystrea.ms/src/environment.js");
Object.defineProperty(Environment.prototype, "origContext", { get() { return this.originalContext; } });

const reasoner = require("activitystrea.ms/src/reasoner.js");
as2.models.Base.prototype.isActivity = function () {
  return [this.type].flat().some((type) => type && reasoner.node(type).is("https://www.w3.org/ns/activitystreams#Activity"));
};
