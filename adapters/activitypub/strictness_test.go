package activitypub

import (
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/internal/safehttp"
)

// TestParting: an account that its server does not show any more deletes itself with the key that we have of it.
func TestParting(t *testing.T) {
	for name, c := range map[string]struct {
		origin int
		forged bool
		status int
	}{
		"forbidden": {http.StatusForbidden, false, 202}, "gone": {http.StatusGone, false, 202}, "not found": {http.StatusNotFound, false, 202},
		"wants a signature": {http.StatusUnauthorized, false, 202}, "does not answer": {http.StatusBadGateway, false, 503},
		"forbidden, by another key": {http.StatusForbidden, true, 401},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.accept(r.simple("Follow", r.base+"/agents/echo"))
			r.forgetActors()
			r.clock.Store(int64(keyLife + time.Hour))
			r.remote.handle("/users/alice", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.origin) })
			d := r.deliver(r.simple("Delete", r.remote.actor("alice")))
			if c.forged {
				d.key = malloryKey()
			}
			r.want(d.sign(), c.status, "")
			_, known := r.adapter.actors.storedActor(t.Context(), r.remote.actor("alice"))
			if gone := c.status == 202; r.follows("echo") == gone || known == gone {
				t.Errorf("follows %v, known %v after %d", r.follows("echo"), known, c.status)
			}
		})
	}

	t.Run("anything else is refused", func(t *testing.T) {
		r := newRig(t)
		r.accept(r.mentionNote("1", "hello"))
		r.forgetActors()
		r.clock.Store(int64(keyLife + time.Hour))
		r.remote.handle("/users/alice", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
		r.want(r.deliver(r.mentionNote("2", "hello")).sign(), http.StatusUnauthorized, "could not be fetched")
	})
}

// TestUnusableProofsAreConfirmed: whoever forwards could leave a proof out, so one that cannot be used counts as none: the author's server is
// asked, and only what it shows is believed.
func TestUnusableProofsAreConfirmed(t *testing.T) {
	proofs := map[string]func(r *rig, note map[string]any) map[string]any{
		"did:key": func(r *rig, note map[string]any) map[string]any {
			return r.proveAs("alice", aliceProofKey, note, func(proof map[string]any) {
				proof["verificationMethod"] = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
			})
		},
		"a replaced key": func(r *rig, note map[string]any) map[string]any {
			return r.proveAs("alice", testSeedKey(9), note, nil)
		},
		"a key that the actor does not list": func(r *rig, note map[string]any) map[string]any {
			return r.proveAs("alice", aliceProofKey, note, func(proof map[string]any) {
				proof["verificationMethod"] = r.remote.actor("alice") + "#older"
			})
		},
		"a proof of another server": func(r *rig, note map[string]any) map[string]any {
			return r.proveAs("alice", aliceProofKey, note, func(proof map[string]any) { proof["verificationMethod"] = "https://elsewhere.example/key" })
		},
		"a value that is none": func(r *rig, note map[string]any) map[string]any { return badProof(r, note, "proofValue", "z5Y") },
		"expired": func(r *rig, note map[string]any) map[string]any {
			return badProof(r, note, "expires", "2020-01-01T00:00:00Z")
		},
		"dated in the future": func(r *rig, note map[string]any) map[string]any {
			return badProof(r, note, "created", "2999-01-01T00:00:00Z")
		},
		"another purpose": func(r *rig, note map[string]any) map[string]any {
			return badProof(r, note, "proofPurpose", "authentication")
		},
		"no time of its own": func(r *rig, note map[string]any) map[string]any { return badProof(r, note, "created", nil) },
	}
	for name, prove := range proofs {
		for _, confirmed := range []bool{true, false} {
			r := newRig(t)
			note := r.mentionNote("1", "what alice wrote")
			if confirmed {
				r.remote.serve("/notes/1", note["object"])
			}
			pushed := prove(r, r.mentionNote("1", "what mallory would like to read"))
			want, texts := 401, []string(nil)
			if confirmed {
				want, texts = 202, []string{"what alice wrote"}
			}
			r.want(r.byMallory(newRemoteServer(t), pushed), want, "")
			if got := r.texts(); !slices.Equal(got, texts) {
				t.Errorf("%s, confirmed %v: %q, want %q", name, confirmed, got, texts)
			}
			r.want(r.unsigned(pushed), 401, "")
		}
	}
}

