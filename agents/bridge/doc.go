// Package bridge is the protocol of remote bridges: programs elsewhere that fetch an agent's answers themselves. A
// client registers, answers for it are queued, it reads what is pending and acknowledges what it has. Acknowledging is
// the only thing that removes an item: attempts to deliver it to a callback, leases and reading never do, so a client
// that dies between reading and acknowledging gets everything again (agent runtime contract, section 6.4). The package
// speaks no HTTP, delivers nothing itself and keeps nothing beyond its bounded in-memory store.
package bridge
