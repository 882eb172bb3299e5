package activitypub

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/adapters/activitypub/signature"
)

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