func badProof(r *rig, note map[string]any, name string, value any) map[string]any {
	proved := r.proveAs("alice", aliceProofKey, note, nil)
	proved["proof"].(map[string]any)[name] = value
	return proved
}

// TestBrokenTexts: a name that was cut between two UTF-16 units makes neither its owner nor the note unreadable.
func TestBrokenTexts(t *testing.T) {
	r := newRig(t)
	actor, _ := document.Encode(r.remote.actorDocument("alice", aliceKey()))
	r.remote.handle("/users/alice", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", activityMediaType)
		_, _ = w.Write([]byte("\ufeff" + strings.Replace(string(actor), `"name":"Alice"`, `"name":"Alice \ud83d"`, 1)))
	})
	note, _ := document.Encode(r.mentionNote("1", "hello HERE"))
	r.accept("\ufeff" + strings.Replace(string(note), "HERE", `\ud83d`, 1))
	all := r.engine.All()
	if len(all) != 1 || all[0].Message.Parts[0].Content != "hello \ufffd" || all[0].Message.Sender.DisplayName != "Alice \ufffd" {
		t.Fatalf("%d messages: %+v", len(all), all)
	}
	r.want(r.unsigned("\ufeff"+string(note)), 401, "")
	proved, _ := document.Encode(r.proveAs("alice", aliceProofKey, r.mentionNote("2", "hello"), nil))
	r.want(r.unsigned("\ufeff"+string(proved)), 202, "")
}

// TestListsOfAuthorsAndTypes: a list counts as a whole and not by its first entry.
func TestListsOfAuthorsAndTypes(t *testing.T) {
	for name, change := range map[string]func(r *rig, activity, note map[string]any){
		"group, then person": func(r *rig, _, note map[string]any) {
			note["attributedTo"] = []any{r.remote.base + "/c/books", r.remote.actor("alice")}
		},
		"described group, then person": func(r *rig, _, note map[string]any) {
			note["attributedTo"] = []any{map[string]any{"type": "Group", "id": r.remote.base + "/c/books"}, map[string]any{"type": "Person", "id": r.remote.actor("alice")}}
		},
		"type of the note":     func(_ *rig, _, note map[string]any) { note["type"] = []any{"https://schema.org/Comment", "Note"} },
		"type of the activity": func(_ *rig, activity, _ map[string]any) { activity["type"] = []any{"x:Publish", "Create"} },
		"type of the actor": func(r *rig, _, _ map[string]any) {
			r.remote.addActor("alice", aliceKey(), func(doc map[string]any) { doc["type"] = []any{"x:Human", "Person"} })
		},
		"a list of one author": func(r *rig, _, note map[string]any) { note["attributedTo"] = []any{r.remote.actor("alice")} },
	} {
		for _, way := range []string{"direct", "named", "forwarded"} {
			r := newRig(t)
			activity := r.mentionNote("1", "hello")
			note := activity["object"].(map[string]any)
			change(r, activity, note)
			r.remote.serve("/notes/1", note)
			d := r.deliver(activity).sign()
			switch way {
			case "named":
				activity["object"] = note["id"]
				d = r.deliver(activity).sign()
			case "forwarded":
				d = r.byMallory(newRemoteServer(t), activity)
			}
			r.want(d, http.StatusAccepted, "")
			r.performObjects()
			all := r.engine.All()
			if len(all) != 1 || all[0].Message.Sender.Identities[0].Subject != r.remote.actor("alice") {
				t.Errorf("%s, %s: %d messages, want alice's", name, way, len(all))
			}
		}
	}

	r := newRig(t)
	activity := r.mentionNote("1", "hello")
	activity["object"].(map[string]any)["attributedTo"] = []any{r.remote.actor("bob"), r.remote.actor("carol")}
	r.want(r.deliver(activity).sign(), http.StatusBadRequest, "another actor")
}

