package activitypub

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange/exchangetest"
	"inbox/identity"
	"inbox/normalized"
)

// message turns a delivery into one signed by RFC 9421, written apart from the code under test.
type message struct {
	*delivery
	r          *rig
	components string
	parameters string
	digest     string
}

func (r *rig) message(d *delivery) *message {
	sum := sha256.Sum256(d.body)
	return &message{
		delivery: d, r: r, components: `"@method" "@target-uri" "@authority" "host" "date" "content-digest"`,
		parameters: fmt.Sprintf(`;alg="rsa-v1_5-sha256";keyid="%s";created=%d`, d.keyID, time.Now().Unix()),
		digest:     "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":",
	}
}

func (m *message) sign() *delivery {
	m.header.Set("Content-Digest", m.digest)
	var base strings.Builder
	for name := range strings.FieldsSeq(m.components) {
		value := m.header.Get(strings.Trim(name, `"`))
		path, query, _ := strings.Cut(m.path, "?")
		switch name {
		case `"@method"`:
			value = m.method
		case `"@target-uri"`:
			value = m.r.base + m.path
		case `"@authority"`, `"host"`:
			value = m.r.domain
		case `"@path"`:
			value = path
		case `"@query"`:
			value = "?" + query
		}
		base.WriteString(name + ": " + value + "\n")
	}
	list := "(" + m.components + ")" + m.parameters
	base.WriteString(`"@signature-params": ` + list)
	sum := sha256.Sum256([]byte(base.String()))
	signature, err := rsa.SignPKCS1v15(rand.Reader, m.key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	m.header.Set("Signature-Input", "sig1="+list)
	m.header.Set("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(signature)+":")
	return m.delivery
}

func TestMessageSignatures(t *testing.T) {
	cases := []struct {
		name   string
		change func(*message)
		status int
		reason string
		fetch  bool // whether the key may be fetched
	}{
		{"Fedify", func(*message) {}, 202, "", true},
		{"Mastodon", func(m *message) { m.components = `"@method" "@target-uri" "content-digest"` }, 202, "", true},
		{"authority and path instead of target", func(m *message) { m.components = `"@method" "@authority" "@path" "content-digest"` }, 202, "", true},
		{"authority, path and query", func(m *message) {
			m.path, m.components = "/inbox?a=b", `"@method" "@authority" "@path" "@query" "content-digest"`
		}, 202, "", true},
		{"no algorithm", func(m *message) { m.parameters = strings.Replace(m.parameters, `;alg="rsa-v1_5-sha256"`, "", 1) }, 202, "", true},
		{"query not covered", func(m *message) {
			m.path, m.components = "/inbox?a=b", `"@method" "@authority" "@path" "content-digest"`
		}, 401, "@target-uri", false},
		{"digest not covered", func(m *message) { m.components = `"@method" "@target-uri"` }, 401, "content-digest", false},
		{"method not covered", func(m *message) { m.components = `"@target-uri" "content-digest"` }, 401, "@method", false},
		{"tampered body", func(m *message) { m.body = append(m.body, ' ') }, 401, "does not match", false},
		{"digest of another algorithm", func(m *message) { m.digest = "md5=:AAAA:" }, 401, "neither sha-256 nor sha-512", false},
		{"wrong key", func(m *message) { m.key = malloryKey() }, 401, "does not verify", true},
		{"no created", func(m *message) { m.parameters = fmt.Sprintf(`;keyid="%s"`, m.keyID) }, 401, "keyid and created", false},
		{"no keyid", func(m *message) { m.parameters = fmt.Sprintf(`;created=%d`, time.Now().Unix()) }, 401, "keyid and created", false},
		{"two days old", func(m *message) {
			m.parameters = fmt.Sprintf(`;keyid="%s";created=%d`, m.keyID, time.Now().Add(-48*time.Hour).Unix())
		}, 401, "too old", false},
		{"expires at no time", func(m *message) { m.parameters += ";expires=0" }, 401, "expires is not a time", false},
		{"expires as text", func(m *message) { m.parameters += `;expires="never"` }, 401, "expires is not a time", false},
		{"expired two hours ago", func(m *message) {
			now := time.Now()
			m.parameters = fmt.Sprintf(`;keyid="%s";created=%d;expires=%d`, m.keyID, now.Add(-3*time.Hour).Unix(), now.Add(-2*time.Hour).Unix())
		}, 401, "too old", false},
		{"expires in six hours", func(m *message) {
			m.parameters = fmt.Sprintf(`;created=%d;expires=%d;keyid="%s"`, time.Now().Unix(), time.Now().Add(6*time.Hour).Unix(), m.keyID)
		}, 202, "", true},
		{"nonce and tag (order kept)", func(m *message) {
			m.parameters = fmt.Sprintf(`;tag="fediverse";nonce="b3k2";keyid="%s";created=%d`, m.keyID, time.Now().Unix())
		}, 202, "", true},
		{"created in the future", func(m *message) {
			m.parameters = fmt.Sprintf(`;keyid="%s";created=%d`, m.keyID, time.Now().Add(2*time.Hour).Unix())
		}, 401, "future", false},
		{"created as text", func(m *message) { m.parameters = fmt.Sprintf(`;keyid="%s";created="now"`, m.keyID) }, 401, "keyid and created", false},
		{"keyid that is no address", func(m *message) { m.parameters = fmt.Sprintf(`;keyid="alice";created=%d`, time.Now().Unix()) }, 401, "not an address", false},
		{"sha-512 beside sha-256", func(m *message) { m.digest = "sha-512=:AAAA:, " + m.digest }, 202, "", true},
		{"wrong sha-256 after a right one", func(m *message) {
			m.digest += ", sha-256=:" + base64.StdEncoding.EncodeToString(make([]byte, 32)) + ":"
		}, 401, "does not match", false},
		{"content digest that is no dictionary", func(m *message) { m.digest = "SHA-256=abc" }, 401, "content-digest", false},
		{"content-length and content-type covered", func(m *message) {
			m.header.Set("Content-Length", strconv.Itoa(len(m.body)))
			m.components = `"@method" "@target-uri" "content-digest" "content-length" "content-type"`
		}, 202, "", true},
		{"binary-wrapped header", func(m *message) { m.components += ` "user-agent";bs` }, 401, "not supported", false},
		{"parameter of the query", func(m *message) { m.components += ` "@query-param";name="a"` }, 401, "not supported", false},
		{"upper-case header name", func(m *message) { m.components += ` "Date"` }, 401, "absent or unknown", false},
		{"RSA-PSS", func(m *message) { m.parameters += `;alg="rsa-pss-sha512"` }, 401, "not supported", false},
		{"Ed25519 named for an RSA key", func(m *message) {
			m.parameters = fmt.Sprintf(`;keyid="%s";created=%d;alg="ed25519"`, m.keyID, time.Now().Unix())
		}, 401, "does not fit", true},
		{"component of the request", func(m *message) { m.components += ` "date";req` }, 401, "not supported", false},
		{"status", func(m *message) { m.components += ` "@status"` }, 401, "absent or unknown", false},
		{"absent header", func(m *message) { m.components += ` "x-absent"` }, 401, "absent or unknown", false},
		{"repeated component", func(m *message) { m.components += ` "date"` }, 401, "not supported", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			m := r.message(r.deliver(r.mentionNote("1", "hello")))
			c.change(m)
			r.want(m.sign(), c.status, c.reason)
			if fetched := r.remote.connections.Load() > 0; fetched != c.fetch {
				t.Errorf("key was fetched: %v, want %v", fetched, c.fetch)
			}
			if (len(r.engine.All()) == 1) != (c.status == 202) {
				t.Errorf("%d messages", len(r.engine.All()))
			}
		})
	}
}

// TestPresentSchemeIsJudgedAlone: a request with a broken RFC 9421 signature is not saved by a good draft one.
func TestPresentSchemeIsJudgedAlone(t *testing.T) {
	r := newRig(t)
	d := r.deliver(r.mentionNote("1", "hello")).sign()
	d.header.Set("Signature-Input", `sig1=("@method");keyid="x";created=1`)
	r.want(d, http.StatusUnauthorized, "")
}

func TestEvidenceNamesTheScheme(t *testing.T) {
	r := newRig(t)
	r.want(r.message(r.deliver(r.mentionNote("1", "hello"))).sign(), http.StatusAccepted, "")
	claims := string(r.engine.All()[0].Message.Sender.Identities[0].Claims)
	if !strings.Contains(claims, `"scheme":"rfc9421"`) || !strings.Contains(claims, `"address":"unchecked"`) {
		t.Errorf("claims %s", claims)
	}
}

// aliceProofKey is the second key of every actor of the remote server.
var aliceProofKey = testSeedKey(1)

// proveAs puts a proof by an actor into an activity, written apart from the code under test. change bends the options
// before they are signed.
func (r *rig) proveAs(name string, key ed25519.PrivateKey, activity map[string]any, change func(options map[string]any)) map[string]any {
	r.t.Helper()
	options := map[string]any{
		"@context": activity["@context"], "type": "DataIntegrityProof", "cryptosuite": "eddsa-jcs-2022",
		"verificationMethod": r.remote.actor(name) + "#ed25519-key", "proofPurpose": "assertionMethod",
		"created": r.adapter.now().UTC().Format(time.RFC3339Nano),
	}
	if change != nil {
		change(options)
	}
	digest := slices.Concat(canonicalSum(r.t, options), canonicalSum(r.t, activity))
	options["proofValue"] = "z" + base58Text(ed25519.Sign(key, digest))
	proved := map[string]any{"proof": options}
	maps.Copy(proved, activity)
	return proved
}

// unsigned takes the signature of the request away.
func (r *rig) unsigned(activity any) *delivery {
	d := r.deliver(activity)
	d.header.Set("Digest", digestOf(d.body))
	return d
}

// byMallory is signed by an actor of another server, who only brings it.
func (r *rig) byMallory(relay *remoteServer, activity any) *delivery {
	relay.addActor("mallory", malloryKey(), nil)
	d := r.deliver(activity)
	d.keyID, d.key = relay.actor("mallory")+"#main-key", malloryKey()
	return d.sign()
}

//contract:shows message-49
func TestProofs(t *testing.T) {
	cases := []struct {
		name   string
		make   func(*rig, map[string]any) *delivery
		status int
		reason string
		scheme string
	}{
		{"instead of a signature", func(r *rig, note map[string]any) *delivery {
			return r.unsigned(r.proveAs("alice", aliceProofKey, note, nil))
		}, 202, "", signature.ProofSuite},
		{"beside a signature", func(r *rig, note map[string]any) *delivery {
			return r.deliver(r.proveAs("alice", aliceProofKey, note, nil)).sign()
		}, 202, "", signature.Cavage},
		{"wrong beside a right signature", func(r *rig, note map[string]any) *delivery {
			return r.deliver(r.proveAs("alice", testSeedKey(9), note, nil)).sign()
		}, 202, "", "\"object_proof\":\"failed: object proof: signature does not verify with the key\""},
		{"wrong and forwarded", func(r *rig, note map[string]any) *delivery {
			return r.byMallory(newRemoteServer(r.t), r.proveAs("alice", testSeedKey(9), note, nil))
		}, 401, "object proof: signature does not verify", ""},
		{"expired beside a right signature", func(r *rig, note map[string]any) *delivery {
			return r.deliver(r.proveAs("alice", aliceProofKey, note, func(proof map[string]any) { proof["expires"] = "2020-01-01T00:00:00Z" })).sign()
		}, 202, "", "\"object_proof\":\"failed: object proof: it has expired\""},
		{"right beside a wrong signature", func(r *rig, note map[string]any) *delivery {
			d := r.deliver(r.proveAs("alice", aliceProofKey, note, nil))
			d.key = malloryKey()
			return d.sign()
		}, 401, "does not verify", ""},
		{"changed after it was made", func(r *rig, note map[string]any) *delivery {
			proved := r.proveAs("alice", aliceProofKey, note, nil)
			proved["object"].(map[string]any)["content"] = "hullo"
			return r.unsigned(proved)
		}, 401, "does not verify", ""},
		{"options without a context", func(r *rig, note map[string]any) *delivery {
			return r.unsigned(r.proveAs("alice", aliceProofKey, note, func(o map[string]any) { delete(o, "@context") }))
		}, 202, "", signature.ProofSuite},
		{"context left out of the options on the wire alone", func(r *rig, note map[string]any) *delivery {
			proved := r.proveAs("alice", aliceProofKey, note, nil)
			delete(proved["proof"].(map[string]any), "@context")
			return r.unsigned(proved)
		}, 202, "", signature.ProofSuite},
		{"context of the options is the beginning of the document's", func(r *rig, note map[string]any) *delivery {
			return r.unsigned(r.proveAs("alice", aliceProofKey, note, func(o map[string]any) { o["@context"] = document.ActivityStreams }))
		}, 202, "", signature.ProofSuite},
		{"context of the options is another", func(r *rig, note map[string]any) *delivery {
			return r.unsigned(r.proveAs("alice", aliceProofKey, note, func(o map[string]any) { o["@context"] = "https://evil.example/context" }))
		}, 401, "@context", ""},
		{"for another purpose", func(r *rig, note map[string]any) *delivery {
			return r.unsigned(r.proveAs("alice", aliceProofKey, note, func(o map[string]any) { o["proofPurpose"] = "authentication" }))
		}, 401, "purpose", ""},
		{"dated in the future", func(r *rig, note map[string]any) *delivery {
			return r.unsigned(r.proveAs("alice", aliceProofKey, note, func(o map[string]any) {
				o["created"] = r.adapter.now().Add(2 * time.Hour).UTC().Format(time.RFC3339)
			}))
		}, 401, "future", ""},
		{"old", func(r *rig, note map[string]any) *delivery {
			return r.unsigned(r.proveAs("alice", aliceProofKey, note, func(o map[string]any) { o["created"] = "2024-01-01T00:00:00Z" }))
		}, 401, "too old", ""},
		{"old, beside a signature", func(r *rig, note map[string]any) *delivery {
			return r.deliver(r.proveAs("alice", aliceProofKey, note, func(o map[string]any) { o["created"] = "2024-01-01T00:00:00Z" })).sign()
		}, 202, "", signature.Cavage},
		{"no date at all in it", func(r *rig, note map[string]any) *delivery {
			return r.unsigned(r.proveAs("alice", aliceProofKey, note, func(o map[string]any) { o["created"] = "yesterday" }))
		}, 401, "created", ""},
		{"expired", func(r *rig, note map[string]any) *delivery {
			return r.unsigned(r.proveAs("alice", aliceProofKey, note, func(o map[string]any) { o["expires"] = "2024-01-01T00:00:00Z" }))
		}, 401, "expired", ""},
		{"value cut short", func(r *rig, note map[string]any) *delivery {
			proved := r.proveAs("alice", aliceProofKey, note, nil)
			proved["proof"].(map[string]any)["proofValue"] = "z5Y"
			return r.unsigned(proved)
		}, 401, "64 bytes", ""},
		{"of another actor of the same server", func(r *rig, note map[string]any) *delivery {
			r.remote.addActor("mallory", malloryKey(), nil)
			return r.unsigned(r.proveAs("mallory", aliceProofKey, note, nil))
		}, 401, "belongs to another actor", ""},
		{"key that is for requests only", func(r *rig, note map[string]any) *delivery {
			r.remote.addActor("alice", aliceKey(), func(doc map[string]any) {
				listed := doc["assertionMethod"].([]any)[0]
				doc["publicKey"], doc["assertionMethod"] = []any{doc["publicKey"], listed}, nil
			})
			return r.unsigned(r.proveAs("alice", aliceProofKey, note, nil))
		}, 401, "assertionMethod", ""},
		{"key under another controller", func(r *rig, note map[string]any) *delivery {
			r.remote.addActor("alice", aliceKey(), func(doc map[string]any) {
				doc["assertionMethod"].([]any)[0].(map[string]any)["controller"] = r.remote.actor("mallory")
			})
			return r.unsigned(r.proveAs("alice", aliceProofKey, note, nil))
		}, 401, "does not list", ""},
		{"one of two is right", func(r *rig, note map[string]any) *delivery {
			wrong, right := r.proveAs("alice", testSeedKey(9), note, nil), r.proveAs("alice", aliceProofKey, note, nil)
			right["proof"] = []any{wrong["proof"], right["proof"]}
			return r.unsigned(right)
		}, 202, "", signature.ProofSuite},
		{"right as the fifth of five", func(r *rig, note map[string]any) *delivery {
			wrong, right := r.proveAs("alice", testSeedKey(9), note, nil), r.proveAs("alice", aliceProofKey, note, nil)
			right["proof"] = []any{wrong["proof"], wrong["proof"], wrong["proof"], wrong["proof"], right["proof"]}
			return r.unsigned(right)
		}, 401, "does not verify", ""},
		{"of a suite that we do not know, alone", func(r *rig, note map[string]any) *delivery {
			return r.unsigned(r.proveAs("alice", aliceProofKey, note, func(o map[string]any) { o["cryptosuite"] = "eddsa-rdfc-2022" }))
		}, 401, "not signed", ""},
		{"of a suite that we do not know, beside a signature", func(r *rig, note map[string]any) *delivery {
			return r.deliver(r.proveAs("alice", aliceProofKey, note, func(o map[string]any) { o["cryptosuite"] = "eddsa-rdfc-2022" })).sign()
		}, 202, "", signature.Cavage},
		{"linked-data signature beside it", func(r *rig, note map[string]any) *delivery {
			proved := r.proveAs("alice", aliceProofKey, note, nil)
			proved["signature"] = map[string]any{"type": "RsaSignature2017", "signatureValue": "AA=="}
			return r.unsigned(proved)
		}, 202, "", signature.ProofSuite},
		{"forwarded by another server", func(r *rig, note map[string]any) *delivery {
			return r.byMallory(newRemoteServer(r.t), r.proveAs("alice", aliceProofKey, note, nil))
		}, 202, "", signature.ProofSuite},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.want(c.make(r, r.mentionNote("1", "hello")), c.status, c.reason)
			taken := r.engine.All()
			if accepted := c.status == http.StatusAccepted; (len(taken) == 1) != accepted {
				t.Fatalf("%d messages", len(taken))
			}
			if len(taken) == 0 {
				return
			}
			sender := taken[0].Message.Sender
			method, auth := identity.MethodActivityPubSignature, normalized.AuthActivityPubSignature
			if c.scheme == signature.ProofSuite {
				method, auth = identity.MethodActivityPubProof, normalized.AuthActivityPubProof
			}
			if !strings.Contains(string(sender.Identities[0].Claims), c.scheme) || sender.AuthMethod != auth || sender.Identities[0].Method != method ||
				sender.Identities[0].Subject != r.remote.actor("alice") {
				t.Errorf("%s, %s, %s of %s", sender.AuthMethod, sender.Identities[0].Method, sender.Identities[0].Claims, sender.Identities[0].Subject)
			}
		})
	}
}

