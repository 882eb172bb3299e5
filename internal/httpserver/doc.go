// Package httpserver is the one HTTP server: routes of all rooms on one router, limits, request ids, metrics by
// route pattern, health and readiness, faults as JSON, graceful stop. It knows no protocol of its own and decides
// nothing about senders.
package httpserver
