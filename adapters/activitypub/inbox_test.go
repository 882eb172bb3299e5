package activitypub

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
)

//contract:shows message-7 message-9 message-12 message-13 message-49
func TestMentionBecomesMessage(t *testing.T) {
	r := newRig(t)
	d := r.deliver(r.mentionNote("1", `<p><span class="h-card"><a href="`+r.base+`/@echo" class="u-url mention">@<span>echo</span></a></span> hello</p>`)).sign()
	r.want(d, http.StatusAccepted, "")
	taken := r.engine.All()
	if len(taken) != 1 {
		t.Fatalf("%d messages, want 1", len(taken))
	}
	message := taken[0].Message
	if message.Parts[0].Content != "hello" || message.Sender.Address.String() != "@alice@"+document.HostOf(r.remote.base) {
		t.Errorf("text %q from %q", message.Parts[0].Content, message.Sender.Address.String())
	}
	if !bytes.Equal(taken[0].Original, d.body) || message.Raw.MediaType != activityMediaType {
		t.Error("the original is not the body as received")
	}
	evidence := message.Sender.Identities[0]
	if evidence.Subject != r.remote.actor("alice") || evidence.Issuer != r.domain || evidence.Proof.KeyID != d.keyID {
		t.Errorf("evidence %+v", evidence)
	}
}

