// Package safehttp is the only way out: the HTTP client, the dialer and the name resolver for everything that the
// server fetches or sends. It refuses private, loopback and special addresses after name resolution at the moment of
// dialling, bounds redirects, time, size and concurrency, and takes no proxy from the environment. It signs nothing,
// caches no documents and does not judge what a response says.
package safehttp
