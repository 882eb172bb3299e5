// Must be the first import: resolves names below .test by the name server of PEER_NAME_SERVER, as a resolv.conf of the test would.
import dns from "node:dns";
import { syncBuiltinESMExports } from "node:module";

const resolver = new dns.promises.Resolver();
resolver.setServers([process.env.PEER_NAME_SERVER]);

const lookup = dns.promises.lookup;
async function find(name, options) {
  if (!name.endsWith(".test")) return lookup(name, options);
  const found = (await resolver.resolve4(name)).map((address) => ({ address, family: 4 }));
  return options?.all ? found : found[0];
}

dns.promises.lookup = find;
dns.lookup = (name, options, callback) => {
  if (typeof options === "function") [options, callback] = [{}, options];
  find(name, typeof options === "number" ? { family: options } : options).then(
    (found) => options?.all ? callback(null, found) : callback(null, found.address, found.family),
    (error) => callback(error),
  );
};
syncBuiltinESMExports();