// TestRefusedWithoutFetch has the requests that are wrong in themselves: none of them may cost a connection.
func TestRefusedWithoutFetch(t *testing.T) {
	cases := []struct {
		name   string
		change func(*rig, *delivery)
		status int
		reason string
	}{
		{"missing signature", func(_ *rig, d *delivery) { d.header.Del("Signature") }, 401, "not signed"},
		{"tampered body", func(_ *rig, d *delivery) { d.body = bytes.Replace(d.body, []byte("hello"), []byte("hullo"), 1) }, 401, "digest does not match"},
		{"two-day-old date", func(r *rig, d *delivery) {
			d.header.Set("Date", time.Now().Add(-48*time.Hour).UTC().Format(http.TimeFormat))
			d.sign()
		}, 401, "too old"},
		{"date in the future", func(_ *rig, d *delivery) {
			d.header.Set("Date", time.Now().Add(2*time.Hour).UTC().Format(http.TimeFormat))
			d.sign()
		}, 401, "future"},
		{"date is no HTTP date", func(_ *rig, d *delivery) { d.header.Set("Date", "yesterday"); d.sign() }, 401, "not an HTTP date"},
		{"digest not covered", func(_ *rig, d *delivery) { d.covered = []string{"(request-target)", "host", "date"}; d.sign() }, 401, "must cover digest"},
		{"host not covered", func(_ *rig, d *delivery) { d.covered = []string{"(request-target)", "date", "digest"}; d.sign() }, 401, "must cover host"},
		{"request target not covered", func(_ *rig, d *delivery) { d.covered = []string{"host", "date", "digest"}; d.sign() }, 401, "must cover (request-target)"},
		{"date alone covered", func(_ *rig, d *delivery) { d.covered = []string{"date"}; d.sign() }, 401, "must cover"},
		{"no date covered", func(_ *rig, d *delivery) { d.covered = []string{"(request-target)", "host", "digest"}; d.sign() }, 401, "must cover date"},
		{"covered header absent", func(_ *rig, d *delivery) { d.covered = append(d.covered, "x-absent"); d.sign() }, 401, "absent"},
		{"created with rsa-sha256", func(_ *rig, d *delivery) {
			d.covered = append(d.covered, "(created)")
			d.parameters = "created=1,"
			d.sign()
		}, 401, "hs2019"},
		{"created without parameter", func(_ *rig, d *delivery) {
			d.covered = append(d.covered, "(created)")
			d.algorithm = "hs2019"
			d.sign()
		}, 401, "created"},
		{"expires that is over, not covered", func(_ *rig, d *delivery) {
			d.parameters = fmt.Sprintf(`expires=%d,`, time.Now().Add(-2*time.Hour).Unix())
			d.sign()
		}, 401, "too old"},
		{"unknown component", func(_ *rig, d *delivery) { d.covered = append(d.covered, "(status)"); d.sign() }, 401, "unknown component"},
		{"expires with rsa-sha256", func(_ *rig, d *delivery) {
			d.covered = append(d.covered, "(expires)")
			d.parameters = "expires=99999999999,"
			d.sign()
		}, 401, "hs2019"},
		{"date of RFC 850", func(_ *rig, d *delivery) {
			d.header.Set("Date", time.Now().UTC().Format("Monday, 02-Jan-06 15:04:05 GMT"))
			d.sign()
		}, 401, "not an HTTP date"},
		{"no digest header", func(_ *rig, d *delivery) { d.header.Del("Digest") }, 401, "digest"},
		{"weak algorithm", func(_ *rig, d *delivery) { d.algorithm = "rsa-sha1"; d.sign() }, 401, "not supported"},
		{"hmac algorithm", func(_ *rig, d *delivery) { d.algorithm = "hmac-sha256"; d.sign() }, 401, "not supported"},
		{"digest of another algorithm only", func(_ *rig, d *delivery) { d.header.Set("Digest", "MD5=AAAA"); d.sign() }, 401, "neither SHA-256 nor SHA-512"},
		{"second digest is wrong", func(_ *rig, d *delivery) {
			d.header.Set("Digest", digestOf(d.body)+",sha-256="+strings.TrimPrefix(digestOf(nil), "SHA-256="))
			d.sign()
		}, 401, "does not match"},
		{"two signature headers", func(_ *rig, d *delivery) { d.header.Add("Signature", d.header.Get("Signature")) }, 401, "exactly one"},
		{"repeated parameter", func(_ *rig, d *delivery) { d.header.Set("Signature", d.header.Get("Signature")+`,keyId="x"`) }, 401, "repeated"},
		{"captured for another host", func(_ *rig, d *delivery) { d.host = "elsewhere.example"; d.sign() }, 401, "another host"},
		{"key on another server", func(r *rig, d *delivery) {
			d.body = bytes.Replace(d.body, []byte(`"type":"Create"`), []byte(`"type":"Like"`), 1)
			d.header.Del("Digest")
			d.keyID = "https://evil.example/key"
			d.sign()
		}, 401, "not on the actor's server"},
		{"key id is no address", func(_ *rig, d *delivery) { d.keyID = "acct:alice@example.org"; d.sign() }, 401, "keyId"},
		{"key id on our own host", func(r *rig, d *delivery) { d.keyID = r.base + "/agents/echo#main-key"; d.sign() }, 401, "keyId"},
		{"actor of our own host", func(r *rig, d *delivery) {
			d.body = bytes.ReplaceAll(d.body, []byte(r.remote.actor("alice")), []byte(r.base+"/agents/echo"))
			d.header.Del("Digest")
			d.sign()
		}, 400, "actor"},
		{"activity of another server", func(r *rig, d *delivery) {
			d.body = bytes.Replace(d.body, []byte(`"id":"`+r.remote.base+`/notes/1/activity"`), []byte(`"id":"https://evil.example/1"`), 1)
			d.header.Del("Digest")
			d.sign()
		}, 400, "different servers"},
		{"form content type", func(_ *rig, d *delivery) { d.header.Set("Content-Type", "application/x-www-form-urlencoded") }, 415, "activity+json"},
		{"plain json content type", func(_ *rig, d *delivery) { d.header.Set("Content-Type", "application/json") }, 415, "activity+json"},
		{"compressed", func(_ *rig, d *delivery) { d.header.Set("Content-Encoding", "gzip") }, 415, "compressed"},
		{"too large", func(_ *rig, d *delivery) { d.body = make([]byte, document.MaxBytes+1) }, 413, "1 MiB"},
		{"not json", func(_ *rig, d *delivery) { d.body = []byte("hello") }, 400, "body"},
		{"empty body", func(_ *rig, d *delivery) { d.body = nil }, 400, "body"},
		{"duplicate names", func(_ *rig, d *delivery) {
			d.body = []byte(`{"type":"Create","actor":"https://a.example/1","actor":"https://b.example/1"}`)
		}, 400, "duplicate name"},
		{"JSON-LD keywords", func(_ *rig, d *delivery) { d.body = []byte(`{"type":"Create","@graph":[]}`) }, 400, "JSON-LD keyword"},
		{"no actor", func(_ *rig, d *delivery) { d.body = []byte(`{"type":"Create"}`) }, 400, "actor"},
		{"no type", func(_ *rig, d *delivery) { d.body = []byte(`{"actor":"https://a.example/1"}`) }, 400, "type"},
		{"unknown agent", func(_ *rig, d *delivery) { d.path = "/agents/nobody/inbox"; d.sign() }, 404, "no such agent"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			d := r.deliver(r.mentionNote("1", "hello")).sign()
			c.change(r, d)
			r.want(d, c.status, c.reason)
			if n := r.remote.connections.Load(); n != 0 {
				t.Errorf("%d connections went out", n)
			}
			if len(r.engine.All()) != 0 || len(r.engine.jobs) != 0 {
				t.Error("the request left a row")
			}
		})
	}
}

