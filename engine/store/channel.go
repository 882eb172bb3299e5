package store

import (
	"strings"

	"inbox/exchange"
)

// channelOf returns the channel of a turn, also where an older node wrote the row while nodes are replaced one by one: it knows no
// channels. The rule is that of migration 00020, which says the same about rows from before.
func channelOf(written, receivedVia, route string) string {
	switch {
	case written != "":
		return written
	case receivedVia != "a2a":
		return receivedVia
	case strings.HasPrefix(route, `{"chat":true`):
		return "chat"
	case strings.HasPrefix(route, `{"surface":`):
		return "bridge"
	case route == `{"dispatch":"fetched"}`:
		return exchange.ChannelLocal
	}
	return receivedVia
}
