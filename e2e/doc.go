// Package e2e holds the tests of the whole program: the built binary against outside software that we did not write
// (Fedify, Postfix, OpenDKIM, swaks, dkimpy, the A2A JavaScript SDK, Caddy, nginx, HAProxy, PgBouncer, umoci, crun), on SQLite and on PostgreSQL. There is no code to import here.
package e2e