// TestRefusedAfterFetch has the requests whose fault only the key shows.
func TestRefusedAfterFetch(t *testing.T) {
	cases := []struct {
		name   string
		change func(*rig, *delivery)
		reason string
	}{
		{"wrong key", func(_ *rig, d *delivery) { d.key = malloryKey(); d.sign() }, "does not verify"},
		{"other target signed", func(_ *rig, d *delivery) { d.target = "/agents/echo/inbox"; d.sign() }, "does not verify"},
		{"key of another actor", func(r *rig, d *delivery) {
			r.remote.addActor("mallory", malloryKey(), nil)
			d.keyID, d.key = r.remote.actor("mallory")+"#main-key", malloryKey()
			d.sign()
		}, "belongs to another actor"},
		{"key substitution: key document claims a foreign owner", func(r *rig, d *delivery) {
			id := r.remote.base + "/keys/1"
			r.remote.serve("/keys/1", map[string]any{"id": id, "owner": r.remote.actor("alice"), "publicKeyPem": publicPEM(malloryKey())})
			d.keyID, d.key = id, malloryKey()
			d.sign()
		}, "does not list this key"},
		{"owner lists the key with other bytes", func(r *rig, d *delivery) {
			id := r.remote.actor("alice") + "/main-key"
			r.remote.addActor("alice", aliceKey(), func(doc map[string]any) { doc["publicKey"].(map[string]any)["id"] = id })
			r.remote.serve("/users/alice/main-key", map[string]any{"id": id, "owner": r.remote.actor("alice"), "publicKeyPem": publicPEM(malloryKey())})
			d.keyID, d.key = id, malloryKey()
			d.sign()
		}, "other bytes"},
		{"actor served as a file", func(r *rig, d *delivery) {
			document, _ := json.Marshal(r.remote.actorDocument("alice", malloryKey()))
			r.remote.handle("/users/alice", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(document)
			})
			d.key = malloryKey()
			d.sign()
		}, "could not be fetched"},
		{"ld+json without the profile", func(r *rig, d *delivery) {
			document, _ := json.Marshal(r.remote.actorDocument("alice", malloryKey()))
			r.remote.handle("/users/alice", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/ld+json")
				_, _ = w.Write(document)
			})
			d.key = malloryKey()
			d.sign()
		}, "could not be fetched"},
		{"redirect to another server", func(r *rig, d *delivery) {
			evil := newRemoteServer(r.t)
			document := r.remote.actorDocument("alice", malloryKey())
			evil.serve("/users/alice", document)
			r.remote.handle("/users/alice", func(w http.ResponseWriter, q *http.Request) {
				http.Redirect(w, q, evil.base+"/users/alice", http.StatusFound)
			})
			d.key = malloryKey()
			d.sign()
		}, "could not be fetched"},
		{"huge actor", func(r *rig, d *delivery) {
			r.remote.handle("/users/alice", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", activityMediaType)
				_, _ = w.Write(bytes.Repeat([]byte(" "), document.MaxBytes+10))
			})
		}, "could not be fetched"},
		{"RSA key of 1024 bits", func(r *rig, d *delivery) {
			t.Setenv("GODEBUG", "rsa1024min=0")
			weak, err := rsa.GenerateKey(rand.Reader, 1024)
			if err != nil {
				t.Fatal(err)
			}
			r.remote.addActor("alice", weak, nil)
			d.key = weak
			d.sign()
		}, "shorter than 2048"},
		{"actor is gone", func(r *rig, _ *delivery) {
			r.remote.handle("/users/alice", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
		}, "does not exist any more"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			d := r.deliver(r.mentionNote("1", "hello")).sign()
			c.change(r, d)
			status, text, header := r.send(d)
			if status != http.StatusUnauthorized || !strings.Contains(text, c.reason) {
				t.Errorf("status %d %q, want 401 %q", status, text, c.reason)
			}
			if header.Get("Accept-Signature") == "" {
				t.Error("a 401 should offer RFC 9421")
			}
			if want := `Signature realm="` + r.domain + `",headers="(request-target) host date digest"`; header.Get("WWW-Authenticate") != want {
				t.Errorf("WWW-Authenticate %q, want %q", header.Get("WWW-Authenticate"), want)
			}
			if len(r.engine.All()) != 0 || len(r.engine.jobs) != 0 {
				t.Error("the request left a row")
			}
		})
	}
}