// TestCapturedDeed: what an object proof alone vouches for may be brought by any sender at any time. A Follow that was forgotten
// after a month must not be taken again, nor a note of another year be a request of now.
func TestCapturedDeed(t *testing.T) {
	for name, c := range map[string]struct {
		age    time.Duration
		change func(activity, proof map[string]any)
		status int
	}{
		"fresh":                 {0, nil, http.StatusAccepted},
		"four weeks old":        {28 * 24 * time.Hour, nil, http.StatusAccepted},
		"older than the memory": {31 * 24 * time.Hour, nil, http.StatusUnauthorized},
		"it does not say when":  {0, func(_, proof map[string]any) { delete(proof, "created") }, http.StatusUnauthorized},
		"without an id to know": {0, func(activity, _ map[string]any) { delete(activity, "id") }, http.StatusUnauthorized},
		"a note of last year":   {400 * 24 * time.Hour, nil, http.StatusUnauthorized},
		"a note of four weeks":  {28 * 24 * time.Hour, nil, http.StatusAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			activity := r.simple("Follow", r.base+"/agents/echo")
			if strings.HasPrefix(name, "a note") {
				activity = r.mentionNote("1", "hello")
			}
			proved := r.proveAs("alice", aliceProofKey, activity, func(proof map[string]any) {
				proof["created"] = r.adapter.now().Add(-c.age).UTC().Format(time.RFC3339)
				if c.change != nil {
					c.change(activity, proof)
				}
			})
			status, text, _ := r.send(r.unsigned(proved))
			if status != c.status {
				t.Errorf("status %d %q, want %d", status, text, c.status)
			}
			if n := r.remote.connections.Load(); c.status != http.StatusAccepted && n != 0 {
				t.Errorf("%d connections went out for it", n)
			}
		})
	}
}

