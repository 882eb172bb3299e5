// Must be the first import: what it sets is read while Fedify's modules load.

// Fedify 2.3.6 is made for Node 22 and reads navigator.userAgent at load time; Node 20 has no navigator.
globalThis.navigator ??= { userAgent: `Node.js/${process.versions.node}` };

// Fedify asks WebFinger for an acct: handle by https only. The tests speak plain http on loopback.
const fetchAnywhere = globalThis.fetch;
globalThis.fetch = (input, init) => {
  const url = input instanceof Request ? input.url : String(input);
  if (!url.startsWith("https://127.0.0.1:")) return fetchAnywhere(input, init);
  const plain = "http://" + url.slice("https://".length);
  return fetchAnywhere(input instanceof Request ? new Request(plain, input) : plain, init);
};
