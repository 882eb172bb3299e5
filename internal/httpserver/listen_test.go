package httpserver

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"inbox/internal/await"
)

// TestGate: what is over the limit is closed, and each end makes room.
func TestGate(t *testing.T) {
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	g, is := listener.(*gate)
	if !is {
		t.Fatalf("Listen gives %T", listener)
	}
	g.most = 2
	accepted := make(chan net.Conn, 4)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- connection
		}
	}()
	dial := func() net.Conn {
		connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		return connection
	}
	dial()
	dial()
	first, second := await.Receive(t, accepted, "the first connection"), await.Receive(t, accepted, "the second connection")
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("the third connection stays")
	}
	_ = first.Close()
	_ = first.Close() // counts once
	dial()
	third := await.Receive(t, accepted, "the connection after one left")
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("there is room for more after one left")
	}
	_, _ = second.Close(), third.Close()
	if _, sends := first.(io.ReaderFrom); !sends {
		t.Error("a connection cannot send files any more")
	}
}

func TestSourcesOfConnections(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:80": "192.0.2.7/32", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[::ffff:192.0.2.7]:80": "192.0.2.7/32",
		"127.0.0.1:80": "", "10.1.2.3:80": "", "[::1]:80": "", "[fd00::1]:80": "", "[fe80::1%eth0]:80": "", "@": "",
	} {
		if got := sourceOf(addressed{text: address}); got.IsValid() != (want != "") || got.IsValid() && got.String() != want {
			t.Errorf("%s is of %v, want %q", address, got, want)
		}
	}
	g := newGate(nil)
	g.others = 1
	network := netip.MustParsePrefix("192.0.2.7/32")
	if !g.enter(network) || g.enter(network) || !g.enter(netip.MustParsePrefix("192.0.2.8/32")) {
		t.Error("the limit of one address")
	}
	g.leave(network)
	if len(g.from) != 1 || !g.enter(network) {
		t.Error("no room after a leave")
	}
}

func TestPace(t *testing.T) {
	at := netip.MustParseAddr
	limiter := NewClientLimiter([]Rate{{Requests: 2, Window: time.Hour}}, Networks{Inside: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	for i, want := range []bool{false, false, true} {
		if wait := limiter(at("192.0.2.7")); wait > 0 != want {
			t.Errorf("request %d waits %v", i+1, wait)
		}
		if wait := limiter(at("10.0.0.1")); wait > 0 {
			t.Errorf("the operator waits %v", wait)
		}
	}
	if wait := limiter(at("192.0.2.8")); wait > 0 {
		t.Errorf("another address waits %v", wait)
	}
	if wait := NewClientLimiter(nil, Networks{})(at("192.0.2.7")); wait > 0 {
		t.Errorf("without a limit it waits %v", wait)
	}
}

type addressed struct {
	net.Conn
	text string
}

func (a addressed) RemoteAddr() net.Addr { return a }
func (a addressed) Network() string      { return "tcp" }
func (a addressed) String() string       { return a.text }