// checkOwnProof verifies a proof of ours with the key that the actor publishes, written apart from the code under test.
func checkOwnProof(t *testing.T, r *rig, actorPath string, activity []byte) {
	t.Helper()
	_, _, document := r.fetch(actorPath, activityMediaType)
	var actor actorDocument
	if err := json.Unmarshal([]byte(document), &actor); err != nil {
		t.Fatal(err)
	}
	var parts map[string]json.RawMessage
	var proof map[string]any
	if err := json.Unmarshal(activity, &parts); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(parts["proof"], &proof); err != nil {
		t.Fatalf("no proof in %s", activity)
	}
	delete(parts, "proof")
	value := base58Bytes(strings.TrimPrefix(proof["proofValue"].(string), "z"))
	delete(proof, "proofValue")
	digest := slices.Concat(canonicalSum(t, proof), canonicalSum(t, parts))
	listed := actor.AssertionMethod[0]
	key, err := signature.ParseKey(listed.Key)
	if err != nil || listed.Controller != actor.ID || listed.ID != proof["verificationMethod"] {
		t.Fatalf("key %+v of %s, %v", listed, actor.ID, err)
	}
	if !ed25519.Verify(key.(ed25519.PublicKey), digest, value) {
		t.Errorf("the proof does not verify: %s", activity)
	}
}

