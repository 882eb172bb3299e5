package email

import "bytes"

// RFC 5321, section 4.5.1, wants "RCPT TO:<postmaster>" without a domain to be understood, and the library refuses it before
// anybody is asked. So the domain is put in as it comes, where it is certain that what is read is a command: between the
// begin of a connection, or the answer to a MAIL that came alone, and the first line that could begin a mail.

var barePostmaster = []byte("<postmaster>")

// qualify puts the domain behind the bare postmaster in complete lines of commands. more is false from the line on that
// could begin a mail.
func qualify(chunk []byte, domain string) (qualified []byte, more bool) {
	rest := chunk
	for len(rest) > 0 {
		line, after, complete := bytes.Cut(rest, []byte("\n"))
		lower := bytes.ToLower(line)
		if !complete || !beforeCommands(lower) {
			return append(qualified, rest...), false
		}
		if at := bytes.Index(lower, barePostmaster); at >= 0 && len(bytes.TrimSpace(lower[len("rcpt to:"):at])) == 0 && bytes.HasPrefix(lower, []byte("rcpt to:")) {
			end := at + len(barePostmaster) - 1
			qualified = append(append(append(qualified, line[:end]...), '@'), domain...)
			line = line[end:]
		}
		qualified = append(append(qualified, line...), '\n')
		rest = after
	}
	return qualified, true
}

// beforeCommands says whether a line in lower case is a command behind which there are further commands.
func beforeCommands(line []byte) bool {
	verb, _, _ := bytes.Cut(bytes.TrimRight(line, "\r"), []byte(" "))
	switch string(verb) {
	case "ehlo", "helo", "mail", "rcpt", "rset", "noop", "vrfy":
		return true
	}
	return false
}

// qualifyRead changes what was read where that is a command. The caller holds the lock.
func (c *peerConn) qualifyRead(p []byte, n int) int {
	c.alone = n > 0 && bytes.IndexByte(p[:n], '\n') == n-1
	if !c.commands || n == 0 {
		return n
	}
	var out []byte
	out, c.commands = qualify(p[:n], c.listener.domain)
	if len(out) == n {
		return n
	}
	n = copy(p, out)
	c.unread = out[n:]
	return n
}
