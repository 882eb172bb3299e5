// Package mailtable brings a table of mails to a whole server over SMTP on loopback and looks at what becomes of each: the
// code and the enhanced code, what was found out about the sender, and the reply or the silence. Senders, keys, signatures
// and DNS are made by the tests. Whether other mail servers get along with ours is the business of package e2e.
package mailtable
