// Package email is the adapter for RFC 5322 mail: an SMTP server that never loses or doubles what it acknowledged,
// SPF, DKIM and DMARC as evidence about the sender, MIME to message parts, and replies that are threaded,
// DKIM-signed and brought to their recipients, to a smarthost or kept for the operator to read; bounces find their delivery.
//
// It is no mail store, no submission server and no relay: it accepts mail for agents of one domain and for its
// postmaster, and it sends nothing but replies.
package email
