package activitypub

import (
	"crypto/rsa"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
)

// signedGET returns the key id of a GET whose signature verifies with the key of the server or of an agent.
func (r *rig) signedGET(q *http.Request) (keyID, scheme string) {
	if signature.SchemeOf(q.Header) == signature.None {
		return "", ""
	}
	claim, err := signature.Check(signature.Request{
		Method: q.Method, Target: q.RequestURI, Host: q.Host, Origin: r.remote.base, Header: q.Header,
	}, r.adapter.now())
	if err != nil {
		return "", ""
	}
	for _, owner := range []string{"", "echo", "other"} {
		key, err := r.adapter.keys.key(q.Context(), owner)
		if err == nil && claim.KeyID == r.adapter.signerIRI(owner)+key.fragment() && claim.Verify(&rsa.PublicKey{N: key.Private.N, E: key.Private.E}) == nil {
			return claim.KeyID, claim.Scheme
		}
	}
	return "", ""
}

// readers simulate servers that accept only some kinds of requests. Each refuses the others in its own way.
var readers = map[string]func(r *rig, w http.ResponseWriter, q *http.Request) bool{
	"404 to unsigned": func(r *rig, w http.ResponseWriter, q *http.Request) bool {
		keyID, _ := r.signedGET(q)
		return keyID != "" || refuseGET(w, http.StatusNotFound)
	},
	"403 to unsigned": func(r *rig, w http.ResponseWriter, q *http.Request) bool {
		keyID, _ := r.signedGET(q)
		return keyID != "" || refuseGET(w, http.StatusForbidden)
	},
	"400 to signed": func(_ *rig, w http.ResponseWriter, q *http.Request) bool {
		return q.Header.Get("Signature") == "" || refuseGET(w, http.StatusBadRequest)
	},
	"500 to RFC 9421, 404 to unsigned": func(_ *rig, w http.ResponseWriter, q *http.Request) bool {
		switch {
		case q.Header.Get("Signature-Input") != "":
			return refuseGET(w, http.StatusInternalServerError)
		case q.Header.Get("Signature") == "":
			return refuseGET(w, http.StatusNotFound)
		}
		return true
	},
	"RFC 9421 only, offered": func(r *rig, w http.ResponseWriter, q *http.Request) bool {
		if _, scheme := r.signedGET(q); scheme == signature.RFC9421 {
			return true
		}
		w.Header().Set("Accept-Signature", `sig1=("@method" "@target-uri");created;keyid`)
		return refuseGET(w, http.StatusUnauthorized)
	},
	"RFC 9421 only, with the offer for deliveries": func(r *rig, w http.ResponseWriter, q *http.Request) bool {
		if _, scheme := r.signedGET(q); scheme == signature.RFC9421 && q.Header.Get("Content-Digest") != "" {
			return true
		}
		w.Header().Set("Accept-Signature", `sig1=("@method" "@target-uri" "@authority" "content-digest" "content-type");created;keyid`)
		return refuseGET(w, http.StatusUnauthorized)
	},
	"RFC 9421 only, not offered": func(r *rig, w http.ResponseWriter, q *http.Request) bool {
		_, scheme := r.signedGET(q)
		return scheme == signature.RFC9421 || refuseGET(w, http.StatusUnauthorized)
	},
	"RFC 9421 only, hidden from the rest": func(r *rig, w http.ResponseWriter, q *http.Request) bool {
		_, scheme := r.signedGET(q)
		return scheme == signature.RFC9421 || refuseGET(w, http.StatusNotFound)
	},
	"a nonce of each answer": func(r *rig, w http.ResponseWriter, q *http.Request) bool {
		if strings.Contains(q.Header.Get("Signature-Input"), `nonce="once"`) {
			_, scheme := r.signedGET(q)
			return scheme == signature.RFC9421 || refuseGET(w, http.StatusBadRequest)
		}
		w.Header().Set("Accept-Signature", `x=("@method" "@path" "@authority");created;nonce="once"`)
		return refuseGET(w, http.StatusUnauthorized)
	},
}

func refuseGET(w http.ResponseWriter, status int) bool {
	w.WriteHeader(status)
	return false
}

