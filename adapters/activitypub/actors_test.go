package activitypub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/internal/await"
	"inbox/internal/fault"
)

func TestDeadKeyCostsOneFetch(t *testing.T) {
	r := newRig(t)
	r.remote.handle("/users/alice", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	for range 5 {
		r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusServiceUnavailable, "could not be fetched")
	}
	if n := r.remote.count("/users/alice"); n != 1 {
		t.Errorf("%d fetches in the first minutes, want 1", n)
	}
	r.clock.Store(int64(unreachLife))
	r.remote.addActor("alice", aliceKey(), nil)
	r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
}

func TestInventedKeysOfOneHostAreBounded(t *testing.T) {
	r := newRig(t)
	const keys = maxSourceFailures / 3 // each is asked for unsigned and in both schemes
	for i := range keys + 10 {
		d := r.deliver(r.mentionNote("1", "hello"))
		d.keyID = fmt.Sprintf("%s/invented/%d", r.remote.base, i)
		want := http.StatusUnauthorized
		if i >= keys {
			want = http.StatusTooManyRequests
		}
		r.want(d.sign(), want, "")
	}
	if n := r.remote.requests.Load(); n != maxSourceFailures {
		t.Errorf("%d fetches, want %d", n, maxSourceFailures)
	}
}

// TestSlowServersDoNotPileUp: when all fetches are taken the sender is told to come back, and nothing is held against it.
func TestSlowServersDoNotPileUp(t *testing.T) {
	r := newRig(t)
	synctest.Test(t, func(t *testing.T) {
		l := newActors(r.adapter.site, r.adapter.fetcher)
		for i := range maxKeyFetches {
			if _, err := l.enter(t.Context(), fmt.Sprint("slow", i, ".example")); err != nil {
				t.Fatal(err)
			}
		}
		started := time.Now()
		_, err := l.fetch(t.Context(), "https://m.example/key")
		if !fault.Is(err, fault.Unavailable) || time.Since(started) != maxPlaceWait {
			t.Errorf("%v after %v", err, time.Since(started))
		}
		if _, failed := l.failed.get("https://m.example/key", r.adapter.now()); failed {
			t.Error("the key is remembered as failing")
		}
	})
}

func TestManySendersOfOneKeyFetchItOnce(t *testing.T) {
	r := newRig(t)
	var wait sync.WaitGroup
	for i := range 20 {
		d := r.deliver(r.mentionNote(fmt.Sprint(i), "hello")).sign()
		wait.Go(func() { r.want(d, http.StatusAccepted, "") })
	}
	await.Done(t, wait.Wait, "the answers to all deliveries")
	if n := r.remote.count("/users/alice"); n != 1 {
		t.Errorf("%d fetches, want 1", n)
	}
}

func TestChangedKeyIsFetchedAgainOnce(t *testing.T) {
	r := newRig(t)
	r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
	r.remote.addActor("alice", malloryKey(), nil)
	d := r.deliver(r.mentionNote("2", "hello"))
	d.key = malloryKey()
	r.want(d.sign(), http.StatusAccepted, "")
	for range 3 { // the old key again: wrong now, and not fetched for again
		r.want(r.deliver(r.mentionNote("3", "hello")).sign(), http.StatusUnauthorized, "does not verify")
	}
	if n := r.remote.count("/users/alice"); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}
}

func TestKeysSurviveARestart(t *testing.T) {
	r := newRig(t)
	r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
	r.forgetActors() // a new process with the same store
	r.want(r.deliver(r.mentionNote("2", "hello")).sign(), http.StatusAccepted, "")
	if n := r.remote.count("/users/alice"); n != 1 {
		t.Errorf("%d fetches, want 1", n)
	}
	r.forgetActors()
	r.clock.Store(int64(keyLife))
	r.want(r.deliver(r.mentionNote("3", "hello")).sign(), http.StatusAccepted, "")
	if n := r.remote.count("/users/alice"); n != 2 {
		t.Errorf("%d fetches after a day, want 2", n)
	}
}

