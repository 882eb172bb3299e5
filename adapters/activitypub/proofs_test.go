package activitypub

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/identity"
	"inbox/normalized"
)

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
		}, 202, "", signature.ProofSuite},
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
			taken := r.engine.messages()
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
// after a month must not be taken again.
func TestCapturedDeed(t *testing.T) {
	for name, c := range map[string]struct {
		age    time.Duration
		change func(activity, proof map[string]any)
		status int
	}{
		"fresh":                  {0, nil, http.StatusAccepted},
		"four weeks old":         {28 * 24 * time.Hour, nil, http.StatusAccepted},
		"older than the memory":  {31 * 24 * time.Hour, nil, http.StatusUnauthorized},
		"it does not say when":   {0, func(_, proof map[string]any) { delete(proof, "created") }, http.StatusUnauthorized},
		"without an id to know":  {0, func(activity, _ map[string]any) { delete(activity, "id") }, http.StatusUnauthorized},
		"a note may be very old": {400 * 24 * time.Hour, nil, http.StatusAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			activity := r.simple("Follow", r.base+"/agents/echo")
			if name == "a note may be very old" {
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
	s := &site{options: Options{State: newRows(), Now: time.Now}}
	first, err := newKeyring(s).key(t.Context(), "Echo")
	if err != nil {
		t.Fatal(err)
	}
	second, err := newKeyring(s).key(t.Context(), "echo")
	if err != nil || !first.Private.Equal(second.Private) || !first.Proof.Equal(second.Proof) || first.Multikey != second.Multikey {
		t.Errorf("other keys after a restart: %v", err)
	}
}
