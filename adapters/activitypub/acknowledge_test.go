package activitypub

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
)

// acknowledgement is what the engine says about a question that takes long.
func (r *rig) acknowledgement(in exchange.Inbound) exchange.Reply {
	ack := r.reply(in, "I am working on it.")
	ack.Notice = exchange.NoticeAck
	r.engine.replies[ack.ID] = ack
	return ack
}

// TestAcknowledgementIsADirectNote: even under a public question it is for the asker alone.
func TestAcknowledgementIsADirectNote(t *testing.T) {
	r := newRig(t, func(o *Options) { o.PublicReplies = true })
	ack := r.acknowledgement(r.question("1", "hello"))
	if got := r.adapter.AckAfter(time.Second); got != time.Second {
		t.Errorf("after %v", got)
	}
	if err := r.deliverReply(ack, 0, 1); err != nil {
		t.Fatal(err)
	}
	arrived := r.remote.arrivals()[0]
	create := asCreate(t, arrived)
	if arrived.path != "/users/alice/inbox" || !cmp.Equal(create.To, []string{r.remote.actor("alice")}) || len(create.Cc) != 0 ||
		create.Object.InReplyTo != r.remote.base+"/notes/1" {
		t.Errorf("%s at %s", arrived.body, arrived.path)
	}
	if status, _, body := r.fetch("/o/"+ack.ID, activityMediaType); status != http.StatusNotFound {
		t.Errorf("anybody reads it: %d %s", status, body)
	}
}

// TestAcknowledgementIsALike: nothing is written and nothing can be read.
func TestAcknowledgementIsALike(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Likes = func(agent string) bool { return agent == "echo" } })
	in := r.question("1", "hello")
	ack := r.acknowledgement(in)
	plan, err := r.adapter.outbox.Plan(t.Context(), ack)
	if err != nil || plan.NativeID != "" || len(plan.Destinations) != 1 {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	for attempt := range 2 {
		if err := r.deliverReply(ack, 0, attempt+1); err != nil {
			t.Fatal(err)
		}
	}
	arrived := r.remote.arrivals()
	if len(arrived) != 2 || !cmp.Equal(arrived[0].body, arrived[1].body) || arrived[0].path != "/users/alice/inbox" {
		t.Fatalf("a repeated delivery is another activity: %v", arrived)
	}
	r.checkArrival(arrived[0], "echo")
	var like likeActivity
	if err := json.Unmarshal(arrived[0].body, &like); err != nil {
		t.Fatal(err)
	}
	actor := r.base + "/agents/echo"
	want := likeActivity{document.ActivityStreams, actor + "#likes/" + ack.ID, "Like", actor, r.remote.base + "/notes/1", []string{r.remote.actor("alice")}}
	if diff := cmp.Diff(want, like); diff != "" {
		t.Error(diff)
	}
	answer := r.reply(in, "hello yourself")
	answer.ID = "01939f3e-0000-7000-8000-000000000002"
	later, err := r.adapter.outbox.Plan(t.Context(), answer)
	if err != nil || later.Destinations[0].Key != plan.Destinations[0].Key || later.NativeID == "" {
		t.Errorf("the answer goes %+v, %v; order is kept by key", later, err)
	}
	if err := r.deliverReply(answer, 0, 1); err != nil {
		t.Fatal(err)
	}
	if asCreate(t, r.remote.arrivals()[2]).Object.ID != r.base+"/o/"+answer.ID {
		t.Errorf("the answer became %s", r.remote.arrivals()[2].body)
	}
}