// TestGoToSocialKeys: secure mode (401 without a signature), 418 without a User-Agent, and key ids without a fragment
// that serve a stub of the actor to every reader.
func TestGoToSocialKeys(t *testing.T) {
	r := newRig(t)
	keyID := r.remote.actor("alice") + "/main-key"
	full := r.remote.actorDocument("alice", aliceKey())
	full["publicKey"].(map[string]any)["id"] = keyID
	stub := map[string]any{
		"@context": full["@context"], "id": full["id"], "type": "Person", "preferredUsername": "alice", "publicKey": full["publicKey"],
	}
	r.remote.serve("/users/alice", full)
	r.remote.serve("/users/alice/main-key", stub)
	var unsigned []string
	r.remote.requires = func(q *http.Request) bool {
		if q.Header.Get("User-Agent") == "" || !strings.HasPrefix(q.Header.Get("User-Agent"), "inbox/1.2.3 (+http://") {
			t.Errorf("User-Agent %q", q.Header.Get("User-Agent"))
		}
		if q.Header.Get("Signature") == "" {
			unsigned = append(unsigned, q.URL.Path)
		}
		return strings.HasSuffix(q.URL.Path, "/main-key") || q.Header.Get("Signature") != ""
	}
	d := r.deliver(r.mentionNote("1", "hello"))
	d.keyID = keyID
	r.want(d.sign(), http.StatusAccepted, "")
	// The key is public; the owner is not, which is remembered.
	if want := []string{"/users/alice/main-key", "/users/alice"}; !cmp.Equal(unsigned, want) {
		t.Errorf("unsigned fetches: %v, want %v", unsigned, want)
	}
	if _, err := r.adapter.actors.fetchActor(t.Context(), r.remote.actor("alice")); err != nil || len(unsigned) != 2 {
		t.Errorf("asked unsigned again: %v, %v", unsigned, err)
	}
	r.forgetActors()
	d = r.deliver(r.mentionNote("2", "hello"))
	d.keyID = keyID
	r.want(d.sign(), http.StatusAccepted, "")
	if n := r.remote.count("/users/alice/main-key"); n != 1 {
		t.Errorf("key fetched %d times, want 1: the store knows its owner", n)
	}
}

