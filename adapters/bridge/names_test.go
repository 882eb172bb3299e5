package bridge

import (
	"encoding/json"
	"fmt"
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

// TestPrivateAnswersInRooms: a program learns that an answer is for its asker alone, and the text that it may show to a room has no key.
func TestPrivateAnswersInRooms(t *testing.T) {
	shown := func(part policypart.Part) policypart.Part { part.URL += "?secret"; return part }
	demand := normalized.Response{Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{
		Kind: policypart.ConsentRequired, Message: "May I?", URL: "https://a.example/policy",
	}}}}
	private := normalized.Response{Parts: []normalized.Part{normalized.Text("42")}}
	private.Visibility = normalized.VisibilityDirect
	for _, tc := range []struct {
		name     string
		route    route
		response normalized.Response
		direct   bool
		keyed    bool // the text has the address of the demand
	}{
		{"a demand in a channel", route{Surface: surfaceConnector, Person: "U1", Room: "channel"}, demand, true, false},
		{"a demand in a room of unknown kind", route{Surface: surfaceConnector, Person: "U1"}, demand, true, false},
		{"a demand to one person", route{Surface: surfaceConnector, Person: "U1", Room: roomDM}, demand, true, true},
		{"a demand in a session", route{Surface: surfaceBridge, Person: "U1"}, demand, true, true},
		{"a demand in a group of a bridge", route{Surface: surfaceBridge, Person: "U1", Room: "group"}, demand, true, false},
		{"an answer after consent", route{Surface: surfaceConnector, Person: "U1", Room: "channel"}, private, true, false},
		{"an answer", route{Surface: surfaceConnector, Person: "U1", Room: "channel"}, normalized.Response{Parts: []normalized.Part{normalized.Text("42")}}, false, false},
	} {
		tc.route.Client, tc.route.Session = "relay", "s1"
		kept, err := json.Marshal(tc.route)
		if err != nil {
			t.Fatal(err)
		}
		run := runOf(exchange.TurnRecord{State: exchange.StateWaiting, Route: kept, Response: &tc.response}, shown)
		item, err := (&outbox{site: &site{Options{Present: shown}}}).itemOf(exchange.Reply{ID: "r1", Agent: "helper", Response: tc.response}, tc.route)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}

		metadata := run["metadata"].(map[string]any)
		if got := metadata["visibility"] == normalized.VisibilityDirect && metadata["sender_id"] == "U1"; got != tc.direct {
			t.Errorf("%s: metadata of the run %v", tc.name, metadata)
		}
		if got := item.Metadata["visibility"] == normalized.VisibilityDirect; got != tc.direct {
			t.Errorf("%s: metadata of the item %v", tc.name, item.Metadata)
		}
		for where, text := range map[string]string{"run": run["reply"].(string), "message": fmt.Sprint(run["messages"]), "item": item.Content} {
			if got := strings.Contains(text, "?secret"); got != tc.keyed {
				t.Errorf("%s: the text of the %s is %q", tc.name, where, text)
			}
		}
		if asked := tc.response.Policy() != nil; asked && (!strings.Contains(fmt.Sprint(item.Metadata["demand"]), "?secret") || run["parts"].([]normalized.Part)[0].Policy.URL != "https://a.example/policy?secret") {
			t.Errorf("%s: the program has not the address: %v, %v", tc.name, item.Metadata["demand"], run["parts"])
		}
	}
}

// TestLongNamesAreTheirOwn: a name that equals the stored hash of a long name belongs to another person.
func TestLongNamesAreTheirOwn(t *testing.T) {
	long := strings.Repeat("a", maxReadable+1)
	if escaped(long) == escaped(escaped(long)) || short(long) == short(short(long)) || connectorSubject("m", long) == connectorSubject("m", escaped(long)) {
		t.Error("the hash of a name is the name")
	}
	if escaped("T1/a b") != "T1/a%20b" || short("T1/a b") != "T1/a b" {
		t.Errorf("%q, %q", escaped("T1/a b"), short("T1/a b"))
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