func TestAcceptedForms(t *testing.T) {
	cases := []struct {
		name   string
		change func(*rig, *delivery)
	}{
		{"personal inbox", func(_ *rig, d *delivery) { d.path = "/agents/echo/inbox" }},
		{"personal inbox in other case", func(_ *rig, d *delivery) { d.path = "/agents/ECHO/inbox" }},
		{"percent-encoded path", func(_ *rig, d *delivery) { d.path = "/agents/%65cho/inbox" }},
		{"queried inbox", func(_ *rig, d *delivery) { d.path = "/inbox?x=%2F1&y" }},
		{"query left out of the signature (old Mastodon)", func(_ *rig, d *delivery) { d.path, d.target = "/inbox?x=1", "/inbox" }},
		{"ld+json with profile", func(_ *rig, d *delivery) {
			d.header.Set("Content-Type", `application/ld+json; profile="https://www.w3.org/ns/activitystreams"`)
		}},
		{"charset parameter", func(_ *rig, d *delivery) { d.header.Set("Content-Type", "application/activity+json; charset=utf-8") }},
		{"hs2019 over the date", func(_ *rig, d *delivery) { d.algorithm = "hs2019" }},
		{"hs2019 with created", func(_ *rig, d *delivery) {
			d.algorithm, d.created = "hs2019", time.Now().Unix()
			d.covered = []string{"(request-target)", "host", "(created)", "digest"}
			d.parameters = fmt.Sprintf("created=%d,", d.created)
		}},
		{"created half an hour ahead", func(_ *rig, d *delivery) {
			d.algorithm, d.created = "hs2019", time.Now().Add(30*time.Minute).Unix()
			d.covered = []string{"(request-target)", "host", "(created)", "digest"}
			d.parameters = fmt.Sprintf("created=%d,", d.created)
		}},
		{"content type covered too (Mastodon)", func(_ *rig, d *delivery) { d.covered = append(d.covered, "content-type") }},
		{"an hour late", func(_ *rig, d *delivery) {
			d.header.Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		}},
		{"SHA-512 beside SHA-256", func(_ *rig, d *delivery) {
			d.header.Set("Digest", "SHA-512=AA==, sha-256="+strings.TrimPrefix(digestOf(d.body), "SHA-256="))
		}},
		{"blanks after the commas, numbers without quotes (Pleroma)", func(_ *rig, d *delivery) {
			d.algorithm, d.created = "hs2019", time.Now().Unix()
			d.covered = []string{"(request-target)", "(created)", "host", "digest"}
			d.parameters = fmt.Sprintf(" created=%d , expires=%d.5, unknown=\"x, y\", ", d.created, d.created+300)
		}},
		{"expires that is not covered changes nothing while it is ahead", func(_ *rig, d *delivery) {
			d.parameters = fmt.Sprintf(`expires=%d,`, time.Now().Add(time.Minute).Unix())
		}},
		{"content type with a parameter that is not quoted", func(_ *rig, d *delivery) {
			d.header.Set("Content-Type", "application/activity+json; profile=https://www.w3.org/ns/activitystreams")
		}},
		{"covered names in capitals", func(_ *rig, d *delivery) {
			d.sign()
			d.header.Set("Signature", strings.Replace(d.header.Get("Signature"), "(request-target) host date digest", "(request-target) Host Date Digest", 1))
		}},
		{"algorithm in capitals", func(_ *rig, d *delivery) { d.algorithm = "RSA-SHA256" }},
		{"digest in two header lines", func(_ *rig, d *delivery) {
			d.header["Digest"] = []string{"sha-256=" + strings.TrimPrefix(digestOf(d.body), "SHA-256=")}
		}},
		{"host with another case", func(r *rig, d *delivery) { d.host = strings.ToUpper(r.domain) }},
		{"linked-data signature beside", func(_ *rig, d *delivery) {
			d.body = append(bytes.TrimSuffix(d.body, []byte("}")), `,"signature":{"type":"RsaSignature2017","creator":"https://evil.example"}}`...)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			d := r.deliver(r.mentionNote("1", "hello"))
			c.change(r, d)
			if d.header.Get("Signature") == "" {
				d.sign()
			}
			r.want(d, http.StatusAccepted, "")
			if len(r.engine.All()) != 1 {
				t.Error("no message")
			}
		})
	}
}