// TestOurFetchesVerify checks the signature of our GETs with the key that the server's own actor publishes.
func TestOurFetchesVerify(t *testing.T) {
	r := newRig(t)
	var seen signature.Request
	r.remote.requires = func(q *http.Request) bool {
		if q.Header.Get("Signature") == "" {
			return false
		}
		seen = signature.Request{Method: q.Method, Target: q.RequestURI, Host: q.Host, Header: q.Header.Clone()}
		return true
	}
	r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
	signed, err := signature.Check(seen, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if signed.KeyID != r.base+"/actor#main-key" {
		t.Errorf("key id %q", signed.KeyID)
	}
	_, _, body := r.fetch("/actor", "")
	var actor actorDocument
	if err := json.Unmarshal([]byte(body), &actor); err != nil {
		t.Fatal(err)
	}
	key, err := signature.ParseKey(actor.PublicKey.PEM)
	if err != nil {
		t.Fatal(err)
	}
	if err := signed.Verify(key); err != nil {
		t.Error(err)
	}
}

func TestSeparateKeyDocument(t *testing.T) {
	r := newRig(t)
	id := r.remote.base + "/keys/7"
	r.remote.addActor("alice", aliceKey(), func(doc map[string]any) { doc["publicKey"] = []any{id} })
	r.remote.serve("/keys/7", map[string]any{"id": id, "owner": r.remote.actor("alice"), "publicKeyPem": publicPEM(aliceKey())})
	d := r.deliver(r.mentionNote("1", "hello"))
	d.keyID = id
	r.want(d.sign(), http.StatusAccepted, "")
}

// TestActorsInOddForms: collections embedded, a picture as a bare address.
func TestActorsInOddForms(t *testing.T) {
	id := "https://m.example/users/a"
	actor, err := readActor(document.Object{
		"id": id, "type": []any{"Person"}, "inbox": id + "/inbox", "icon": "https://m.example/a.png",
		"followers": document.Object{"type": "OrderedCollection", "id": id + "/followers", "totalItems": "1"},
	}, time.Now())
	if err != nil || actor.Followers != id+"/followers" || actor.Icon != "https://m.example/a.png" || actor.Type != "Person" {
		t.Errorf("%+v, %v", actor, err)
	}
}

func TestAddressIsConfirmedLater(t *testing.T) {
	cases := []struct {
		name    string
		answers map[string]string // host → subject, with %s for the actor's host
		self    func(*rig) string
		change  func(map[string]any)
		want    string
		status  string
	}{
		{"same host", map[string]string{"acct:alice@%s": "acct:alice@%s"}, nil, nil, "@alice@%s", addressConfirmed},
		{"subject names the canonical spelling", map[string]string{"acct:alice@%s": "acct:Alice@%s"}, nil, nil, "@Alice@%s", addressConfirmed},
		{"names another actor", map[string]string{"acct:alice@%s": "acct:alice@%s"}, func(r *rig) string { return r.remote.actor("mallory") }, nil, "@alice@%s", addressFailed},
		{"names another actor for a name that the actor gave itself", map[string]string{"acct:boss@%s": "acct:boss@%s"}, func(r *rig) string { return r.remote.actor("boss") },
			func(doc map[string]any) { doc["preferredUsername"] = "boss" }, "@alice@%s", addressFailed},
		{"nobody there", nil, nil, nil, "@alice@%s", addressFailed},
		{"hint of the actor (FEP-2c59)", map[string]string{"acct:a.lice@%s": "acct:a.lice@%s"}, nil, func(doc map[string]any) { doc["webfinger"] = "a.lice@" + document.HostOf(doc["id"].(string)) }, "@a.lice@%s", addressConfirmed},
		{"hint of another domain that does not know the actor", nil, nil, func(doc map[string]any) {
			doc["webfinger"] = "boss@localhost" + strings.TrimLeft(document.HostOf(doc["id"].(string)), "0123456789.")
		}, "@alice@%s", addressFailed},
		{"name that is an address of another domain", nil, nil, func(doc map[string]any) { doc["preferredUsername"] = "boss@bank.example" }, "@alice@%s", addressFailed},
		{"unstable subject", map[string]string{"acct:alice@%s": "acct:x@%s", "acct:x@%s": "acct:alice@%s"}, nil, nil, "@alice@%s", addressFailed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			host := document.HostOf(r.remote.base)
			r.remote.addActor("alice", aliceKey(), c.change)
			r.remote.handle("/.well-known/webfinger", func(w http.ResponseWriter, q *http.Request) {
				for asked, subject := range c.answers {
					if strings.ReplaceAll(asked, "%s", host) != q.URL.Query().Get("resource") {
						continue
					}
					self := r.remote.actor("alice")
					if c.self != nil {
						self = c.self(r)
					}
					w.Header().Set("Content-Type", "application/jrd+json")
					_ = json.NewEncoder(w).Encode(map[string]any{
						"subject": strings.ReplaceAll(subject, "%s", host),
						"links":   []any{map[string]string{"rel": "self", "type": activityMediaType, "href": self}},
					})
					return
				}
				http.NotFound(w, q)
			})
			r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
			first := r.engine.All()[0].Message.Sender
			if first.Address.String() != "@alice@"+host || !strings.Contains(string(first.Identities[0].Claims), addressUnchecked) {
				t.Errorf("first message from %s, %s", first.Address, first.Identities[0].Claims)
			}
			if n := r.remote.count("/.well-known/webfinger"); n != 0 {
				t.Error("the inbox waited for WebFinger")
			}
			jobs := r.engine.takeJobs(jobAddress)
			if len(jobs) != 1 {
				t.Fatalf("%d checks queued, want 1", len(jobs))
			}
			if err := r.adapter.SendActivity(t.Context(), jobs[0]); err != nil {
				t.Fatal(err)
			}
			r.want(r.deliver(r.mentionNote("2", "hello")).sign(), http.StatusAccepted, "")
			second := r.engine.All()[1].Message.Sender
			if second.Address.String() != strings.ReplaceAll(c.want, "%s", host) || !strings.Contains(string(second.Identities[0].Claims), c.status) {
				t.Errorf("second message from %s, %s", second.Address, second.Identities[0].Claims)
			}
			if first.Principal() != second.Principal() {
				t.Error("the principal changed with the address")
			}
			if len(r.engine.takeJobs(jobAddress)) != 0 {
				t.Error("checked again")
			}
		})
	}
}

