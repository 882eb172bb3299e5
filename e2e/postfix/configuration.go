package postfix

import (
	"fmt"
	"strings"
)

// main writes main.cf. What is not here has the default of Postfix.
func (p *Postfix) main() string {
	lines := append([]string{
		"compatibility_level = 3.6",
		"queue_directory = " + p.queue(),
		"data_directory = " + p.state(),
		"maillog_file = " + p.log(),
		"maillog_file_prefixes = " + p.Directory,
		"myhostname = " + p.settings.Hostname,
		"mydestination =",
		"alias_maps =",
		"alias_database =",
		"inet_interfaces = 127.0.0.1",
		"inet_protocols = ipv4",
		"biff = no",
	}, p.settings.Main...)
	return strings.Join(lines, "\n") + "\n"
}

// The services of Debian's master.cf that a mail passes. The SMTP client lives in the queue directory as its root, where
// it finds the name server that it asks.
//
//nolint:dupword // columns
const services = `
pickup    unix n - n 60    1 pickup
cleanup   unix n - n -     0 cleanup
qmgr      unix n - n 300   1 qmgr
tlsmgr    unix - - n 1000? 1 tlsmgr
rewrite   unix - - n -     - trivial-rewrite
bounce    unix - - n -     0 bounce
defer     unix - - n -     0 bounce
trace     unix - - n -     0 bounce
verify    unix - - n -     1 verify
flush     unix n - n 1000? 0 flush
proxymap  unix - - n -     - proxymap
smtp      unix - - %s -    - smtp
showq     unix n - n -     - showq
error     unix - - n -     - error
retry     unix - - n -     - error
discard   unix - - n -     - discard
local     unix - n n -     - local
virtual   unix - n n -     - virtual
anvil     unix - - n -     1 anvil
scache    unix - - n -     1 scache
postlog   unix-dgram n - n - 1 postlogd
`

// master writes master.cf.
func (p *Postfix) master() string {
	caged := "n"
	if p.settings.Resolver != "" {
		caged = "y"
	}
	return strings.Join(p.settings.Services, "\n") + fmt.Sprintf(services, caged)
}
