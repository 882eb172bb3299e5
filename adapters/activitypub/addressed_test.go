package activitypub

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/identity"
)

// carrier brings an activity of alice to an inbox.
type carrier func(r *rig, activity map[string]any, path string) *delivery

// carriers are the ways by which alice's words come here, with what they prove for a note that names the agent.
var carriers = map[string]struct {
	bring carrier
	named string
	own   bool // nothing but alice's own server can have sent it to us
}{
	"her own request": {func(r *rig, activity map[string]any, path string) *delivery {
		return at(r.deliver(activity), path).sign()
	}, identity.AddressedRequest, true},
	"her own request with a proof": {func(r *rig, activity map[string]any, path string) *delivery {
		return at(r.deliver(r.proveAs("alice", aliceProofKey, activity, nil)), path).sign()
	}, identity.AddressedRequest, true},
	"her request, made for whatever host": {func(r *rig, activity map[string]any, path string) *delivery {
		d := at(r.deliver(activity), path)
		d.covered = []string{"(request-target)", "date", "digest"}
		return d.sign()
	}, identity.AddressedRecipient, false},
	"a proof, unsigned": {func(r *rig, activity map[string]any, path string) *delivery {
		return at(r.unsigned(r.proveAs("alice", aliceProofKey, activity, nil)), path)
	}, identity.AddressedRecipient, false},
	"a proof, by a relay": {func(r *rig, activity map[string]any, path string) *delivery {
		return resigned(r.byMallory(newRemoteServer(r.t), r.proveAs("alice", aliceProofKey, activity, nil)), path)
	}, identity.AddressedRecipient, false},
	"a relay, confirmed by her server": {func(r *rig, activity map[string]any, path string) *delivery {
		r.remote.serve("/notes/1", activity["object"])
		return resigned(r.byMallory(newRemoteServer(r.t), activity), path)
	}, identity.AddressedRecipient, false},
	"a proof of a Create that names its object, unsigned": {func(r *rig, activity map[string]any, path string) *delivery {
		r.remote.serve("/notes/1", activity["object"])
		activity["object"] = r.remote.base + "/notes/1"
		return at(r.unsigned(r.proveAs("alice", aliceProofKey, activity, nil)), path)
	}, identity.AddressedRecipient, false},
	"her own Create that names its object": {func(r *rig, activity map[string]any, path string) *delivery {
		r.remote.serve("/notes/1", activity["object"])
		activity["object"] = r.remote.base + "/notes/1"
		return at(r.deliver(activity), path).sign()
	}, identity.AddressedRequest, true},
}

func at(d *delivery, path string) *delivery {
	d.path = path
	return d
}

func resigned(d *delivery, path string) *delivery {
	d.path = path
	return d.sign()
}