// TestAddressOfAnotherDomain: an address outside of the actor's own host counts only when that domain's WebFinger
// names the actor.
func TestAddressOfAnotherDomain(t *testing.T) {
	for _, known := range []bool{true, false} {
		r := newRig(t)
		host := document.HostOf(r.remote.base)
		other := "localhost" + host[strings.LastIndexByte(host, ':'):]
		r.remote.addActor("alice", aliceKey(), func(doc map[string]any) { doc["webfinger"] = "boss@" + other })
		r.remote.handle("/.well-known/webfinger", func(w http.ResponseWriter, q *http.Request) {
			if !known || q.Host != other {
				http.NotFound(w, q)
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]any{
				"subject": "acct:boss@" + other,
				"links":   []any{map[string]string{"rel": "self", "type": activityMediaType, "href": r.remote.actor("alice")}},
			})
		})
		want := "@alice@" + host
		for _, id := range []string{"1", "2"} {
			r.want(r.deliver(r.mentionNote(id, "hello")).sign(), http.StatusAccepted, "")
			all := r.engine.All()
			sender := all[len(all)-1].Message.Sender
			if sender.Address.String() != want {
				t.Errorf("known %v, message %s: from %s, want %s", known, id, sender.Address.String(), want)
			}
			for _, address := range []string{"@alice@" + host, "@boss@" + other} {
				if vouched := sender.Identities[0].Vouches(address); vouched != (known && id == "2" && address == want) {
					t.Errorf("known %v, message %s: the evidence vouches for %s: %v", known, id, address, vouched)
				}
			}
			for _, job := range r.engine.takeJobs(jobAddress) {
				if err := r.adapter.SendActivity(t.Context(), job); err != nil {
					t.Fatal(err)
				}
			}
			if known {
				want = "@boss@" + other
			}
		}
		if r.remote.count("/.well-known/webfinger") == 0 {
			t.Error("no one was asked")
		}
	}
}

// TestRuleThatNamesAPersonWaitsForWebFinger: where a rule is about the whole address, the first message waits for the check,
// and a user name that an actor gave itself opens nothing.
func TestRuleThatNamesAPersonWaitsForWebFinger(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  func(r *rig, w http.ResponseWriter)
		status  int
		claim   string
		vouches bool
	}{
		{"the name is the actor's", func(r *rig, w http.ResponseWriter) { r.names(w, r.remote.actor("alice")) }, http.StatusAccepted, addressConfirmed, true},
		{"the name is somebody else's", func(r *rig, w http.ResponseWriter) { r.names(w, r.remote.actor("the-real-alice")) }, http.StatusAccepted, addressFailed, false},
		{"nobody has the name", func(_ *rig, w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, http.StatusAccepted, addressFailed, false},
		{"the server is in trouble", func(_ *rig, w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }, http.StatusServiceUnavailable, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.NamesLocal = func(_, local string) bool { return local == "alice" } })
			r.remote.handle("/.well-known/webfinger", func(w http.ResponseWriter, _ *http.Request) { c.answer(r, w) })
			status, text, header := r.send(r.deliver(r.mentionNote("1", "hello")).sign())
			if status != c.status {
				t.Fatalf("status %d %q, want %d", status, text, c.status)
			}

			taken := r.engine.All()
			if status != http.StatusAccepted {
				if len(taken) != 0 || header.Get("Retry-After") == "" {
					t.Errorf("%d messages, Retry-After %q", len(taken), header.Get("Retry-After"))
				}
				r.want(r.deliver(r.mentionNote("2", "hello")).sign(), http.StatusServiceUnavailable, "")
				if asked := r.remote.count("/.well-known/webfinger"); asked != 1 {
					t.Errorf("a server in trouble was asked %d times within a minute", asked)
				}
				return
			}
			evidence := taken[0].Message.Sender.Identities[0]
			if !strings.Contains(string(evidence.Claims), `"address":"`+c.claim+`"`) || evidence.Vouches("@alice@"+document.HostOf(r.remote.base)) != c.vouches {
				t.Errorf("claims %s", evidence.Claims)
			}
		})
	}
}

// names answers a question of WebFinger about alice.
func (r *rig) names(w http.ResponseWriter, actor string) {
	w.Header().Set("Content-Type", "application/jrd+json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"subject": "acct:alice@" + document.HostOf(r.remote.base),
		"links":   []any{map[string]string{"rel": "self", "type": activityMediaType, "href": actor}},
	})
}

func TestCacheIsBounded(t *testing.T) {
	now := time.Unix(0, 0)
	c := newCache[int](2)
	c.put("a", 1, now.Add(time.Minute))
	c.put("b", 2, now.Add(time.Minute))
	c.get("a", now)
	c.put("c", 3, now.Add(time.Minute))
	if _, found := c.get("b", now); found {
		t.Error("the least recently used entry is still there")
	}
	if value, found := c.get("a", now); !found || value != 1 {
		t.Error("a used entry is gone")
	}
	if _, found := c.get("a", now.Add(time.Minute)); found {
		t.Error("an entry outlives its time")
	}
	if c.byKey.Len() != 1 {
		t.Errorf("%d entries, want 1", c.byKey.Len())
	}
}

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
