// Package emailtest has what the tests of mail stand on: a name server whose records a test changes, an SMTP server that
// plays the smarthost or a recipient's server, a state in memory, and mails that are written and signed by others' code.
// It is for tests, and knows nothing of the packages that they test.
package emailtest