// TestWhatAProofIsMeantFor: a proof says who wrote a note. That it was meant for an agent is said by the author's own request to this
// server, or by the note, to whom it is.
func TestWhatAProofIsMeantFor(t *testing.T) {
	notes := map[string]struct {
		write func(r *rig, activity, note map[string]any)
		named bool // the note is addressed to the agent
	}{
		"to the agent": {func(r *rig, activity, note map[string]any) { addressTo(activity, note, r.base+"/agents/echo") }, true},
		"to the agent in cc": {func(r *rig, activity, note map[string]any) {
			addressTo(activity, note, r.remote.actor("bob"))
			note["cc"] = []string{r.base + "/agents/echo"}
		}, true},
		"to the agent, blind": {func(r *rig, activity, note map[string]any) {
			addressTo(activity, note, r.remote.actor("bob"))
			note["bto"] = r.base + "/agents/echo"
		}, true},
		"to the page of the agent": {func(r *rig, activity, note map[string]any) { addressTo(activity, note, r.base+"/@echo") }, true},
		"to all, with a mention": {func(_ *rig, activity, note map[string]any) {
			tag := note["tag"]
			addressTo(activity, note, document.Public)
			note["tag"] = tag
		}, true},
		"to Bob": {func(r *rig, activity, note map[string]any) { addressTo(activity, note, r.remote.actor("bob")) }, false},
		"to Bob, about the agent": {func(r *rig, activity, note map[string]any) {
			tag := note["tag"]
			addressTo(activity, note, r.remote.actor("bob"))
			note["tag"] = tag
		}, false},
		"to Bob, in a Create to the agent": {func(r *rig, activity, note map[string]any) {
			addressTo(activity, note, r.remote.actor("bob"))
			activity["to"] = []string{r.base + "/agents/echo"}
		}, false},
		"to followers": {func(r *rig, activity, note map[string]any) {
			addressTo(activity, note, r.remote.actor("alice")+"/followers")
		}, false},
		"to Bob, as an answer to the agent": {func(r *rig, activity, note map[string]any) {
			reply := r.reply(r.question("0", "hello"), "hi")
			addressTo(activity, note, r.remote.actor("bob"))
			note["inReplyTo"] = r.base + "/o/" + reply.ID
		}, false},
		"to all, as an answer to the agent": {func(r *rig, activity, note map[string]any) {
			reply := r.reply(r.question("0", "hello"), "hi")
			addressTo(activity, note, document.Public)
			note["inReplyTo"] = r.base + "/o/" + reply.ID
		}, false},
		"to nobody": {func(_ *rig, activity, note map[string]any) { addressTo(activity, note) }, false},
	}
	for by, c := range carriers {
		for to, n := range notes {
			t.Run(by+" "+to, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.UnsignedHost = true })
				r.remote.addActor("bob", malloryKey(), nil)
				activity := r.mentionNote("1", "approve")
				n.write(r, activity, activity["object"].(map[string]any))
				before := len(r.engine.All())
				r.want(c.bring(r, activity, "/agents/echo/inbox"), http.StatusAccepted, "")
				r.performObjects()

				taken := r.engine.All()[before:]
				if !c.own && !n.named {
					if len(taken) != 0 {
						t.Errorf("taken as hers: %+v", taken[0].Message.Sender)
					}
					return
				}
				if len(taken) == 0 {
					if to == "to followers" {
						return // a note to followers that names no agent is for none
					}
					t.Fatal("no message")
				}
				if got := taken[0].Message.Sender.Identities[0].Proof.Addressed; got != c.named {
					t.Errorf("addressed by %q, want %q", got, c.named)
				}
			})
		}
	}
}

func addressTo(activity, note map[string]any, to ...string) {
	activity["to"], activity["cc"] = to, []string{}
	note["to"], note["cc"] = to, []string{}
	delete(note, "tag")
}

// TestReplayAtAnotherAgent: an activity that was meant for one agent is not a request to another agent of the same server.
func TestReplayAtAnotherAgent(t *testing.T) {
	for by, c := range carriers {
		t.Run(by, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.UnsignedHost = true })
			activity := r.mentionNote("1", "approve")
			addressTo(activity, activity["object"].(map[string]any), r.base+"/agents/echo")
			r.want(c.bring(r, activity, "/agents/other/inbox"), http.StatusAccepted, "")
			r.performObjects()
			for _, in := range r.engine.All() {
				if in.Message.Recipient != r.profile("echo").Address {
					t.Errorf("a request to %s", in.Message.Recipient)
				}
			}
		})
	}

	r := newRig(t)
	activity := r.mentionNote("1", "approve")
	addressTo(activity, activity["object"].(map[string]any), r.remote.actor("bob"))
	d := at(r.deliver(activity), "/agents/echo/inbox").sign()
	r.want(at(d, "/agents/other/inbox"), http.StatusUnauthorized, "")
	if len(r.engine.All()) != 0 {
		t.Error("a request to one agent was taken for one to another")
	}
}

