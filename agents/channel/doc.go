// Package channel is the portable part of every connection to another messaging product: the normalized external
// message and its client_context, the loop of a direct channel, the action that sends a message out by itself, the map
// from an outside conversation to one of our sessions, the check of a webhook's signature, and the suppression of
// duplicates (agent runtime contract, sections 6.2 and 6.3). It parses the payload of no product, speaks no HTTP and
// keeps nothing beyond its bounded in-memory stores.
package channel
