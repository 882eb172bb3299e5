package httpserver

import "syscall"

// tcpNotsentLowat is TCP_NOTSENT_LOWAT of tcp(7), which package syscall lacks. Accepted connections inherit it.
const tcpNotsentLowat = 25

// limitUnsent is best effort: an old kernel works without it.
func limitUnsent(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLowat, unsentBytes)
	})
}
