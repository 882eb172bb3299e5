// Package load holds senders and receivers that are written from the specifications and not from the server's own
// code: a fediverse server with many persons, mail domains with a mail sender and a mail sink, an A2A client, and a
// name server for their records. The end-to-end tests, the crash test and the benchmarks share them. It is no client
// library: it sends what these programs need and leaves out everything else.
package load
