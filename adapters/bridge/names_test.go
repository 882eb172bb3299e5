package bridge

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

func TestNamesOfOutsideAreSubjects(t *testing.T) {
	for person, want := range map[string]string{
		"T1/U2": "connector:slack/T1/U2", "a b": "connector:slack/a%20b", "é": "connector:slack/%C3%A9", "": "connector:slack",
	} {
		if got := connectorSubject("slack", person); got != want {
			t.Errorf("%q is %s, want %s", person, got, want)
		}
	}
	a := &site{Options{Domain: "agents.example"}}
	for _, person := range []string{"U1", "T1/U2", strings.Repeat("x", 300), "a\nb", "@x@y", "."} {
		address := a.address("slack."+person, connectorSubject("slack", person))
		if parsed, err := identity.ParseAddress(address); err != nil || parsed.Domain != "agents.example" {
			t.Errorf("%q has the address %s, %v", person, address, err)
		}
	}
	if a.address("slack.a b", "one") == a.address("slack.a b", "other") {
		t.Error("two people have one address")
	}
}

func TestStatuses(t *testing.T) {
	for want, turns := range map[string][]exchange.TurnRecord{
		"queued": {{State: exchange.StateAccepted}, {State: exchange.StateHeld}}, "running": {{State: exchange.StateRunning}, {State: exchange.StateWaiting, Reason: exchange.WaitingDispatch}},
		"completed": {{State: exchange.StateAnswered}, {State: exchange.StateSilent}}, "failed": {{State: exchange.StateFailed}, {State: exchange.StateRefused}},
		"cancelled": {{State: exchange.StateCancelled}}, "approval_required": {{State: exchange.StateWaiting, Reason: "approval"}},
		"runtime_tool_pending": {{State: exchange.StateWaiting, Reason: exchange.WaitingTool + " x"}},
	} {
		for _, turn := range turns {
			if got := statusOf(turn); got != want {
				t.Errorf("%s %s is %s, want %s", turn.State, turn.Reason, got, want)
			}
		}
	}
}

func TestTextOfAnAnswer(t *testing.T) {
	shown := func(part policypart.Part) policypart.Part { part.URL += "?secret"; return part }
	response := normalized.Response{Parts: []normalized.Part{
		normalized.Text("hello"), {Kind: normalized.PartLink, URL: "https://a.example/", Title: "there"},
		{Kind: normalized.PartFile, MIME: "image/png", Name: "a.png", BytesRef: normalized.At("https://a.example/a.png")},
		{Kind: normalized.PartToolCall, Name: "hidden"},
		{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: policypart.ConsentRequired, Title: "May I?", Message: "I want to.", URL: "https://a.example/policy", ActionLabel: "Decide"}},
	}}
	want := "hello\n\nthere: https://a.example/\n\na.png: https://a.example/a.png\n\nMay I?\nI want to.\nDecide: https://a.example/policy?secret"
	if got := textOf(&response, shown); got != want {
		t.Errorf("got %q", got)
	}
	if parts := partsOf(&response, shown); len(parts) != 5 || !strings.HasSuffix(parts[4].Policy.URL, "?secret") {
		t.Errorf("parts %v", parts)
	}
	if response.Parts[4].Policy.URL != "https://a.example/policy" {
		t.Error("the stored answer got the secret")
	}
	if partsOf(&normalized.Response{Parts: []normalized.Part{normalized.Text("x")}}, shown) != nil {
		t.Error("a text needs no parts beside it")
	}
}

func TestItemsHaveTheIDOfTheirReply(t *testing.T) {
	a := &outbox{site: &site{Options{Present: unopened}}}
	kept, err := json.Marshal(route{Surface: surfaceBridge, Way: wayQueue, Client: "relay", Session: "s1", ExternalID: "m1"})
	if err != nil {
		t.Fatal(err)
	}
	reply := exchange.Reply{ID: "r1", TurnID: "t1", Agent: "echo", Route: kept, CreatedAt: time.Unix(0, 0),
		Response: normalized.Response{Parts: []normalized.Part{normalized.Text(strings.Repeat("é", 1<<20))}, Status: normalized.StatusInputRequired}}
	for range 2 {
		item, err := a.itemOf(reply, readRoute(reply.Route))
		if item.Metadata["visibility"] != nil {
			t.Errorf("visibility %v", item.Metadata["visibility"])
		}
		if err != nil || item.ID != "bridge_r1" || item.Completed || item.Metadata["external_message_id"] != "m1" || len(item.Content) > 1<<20 {
			t.Errorf("item %s, %v, %d bytes, %v", item.ID, item.Completed, len(item.Content), err)
		}
	}

	private := reply
	private.Response.Visibility = normalized.VisibilityDirect
	if item, err := a.itemOf(private, readRoute(reply.Route)); err != nil || item.Metadata["visibility"] != normalized.VisibilityDirect {
		t.Errorf("a room gets a private answer with visibility %v, %v", item.Metadata["visibility"], err)
	}

	plan, err := a.Plan(t.Context(), reply)
	if err != nil || len(plan.Destinations) != 1 || plan.NativeID != "bridge_r1" {
		t.Errorf("plan %+v, %v", plan, err)
	}
}
