package load

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func resolver(names *Names) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, names.Address())
	}}
}

func TestNamesAnswersWhatItWasTold(t *testing.T) {
	names, err := NewNames()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(names.Close)
	long := strings.Repeat("0123456789", 300) // more than a datagram takes: the answer comes over TCP
	names.SetTXT("a.sender.test", long)
	if err := names.Set("sender.test. 60 IN MX 10 mx.sender.test."); err != nil {
		t.Fatal(err)
	}

	got, err := resolver(names).LookupTXT(t.Context(), "A.sender.test")
	if err != nil || !cmp.Equal(got, []string{long}) {
		t.Errorf("TXT gave %d records, %v", len(got), err)
	}
	if mx, err := resolver(names).LookupMX(t.Context(), "sender.test"); err != nil || len(mx) != 1 {
		t.Errorf("MX gave %v, %v", mx, err)
	}
	var missing *net.DNSError
	if _, err := resolver(names).LookupTXT(t.Context(), "other.test"); !errors.As(err, &missing) || !missing.IsNotFound {
		t.Errorf("an unknown name gave %v", err)
	}
}