// TestOldNoteIsNoRequest: her server confirms that she wrote a note; that was years ago.
func TestOldNoteIsNoRequest(t *testing.T) {
	for age, want := range map[time.Duration]int{time.Hour: 1, 28 * 24 * time.Hour: 1, 31 * 24 * time.Hour: 0, 7 * 365 * 24 * time.Hour: 0} {
		r := newRig(t)
		activity := r.mentionNote("1", "approve")
		activity["object"].(map[string]any)["published"] = r.adapter.now().Add(-age).UTC().Format(time.RFC3339)
		r.remote.serve("/notes/1", activity["object"])
		r.want(r.byMallory(newRemoteServer(t), activity), http.StatusAccepted, "")
		if got := len(r.engine.All()); got != want {
			t.Errorf("%s old: %d messages, want %d", age, got, want)
		}
	}
}

// TestEditsThatWereNotMeantForTheAgent: Alice writes to Bob and the agent, then edits the note so that it is for Bob only.
func TestEditsThatWereNotMeantForTheAgent(t *testing.T) {
	for _, first := range []string{"Create", "Update"} {
		t.Run(first+" first", func(t *testing.T) {
			r := newRig(t)
			echo, bob := r.base+"/agents/echo", r.remote.actor("bob")
			activity := r.mentionNote("1", "for both")
			addressTo(activity, activity["object"].(map[string]any), echo, bob)
			create := r.deliver(activity).sign()

			changed := r.mentionNote("1", "for Bob alone")
			changed["id"], changed["type"] = r.remote.base+"/updates/1", "Update"
			addressTo(changed, changed["object"].(map[string]any), bob)
			changed["object"].(map[string]any)["updated"] = r.adapter.now().UTC().Format(time.RFC3339)
			update := r.unsigned(r.proveAs("alice", aliceProofKey, changed, nil))

			steps := []*delivery{create, update}
			if first == "Update" {
				steps = []*delivery{update, create}
			}
			for _, step := range steps {
				r.want(step, http.StatusAccepted, "")
			}
			if got := r.texts(); len(got) != 1 || got[0] != "for both" {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestAnswerToTwoAudiences: a Create for one and its note for all are answered in private.
func TestAnswerToTwoAudiences(t *testing.T) {
	for name, change := range map[string]func(r *rig, activity, note map[string]any){
		"the activity is private": func(r *rig, activity, _ map[string]any) {
			activity["to"], activity["cc"] = []string{r.base + "/agents/echo"}, []string{}
		},
		"the note is private": func(r *rig, _, note map[string]any) {
			note["to"], note["cc"] = []string{r.base + "/agents/echo"}, []string{}
		},
	} {
		r := newRig(t)
		activity := r.mentionNote("1", "hello")
		change(r, activity, activity["object"].(map[string]any))
		r.accept(activity)
		var asked route
		if err := json.Unmarshal(r.engine.All()[0].Route, &asked); err != nil || isOpen(asked.Visibility) {
			t.Errorf("%s: %s, %v", name, asked.Visibility, err)
		}
	}
}

// TestRecipientsUnderFalseNames: a tag names an account as its sender likes. An address of another host is not shown as a recipient's.
func TestRecipientsUnderFalseNames(t *testing.T) {
	r := newRig(t)
	host := document.HostOf(r.remote.base)
	in := r.question("1", "hello", func(note map[string]any) {
		for actor, name := range map[string]string{"bob": "@bob@" + host, "mallory": "@boss@corp.example"} {
			note["cc"] = append(note["cc"].([]string), r.remote.actor(actor))
			note["tag"] = append(note["tag"].([]any), map[string]any{"type": "Mention", "href": r.remote.actor(actor), "name": name})
		}
	})
	if shown := in.Message.Surface; len(shown.Cc) != 1 || shown.Cc[0].Address != "@bob@"+host || shown.Omitted != 2 {
		t.Errorf("%+v", shown)
	}
}
