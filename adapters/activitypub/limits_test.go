package activitypub

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"inbox/internal/await"
)

// from returns the same rig with a client at another address of loopback.
func (r *rig) from(address string) *rig {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	r.t.Cleanup(transport.CloseIdleConnections)
	other := *r
	other.client = &http.Client{Transport: transport}
	return &other
}

const forger, honest = "127.0.5.2", "127.0.6.3"

// TestForgersDoNotShutOutOthers: twenty requests with invented keys made every new sender of the named host hear 401 for five
// minutes. Now they cost the network that they come from, and no one else.
func TestForgersDoNotShutOutOthers(t *testing.T) {
	r := newRig(t)
	forging, sending := r.from(forger), r.from(honest)
	for round := range 3 {
		for i := range 2 * maxSourceFailures {
			d := r.deliver(r.mentionNote("forged", "hello"))
			d.keyID = fmt.Sprintf("%s/invented/%d/%d", r.remote.base, round, i)
			status, text, header := forging.send(d.sign())
			if status != http.StatusUnauthorized && (status != http.StatusTooManyRequests || header.Get("Retry-After") == "") {
				t.Fatalf("forged request %d of round %d: %d %q", i, round, status, text)
			}
		}
		name := fmt.Sprint("sender", round)
		r.remote.addActor(name, aliceKey(), nil)
		note := bytes.ReplaceAll(r.deliver(r.mentionNote(name, "hello")).body, []byte("/users/alice"), []byte("/users/"+name))
		d := r.deliver(string(note))
		d.keyID = r.remote.actor(name) + "#main-key"
		sending.want(d.sign(), http.StatusAccepted, "")
	}
}

// TestForgersDoNotKeepNewKeysOut: a request that is signed wrongly with the name of a known key caused the one look for a new
// key in five minutes; its owner, who has a new one since, heard 401.
func TestForgersDoNotKeepNewKeysOut(t *testing.T) {
	r := newRig(t)
	sending := r.from(honest)
	sending.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
	forged := r.deliver(r.mentionNote("2", "hello"))
	forged.key = malloryKey()
	r.from(forger).want(forged.sign(), http.StatusUnauthorized, "")
	r.remote.addActor("alice", malloryKey(), nil) // a key that she has from now on
	renewed := r.deliver(r.mentionNote("3", "hello"))
	renewed.key = malloryKey()
	sending.want(renewed.sign(), http.StatusAccepted, "")
}

// TestSlowKeysDoNotShutOutOthers: sixteen keys on servers that do not answer made all unknown senders hear 503.
func TestSlowKeysDoNotShutOutOthers(t *testing.T) {
	r := newRig(t)
	release := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	begun := make(chan struct{}, 100)
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-release
	}))
	defer slow.Close()
	defer letGo()
	forging := r.from(forger)
	var forged sync.WaitGroup
	for i := range 30 {
		d := r.deliver(r.mentionNote("forged", "hello"))
		d.keyID = fmt.Sprintf("%s/slow/%d", slow.URL, i)
		d.body = bytes.ReplaceAll(d.body, []byte(r.remote.base), []byte(slow.URL))
		d.sign()
		forged.Go(func() {
			if status, _, _ := forging.send(d); status == http.StatusAccepted {
				t.Error("a forged request was accepted")
			}
		})
	}
	for range maxKeyFetches / 16 {
		await.Receive(t, begun, "the fetches of slow keys")
	}
	r.from(honest).want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
	letGo()
	await.Done(t, forged.Wait, "the answers to all forged requests")
}