func TestSameActivityThreeTimes(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/inbox", "/agents/echo/inbox", "/inbox"} {
		d := r.deliver(r.mentionNote("1", "hello"))
		d.path = path
		r.want(d.sign(), http.StatusAccepted, "")
	}
	if n := len(r.engine.All()); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
	if n := r.remote.count("/users/alice"); n != 1 {
		t.Errorf("actor fetched %d times, want 1", n)
	}
}

//contract:shows message-4
func TestSharedInboxForSeveralAgents(t *testing.T) {
	r := newRig(t)
	activity := r.mentionNote("1", "hello both")
	note := activity["object"].(map[string]any)
	note["cc"] = []string{r.base + "/agents/echo", r.base + "/agents/other"}
	r.want(r.deliver(activity).sign(), http.StatusAccepted, "")
	var recipients []string
	for _, in := range r.engine.All() {
		recipients = append(recipients, in.Message.Recipient)
	}
	if want := "@echo@" + r.domain + " @other@" + r.domain; strings.Join(recipients, " ") != want {
		t.Errorf("recipients %v, want %s", recipients, want)
	}
}

func TestEngineFaultsBecomeStatuses(t *testing.T) {
	cases := []struct {
		refusal    error
		status     int
		retryAfter string
	}{
		{fault.InField("parts", "empty"), 400, ""},
		{fault.New(fault.TooLarge, "too large"), 413, ""},
		{fault.New(fault.Forbidden, "blocked"), 202, ""},
		{fault.New(fault.NotFound, "no agent"), 404, ""},
		{fault.New(fault.Gone, "removed"), 410, ""},
		{fault.New(fault.Conflict, "other content"), 409, ""},
		{&fault.Fault{Kind: fault.RateLimited, Public: "slow down", RetryAfter: 90 * time.Second}, 429, "90"},
		{fault.New(fault.Unavailable, "store is down"), 503, "5"},
		{fmt.Errorf("secret detail"), 500, ""},
	}
	for _, c := range cases {
		r := newRig(t)
		r.engine.Refuse = func(exchange.Inbound) error { return c.refusal }
		status, text, header := r.send(r.deliver(r.mentionNote("1", "hello")).sign())
		if status != c.status || header.Get("Retry-After") != c.retryAfter || strings.Contains(text, "secret") {
			t.Errorf("%v: status %d, Retry-After %q, text %q", c.refusal, status, header.Get("Retry-After"), text)
		}
	}
}

func TestStoreDown(t *testing.T) {
	r := newRig(t)
	r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
	r.state.Fail(fault.New(fault.Unavailable, "down"))
	follow := map[string]any{"id": r.remote.base + "/f/1", "type": "Follow", "actor": r.remote.actor("alice"), "object": r.base + "/agents/echo"}
	r.want(r.deliver(follow).sign(), http.StatusServiceUnavailable, "try again later")
}

