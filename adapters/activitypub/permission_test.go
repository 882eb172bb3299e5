package activitypub

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"inbox/exchange"
)

// interactionAnswer is what a server that asked about an interaction reads of our answer.
type interactionAnswer struct {
	ID, Type, Result string
	Object           struct{ ID, Type, Object, Instrument string }
}

func (r *rig) askToInteract(kind, target, instrument string) (interactionAnswer, bool) {
	r.t.Helper()
	request := r.simple(kind, target)
	request["id"], request["instrument"] = r.remote.base+"/requests/"+kind+"/"+actorKey(target, instrument), instrument
	r.accept(request)
	jobs := r.engine.takeJobs(jobActivity)
	if len(jobs) == 0 {
		return interactionAnswer{}, false
	}
	var job laterJob
	var said interactionAnswer
	if len(jobs) != 1 || json.Unmarshal([]byte(jobs[0]), &job) != nil || json.Unmarshal(job.Activity, &said) != nil {
		r.t.Fatalf("%q", jobs)
	}
	if said.Object.Type != kind || said.Object.Instrument != instrument || job.Inbox != r.remote.actor("alice")+"/inbox" {
		r.t.Errorf("answered %s to %s", job.Activity, job.Inbox)
	}
	return said, true
}

// TestInteractionRequests: GoToSocial asks before an account likes, answers or shares a post, and keeps the interaction to itself
// until it is answered.
func TestInteractionRequests(t *testing.T) {
	for request, authorization := range interactionRequests {
		t.Run(request, func(t *testing.T) {
			r := newRig(t)
			reply := r.reply(r.question("1", "hello"), "hi")
			r.engine.replies[reply.ID] = reply
			target, instrument := r.base+"/o/"+reply.ID, r.remote.base+"/interactions/1"

			said, answered := r.askToInteract(request, target, instrument)
			if !answered || said.Type != "Accept" {
				t.Fatalf("answered %+v", said)
			}
			status, _, body := r.fetch(strings.TrimPrefix(said.Result, r.base), activityMediaType)
			var shown struct {
				ID, Type, AttributedTo, InteractingObject, InteractionTarget string
			}
			if err := json.Unmarshal([]byte(body), &shown); err != nil || status != http.StatusOK {
				t.Fatalf("%s: %d %s", said.Result, status, body)
			}
			if shown.ID != said.Result || shown.Type != authorization || shown.AttributedTo != r.base+"/agents/echo" ||
				shown.InteractingObject != instrument || shown.InteractionTarget != target {
				t.Errorf("the authorization is %s", body)
			}

			if said, _ := r.askToInteract(request, target, "https://elsewhere.example/1"); said.Type != "Reject" || said.Result != "" {
				t.Errorf("an interaction of somebody else: %+v", said)
			}
			if said, answered := r.askToInteract(request, r.base+"/o/0199", instrument); answered {
				t.Errorf("a post that is not there: %+v", said)
			}

			reply.DeletedAt = reply.CreatedAt
			r.engine.replies[reply.ID] = reply
			if status, _, _ := r.fetch(strings.TrimPrefix(said.Result, r.base), activityMediaType); status != http.StatusGone {
				t.Errorf("the authorization outlives the post: %d", status)
			}
		})
	}
}

// TestInteractionsWithPrivatePosts: who got a private answer may like and answer it; no one may share it, and no
// authorization about it is shown to others.
func TestInteractionsWithPrivatePosts(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello"), "hi")
	reply.Open = false
	asked, err := readRoute(reply.Route)
	if err != nil {
		t.Fatal(err)
	}
	asked.Visibility = "direct"
	if reply.Route, err = json.Marshal(asked); err != nil {
		t.Fatal(err)
	}
	r.engine.replies[reply.ID] = reply
	target := r.base + "/o/" + reply.ID
	for request, want := range map[string]string{"LikeRequest": "Accept", "ReplyRequest": "Accept", "AnnounceRequest": "Reject"} {
		if said, _ := r.askToInteract(request, target, r.remote.base+"/interactions/1"); said.Type != want {
			t.Errorf("%s: %s, want %s", request, said.Type, want)
		}
	}
	forged := r.adapter.interactions.authorizationIRI(exchange.Reply{Agent: "echo"}, "LikeAuthorization", target, "https://elsewhere.example/1")
	if status, _, body := r.fetch(strings.TrimPrefix(forged, r.base), activityMediaType); status != http.StatusNotFound {
		t.Errorf("a stranger's interaction with a private post: %d %s", status, body)
	}
}
