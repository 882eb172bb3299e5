package activitypub

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/internal/fault"
)

// profiles of people who ask programs to leave them alone, and how.
var refusing = map[string]func(doc map[string]any){
	"#nobot in the summary":  func(doc map[string]any) { doc["summary"] = "<p>cats. #NoBot.</p>" },
	"#noai in the summary":   func(doc map[string]any) { doc["summary"] = `<p>cats <a class="hashtag">#<span>noai</span></a></p>` },
	"#nollm in the summary":  func(doc map[string]any) { doc["summary"] = "(#nollm)" },
	"#noai in a translation": func(doc map[string]any) { doc["summaryMap"] = map[string]any{"de": "Katzen #noai", "en": "cats"} },
	"#nollm in a field": func(doc map[string]any) {
		doc["attachment"] = []any{map[string]any{"type": "PropertyValue", "name": "Programs", "value": "#nollm"}}
	},
	"#noai in the name": func(doc map[string]any) { doc["name"] = "Bob #noai" },
	"#nobot as a tag":   func(doc map[string]any) { doc["tag"] = []any{map[string]any{"type": "Hashtag", "name": "nobot"}} },
}

var hiding = map[string]func(doc map[string]any){
	"not discoverable": func(doc map[string]any) { doc["discoverable"] = false },
	"not indexable":    func(doc map[string]any) { doc["discoverable"], doc["indexable"] = true, false },
}

var open = map[string]func(doc map[string]any){
	"says nothing":     func(map[string]any) {},
	"asks to be found": func(doc map[string]any) { doc["discoverable"], doc["indexable"] = true, true },
	"another hashtag":  func(doc map[string]any) { doc["summary"] = "#noair #nobother noai" },
}

// TestAnswersToThoseWhoHide: an answer about someone who does not want to be found is on no public timeline.
func TestAnswersToThoseWhoHide(t *testing.T) {
	for kind, profiles := range map[string]map[string]func(map[string]any){"refusing": refusing, "hiding": hiding, "open": open} {
		for name, change := range profiles {
			t.Run(name, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.PublicReplies = true })
				r.remote.addActor("alice", aliceKey(), change)
				in := r.question("1", "hello")
				made := must(r.adapter.renderer.render(r.reply(in, "hi"), 1, nil, withoutAddress))
				public := len(made.To) > 0 && made.To[0] == document.Public
				if public != (kind == "open") || in.Quiet != (kind == "refusing") {
					t.Errorf("public %v, quiet %v", public, in.Quiet)
				}
			})
		}
	}
}

// TestRefusingPeopleAreNotAdded: an agent neither writes to nor names others who ask programs not to write unasked.
func TestRefusingPeopleAreNotAdded(t *testing.T) {
	for name, change := range refusing {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			others := newRemoteServer(t)
			others.addActor("bob", aliceKey(), change)
			host := document.HostOf(others.base)
			others.handle("/.well-known/webfinger", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/jrd+json")
				_ = json.NewEncoder(w).Encode(map[string]any{"subject": "acct:bob@" + host, "links": []any{
					map[string]any{"rel": "self", "type": activityMediaType, "href": others.actor("bob")},
				}})
			})
			reply := r.reply(r.question("1", "hello"), "hi")
			reply.Response.To = []string{"@bob@" + host}
			plan, err := r.adapter.Plan(t.Context(), reply)
			if err != nil || len(plan.Destinations) != 2 {
				t.Fatalf("%+v, %v", plan, err)
			}
			for i, want := range []bool{true, false} {
				_, err := r.adapter.Deliver(t.Context(), exchange.Delivery{Reply: reply, Destination: plan.Destinations[i], Attempt: 1, Action: exchange.ActionSend})
				if (err == nil) != want || err != nil && !fault.Of(err).Permanent {
					t.Errorf("destination %d: %v", i, err)
				}
			}
			if got := r.remote.arrivals(); len(got) != 1 || strings.Contains(string(got[0].body), others.base) || len(others.arrivals()) != 0 {
				t.Errorf("%d posts to the asker, %d to bob", len(got), len(others.arrivals()))
			}
		})
	}
}

// TestBioIsBounded: what a profile says is looked at within the bounds of every list.
func TestBioIsBounded(t *testing.T) {
	var fields []any
	for range 10 * document.MaxListed {
		fields = append(fields, document.Object{"type": "PropertyValue", "name": "#a", "value": "#b"})
	}
	if texts := notetext.Bio(document.Object{"attachment": fields}); len(texts) > 2*document.MaxListed {
		t.Errorf("%d texts", len(texts))
	}
}
