package load

import (
	"fmt"
	"math/rand/v2"
	"net"

	"github.com/miekg/dns"
)

// Well opens the name server a second time, on port 53 of a loopback address of its own, for programs whose resolver
// knows no other port (Postfix, OpenDKIM). It needs the rights of root. It returns the IP address.
func (n *Names) Well() (string, error) {
	var last error
	for range 20 {
		host := fmt.Sprintf("127.%d.%d.%d", 1+rand.N(250), rand.N(250), 1+rand.N(250))
		if last = n.ServeAt(host); last == nil {
			return host, nil
		}
	}

	return "", fmt.Errorf("open a name server on port 53 of loopback (needs root): %w", last)
}

// ServeAt opens the name server a second time, on port 53 of an address of this machine.
func (n *Names) ServeAt(host string) error {
	address := net.JoinHostPort(host, "53")
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		_ = packets.Close()
		return err
	}

	n.serve(&dns.Server{PacketConn: packets, Handler: n})
	n.serve(&dns.Server{Listener: listener, Handler: n})
	return nil
}