func TestHostNotAdmitted(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Mode = ModeAllowlist })
	r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusForbidden, "does not accept")
	if n := r.remote.connections.Load(); n != 0 {
		t.Errorf("%d connections went out", n)
	}
}

// performObjects runs the jobs that fetch objects, as a first attempt.
func (r *rig) performObjects() (errs []error) {
	r.t.Helper()
	for _, job := range r.engine.takeJobs(jobObject) {
		if _, err := r.adapter.Perform(r.t.Context(), job, 1); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// TestCreateThatOnlyNamesItsObject: the object is asked for at its own server, after the peer was answered.
func TestCreateThatOnlyNamesItsObject(t *testing.T) {
	cases := []struct {
		name   string
		change func(r *rig, activity, note map[string]any)
		want   []string
		author string
	}{
		{"address", func(_ *rig, activity, note map[string]any) { activity["object"] = note["id"] }, []string{"hello"}, "alice"},
		{"list of one address", func(_ *rig, activity, note map[string]any) { activity["object"] = []any{note["id"]} }, []string{"hello"}, "alice"},
		{"object with an id alone", func(_ *rig, activity, note map[string]any) {
			activity["object"] = map[string]any{"id": note["id"]}
		}, []string{"hello"}, "alice"},
		{"addresses on the activity alone", func(r *rig, activity, note map[string]any) {
			delete(note, "to")
			delete(note, "cc")
			delete(note, "tag")
			r.remote.serve("/notes/1", note)
			activity["object"] = note["id"]
		}, []string{"hello"}, "alice"},
		{"object that does not exist", func(r *rig, activity, _ map[string]any) { activity["object"] = r.remote.base + "/notes/2" }, nil, ""},
		{"object by somebody else of the same server", func(r *rig, activity, note map[string]any) {
			note["attributedTo"] = r.remote.actor("bob")
			r.remote.serve("/notes/1", note)
			activity["object"] = note["id"]
		}, nil, ""},
		{"object without a type", func(r *rig, activity, note map[string]any) {
			delete(note, "type")
			r.remote.serve("/notes/1", note)
			activity["object"] = note["id"]
		}, nil, ""},
		{"object with another id", func(r *rig, activity, note map[string]any) {
			r.remote.serve("/notes/3", note)
			note["id"] = "https://evil.example/1"
			r.remote.serve("/notes/1", note)
			activity["object"] = r.remote.base + "/notes/1"
		}, nil, ""},
		{"object that is not for us", func(r *rig, activity, note map[string]any) {
			note["cc"], note["tag"] = []string{}, []any{}
			r.remote.serve("/notes/1", note)
			activity["object"] = note["id"]
		}, nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			activity := r.mentionNote("1", "hello")
			note := activity["object"].(map[string]any)
			r.remote.serve("/notes/1", note)
			c.change(r, activity, note)
			r.accept(activity)
			if n := len(r.engine.All()); n != 0 || r.remote.count("/notes/1") != 0 {
				t.Errorf("%d messages, %d fetches in the request", n, r.remote.count("/notes/1"))
			}
			r.performObjects()
			if len(r.engine.takeJobs(jobObject)) != 0 {
				t.Error("a job asks for another one")
			}
			if got := r.texts(); !slices.Equal(got, c.want) {
				t.Fatalf("texts %q, want %q", got, c.want)
			}
			for _, in := range r.engine.All() {
				if in.Message.ID != activity["id"] || in.Message.Sender.Identities[0].Subject != r.remote.actor(c.author) {
					t.Errorf("id %s of %+v", in.Message.ID, in.Message.Sender)
				}
			}
		})
	}
}

// TestEmbeddedObjectOfAnotherServer: the copy says nothing. What its own server shows is the message of its author there.
func TestEmbeddedObjectOfAnotherServer(t *testing.T) {
	for _, genuine := range []bool{false, true} {
		t.Run(fmt.Sprint("exists: ", genuine), func(t *testing.T) {
			r := newRig(t)
			other := newRemoteServer(t)
			other.addActor("bob", malloryKey(), nil)
			activity := r.mentionNote("1", "what alice would like bob to have said")
			note := activity["object"].(map[string]any)
			note["id"] = other.base + "/notes/1"
			if genuine {
				shown := r.mentionNote("1", "bob's own words")["object"].(map[string]any)
				shown["id"], shown["attributedTo"] = other.base+"/notes/1", other.actor("bob")
				other.serve("/notes/1", shown)
			}
			r.accept(activity)
			if n := other.connections.Load(); n != 0 {
				t.Errorf("%d connections in the request", n)
			}
			errs := r.performObjects()
			taken := r.engine.All()
			if !genuine {
				if len(taken) != 0 || len(errs) != 1 || !fault.Of(errs[0]).Permanent {
					t.Errorf("%d messages, errors %v", len(taken), errs)
				}
				return
			}
			if len(taken) != 1 || taken[0].Message.Parts[0].Content != "bob's own words" {
				t.Fatalf("messages %+v", taken)
			}
			sender := taken[0].Message.Sender
			claims := string(sender.Identities[0].Claims)
			if sender.Identities[0].Subject != other.actor("bob") || !strings.Contains(claims, schemeOrigin) || !strings.Contains(claims, r.remote.actor("alice")) {
				t.Errorf("sender %+v, claims %s", sender, claims)
			}
		})
	}
}

// TestNamedObjectsAreBounded: no sender makes us ask a server for what is not for us, nor too often, nor one that is excluded.
func TestNamedObjectsAreBounded(t *testing.T) {
	r := newRig(t, func(o *Options) { o.HostAllowed = func(host string) bool { return host != "blocked.example" } })
	foreign := r.mentionNote("1", "hello")
	foreign["object"], foreign["cc"] = "https://elsewhere.example/notes/1", []string{}
	r.accept(foreign)
	blocked := r.mentionNote("2", "hello")
	blocked["object"] = "https://blocked.example/notes/1"
	r.accept(blocked)
	if n := len(r.engine.takeJobs(jobObject)); n != 0 {
		t.Errorf("%d jobs", n)
	}
	for i := range maxConfirmations {
		named := r.mentionNote(fmt.Sprint("n", i), "hello")
		named["object"] = r.remote.base + "/notes/1"
		r.accept(named)
	}
	more := r.mentionNote("x", "hello")
	more["object"] = r.remote.base + "/notes/1"
	status, text, header := r.send(r.deliver(more).sign())
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
		t.Errorf("status %d %q, Retry-After %q", status, text, header.Get("Retry-After"))
	}
}

