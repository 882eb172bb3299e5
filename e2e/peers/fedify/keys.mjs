// Test keys that survive a restart: peers cache the keys of an actor, so an actor must keep them.
import { exportJwk, generateCryptoKeyPair, importJwk } from "@fedify/fedify";
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const ALGORITHMS = ["RSASSA-PKCS1-v1_5", "Ed25519"];

async function load(file) {
  const stored = JSON.parse(readFileSync(file, "utf8"));
  return Promise.all(stored.map(async (pair) => ({
    privateKey: await importJwk(pair.privateKey, "private"),
    publicKey: await importJwk(pair.publicKey, "public"),
  })));
}

async function create(file) {
  const pairs = await Promise.all(ALGORITHMS.map((algorithm) => generateCryptoKeyPair(algorithm)));
  const stored = await Promise.all(pairs.map(async (pair) => ({
    privateKey: await exportJwk(pair.privateKey),
    publicKey: await exportJwk(pair.publicKey),
  })));
  writeFileSync(file, JSON.stringify(stored), { mode: 0o600 });
  return pairs;
}

/** The key pairs kept in the file; made and written there when it does not exist. */
export async function keyPairs(file) {
  return existsSync(file) ? load(file) : create(file);
}