func TestOurActivitiesCarryProofs(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello"), "hello yourself")
	for range 2 {
		if err := r.deliverReply(reply, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	sent := r.remote.arrivals()
	checkOwnProof(t, r, "/agents/echo", sent[0].body)
	if !bytes.Equal(sent[0].body, sent[1].body) {
		t.Error("a repeated delivery has other bytes")
	}
	r.engine.replies[reply.ID] = reply
	if _, _, body := r.fetch("/o/"+reply.ID+"/activity", activityMediaType); body != string(sent[0].body) {
		t.Errorf("served %s\nsent %s", body, sent[0].body)
	}
	r.want(r.deliver(r.simple("Follow", r.base+"/agents/echo")).sign(), 202, "")
	for _, job := range r.engine.takeJobs(jobActivity) {
		if err := r.adapter.SendActivity(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	checkOwnProof(t, r, "/agents/echo", r.remote.arrivals()[2].body)
}

func TestKeysOfAllKindsSurviveARestart(t *testing.T) {
	s := &site{options: Options{State: exchangetest.NewDocuments(), Now: time.Now}}
	first, err := newKeyring(s).key(t.Context(), "Echo")
	if err != nil {
		t.Fatal(err)
	}
	second, err := newKeyring(s).key(t.Context(), "echo")
	if err != nil || !first.Private.Equal(second.Private) || !first.Proof.Equal(second.Proof) || first.Multikey != second.Multikey {
		t.Errorf("other keys after a restart: %v", err)
	}
}