// TestNamedObjectIsTriedAgain: a server that fails is asked a few times, later.
func TestNamedObjectIsTriedAgain(t *testing.T) {
	r := newRig(t)
	r.remote.handle("/notes/1", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	activity := r.mentionNote("1", "hello")
	note := activity["object"]
	activity["object"] = r.remote.base + "/notes/1"
	r.accept(activity)
	job := r.engine.takeJobs(jobObject)[0]
	for attempt := 1; attempt <= maxObjectAttempts; attempt++ {
		_, err := r.adapter.Perform(t.Context(), job, attempt)
		if last := attempt == maxObjectAttempts; err == nil || fault.Of(err).Permanent != last {
			t.Errorf("attempt %d: %v", attempt, err)
		}
	}
	r.remote.serve("/notes/1", note)
	if _, err := r.adapter.Perform(t.Context(), job, 2); err != nil || len(r.engine.All()) != 1 {
		t.Errorf("%v, %d messages", err, len(r.engine.All()))
	}
}

// TestNamedObjectIsAnswered through the whole engine, and the same note embedded is not answered again.
func TestNamedObjectIsAnswered(t *testing.T) {
	h := newHouse(t)
	activity := h.mentionNote("1", "hello")
	whole := h.mentionNote("1", "hello")
	h.remote.serve("/notes/1", activity["object"])
	activity["object"] = h.remote.base + "/notes/1"
	h.accept(activity)
	h.run("hello")
	if turn := h.settled(); turn.State != exchange.StateAnswered {
		t.Errorf("state %s (%s)", turn.State, turn.Reason)
	}
	h.accept(whole)
	whole["id"] = h.remote.base + "/notes/1/again"
	h.accept(whole)
	if asked := h.questions(); len(asked) != 1 || len(h.turns()) != 1 {
		t.Errorf("asked %q", asked)
	}
}