// showTo makes a page that a server shows to some requests only.
func (r *rig) showTo(path string, doc any, shown func(r *rig, w http.ResponseWriter, q *http.Request) bool) {
	body, err := document.Encode(doc)
	if err != nil {
		r.t.Fatal(err)
	}
	r.remote.handle(path, func(w http.ResponseWriter, q *http.Request) {
		if shown(r, w, q) {
			w.Header().Set("Content-Type", activityMediaType)
			_, _ = w.Write(body)
		}
	})
}

// TestFetchesTryEachWay: keys, actors and notes are had from servers that refuse one way to ask, each in its own manner. What worked is
// tried first the next time.
func TestFetchesTryEachWay(t *testing.T) {
	for name, shown := range readers {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.showTo("/users/alice", r.remote.actorDocument("alice", aliceKey()), shown)
			r.showTo("/users/bob", r.remote.actorDocument("bob", aliceKey()), shown)
			create := r.mentionNote("1", "hello")
			r.showTo("/notes/1", create["object"], shown)
			create["object"] = r.remote.base + "/notes/1"
			r.want(r.deliver(create).sign(), http.StatusAccepted, "")
			for _, job := range r.engine.takeJobs(jobObject) {
				if err := r.adapter.SendActivity(t.Context(), job); err != nil {
					t.Error(err)
				}
			}
			if n := len(r.engine.All()); n != 1 {
				t.Errorf("%d messages, want 1", n)
			}

			most := 1
			if strings.Contains(name, "nonce") {
				most = 2
			}
			if _, err := r.adapter.actors.fetchActor(t.Context(), r.remote.actor("bob")); err != nil || r.remote.count("/users/bob") > most {
				t.Errorf("the next document: %v after %d requests, want at most %d", err, r.remote.count("/users/bob"), most)
			}
		})
	}
}

// TestPrivateNoteIsFetchedByItsAddressee: some servers, such as activitypub.bot, show a private note to its addressees only.
func TestPrivateNoteIsFetchedByItsAddressee(t *testing.T) {
	for _, inbox := range []string{"/inbox", "/agents/echo/inbox"} {
		for _, refusal := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusUnauthorized} {
			t.Run(fmt.Sprint(inbox, " ", refusal), func(t *testing.T) {
				r := newRig(t)
				create := r.mentionNote("1", "hello")
				direct(r, create["object"].(map[string]any))
				r.showTo("/notes/1", create["object"], func(r *rig, w http.ResponseWriter, q *http.Request) bool {
					keyID, _ := r.signedGET(q)
					return keyID == r.base+"/agents/echo#main-key" || refuseGET(w, refusal)
				})
				create["object"], create["to"], create["cc"] = r.remote.base+"/notes/1", []string{r.base + "/agents/echo"}, nil
				d := r.deliver(create)
				d.path = inbox
				r.want(d.sign(), http.StatusAccepted, "")
				for _, job := range r.engine.takeJobs(jobObject) {
					if err := r.adapter.SendActivity(t.Context(), job); err != nil {
						t.Error(err)
					}
				}
				all := r.engine.All()
				if len(all) != 1 || all[0].Message.Surface.Visibility != "direct" {
					t.Errorf("%d messages, want one that is direct", len(all))
				}
			})
		}
	}
}

// TestRedirectsStayWithPolicy: a fetch is led neither to a host that the operator excludes nor to this server.
func TestRedirectsStayWithPolicy(t *testing.T) {
	excluded := newRemoteServer(t)
	r := newRig(t, func(o *Options) {
		o.HostAllowed = func(host string) bool { return host != document.HostOf(excluded.base) }
	})
	for path, target := range map[string]string{"/users/one": excluded.base + "/users/alice", "/users/two": r.base + "/agents/echo"} {
		r.remote.handle(path, func(w http.ResponseWriter, q *http.Request) { http.Redirect(w, q, target, http.StatusFound) })
		if _, err := r.adapter.fetcher.fetch(t.Context(), r.remote.base+path, reading{}); err == nil {
			t.Errorf("%s led to %s", path, target)
		}
	}
	if n := excluded.requests.Load(); n != 0 {
		t.Errorf("%d requests to an excluded server", n)
	}
}
