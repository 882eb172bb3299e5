// Package email is the adapter for RFC 5322 mail: an SMTP server that never loses or doubles what it acknowledged, what a mail
// proves as evidence about its sender, its parts as a message, and replies that are threaded, signed and sent to their
// recipients, to a smarthost or kept for the operator to read; reports find their delivery.
//
// It is no mail store, no submission server and no relay: it accepts mail for agents of one domain and for its postmaster, and
// it sends nothing but replies. What is mail and no agent lies in the packages below it: message (syntax), dns, authentication,
// text, outbound and bounce. They know neither this package nor each other, apart from message and dns.
package email