// TestAutomatedAmongTypes: a program that names several types is one.
func TestAutomatedAmongTypes(t *testing.T) {
	r := newRig(t)
	doc := r.remote.actorDocument("alice", aliceKey())
	for kind, want := range map[any]bool{"Service": true, "Person": false} {
		doc["type"] = []any{"x:Thing", kind}
		body, _ := document.Encode(doc)
		parsed, err := document.Parse(body)
		if err != nil {
			t.Fatal(err)
		}
		actor, err := document.ReadActor(parsed)
		if err != nil || actor.Automated() != want {
			t.Errorf("%v: automated %v, %v", kind, actor.Automated(), err)
		}
	}
}

// TestUnicodeHost: one server names its actors in Unicode and signs in punycode, or the other way round.
func TestUnicodeHost(t *testing.T) {
	const unicode, ascii = "http://bücher.example", "http://xn--bcher-kva.example"
	for name, spelling := range map[string][3]string{ // of the activity, the key, the actor document
		"signed in punycode": {unicode, ascii, unicode}, "signed in Unicode": {ascii, unicode, ascii}, "all in Unicode": {unicode, unicode, unicode},
		"shown in punycode": {unicode, unicode, ascii},
	} {
		t.Run(name, func(t *testing.T) {
			resolver, _ := resolverOf(t)
			client := safehttp.New(safehttp.Options{Resolver: resolver, Timeout: 30 * time.Second, AllowPrivate: true})
			t.Cleanup(client.Close)
			r := newRig(t, func(o *Options) {
				o.Client = client
				o.ActorAllowed = func(iri string) bool { return !strings.Contains(iri, "ü") }
			})
			port := r.remote.base[strings.LastIndexByte(r.remote.base, ':'):]
			spelled := func(text any, base string) string {
				body, err := document.Encode(text)
				if err != nil {
					t.Fatal(err)
				}
				return strings.ReplaceAll(string(body), r.remote.base, base+port)
			}
			r.remote.handle("/users/alice", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", activityMediaType)
				_, _ = w.Write([]byte(spelled(r.remote.actorDocument("alice", aliceKey()), spelling[2])))
			})
			d := r.deliver(spelled(r.mentionNote("1", "hello"), spelling[0]))
			d.keyID = spelling[1] + port + "/users/alice#main-key"
			r.want(d.sign(), http.StatusAccepted, "")
			all := r.engine.All()
			if len(all) != 1 || all[0].Message.Sender.Identities[0].Subject != ascii+port+"/users/alice" {
				t.Errorf("%d messages", len(all))
			}
		})
	}
}

// TestDigestsOfTheBody: SHA-512 binds a body where there is no SHA-256.
func TestDigestsOfTheBody(t *testing.T) {
	r := newRig(t)
	for i, c := range []struct {
		change func(right512, wrong512, right256 string) (contentDigest, digest string)
		status int
	}{
		{func(right, _, _ string) (string, string) { return "sha-512=:" + right + ":", "SHA-512=" + right }, 202},
		{func(right, _, other string) (string, string) {
			return "sha-512=:" + right + ":, sha-256=:" + other + ":", "SHA-512=" + right + ",SHA-256=" + other
		}, 202},
		{func(_, wrong, _ string) (string, string) { return "sha-512=:" + wrong + ":", "SHA-512=" + wrong }, 401},
		{func(_, wrong, other string) (string, string) {
			return "sha-256=:" + other + ":, sha-512=:" + wrong + ":", "SHA-256=" + other + ",SHA-512=" + wrong
		}, 202},
		{func(_, _, other string) (string, string) { return "sha-512=:" + other + ":", "SHA-512=" + other }, 401},
		{func(right, _, _ string) (string, string) { return "md5=:" + right + ":", "MD5=" + right }, 401},
	} {
		for _, scheme := range []string{signature.RFC9421, signature.Cavage} {
			d := r.deliver(r.mentionNote(scheme+string(rune('a'+i)), "hello"))
			right, wrong := sha512.Sum512(d.body), sha512.Sum512(nil)
			encode := base64.StdEncoding.EncodeToString
			contentDigest, digest := c.change(encode(right[:]), encode(wrong[:]), strings.TrimPrefix(digestOf(d.body), "SHA-256="))
			if scheme == signature.RFC9421 {
				m := r.message(d)
				m.digest = contentDigest
				r.want(m.sign(), c.status, "")
				continue
			}
			d.header.Set("Digest", digest)
			r.want(d.sign(), c.status, "")
		}
	}
}
