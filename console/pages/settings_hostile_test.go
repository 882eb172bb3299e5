package pages

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/internal/markup/markuptest"
	"inbox/operator"
	"inbox/operator/doctor"
)

// TestTextsOfSettingsNeverBecomeMarkup fills every text of the overview and the settings with one that tries to leave its place.
func TestTextsOfSettingsNeverBecomeMarkup(t *testing.T) {
	at := time.Unix(9, 0)
	some := settingsView{CSRF: "x", Role: exchange.RoleAdmin}
	entry := exchange.ListEntry{ID: "x", Target: "x", Agent: "x", Reason: "x", Source: "x", CreatedAt: at}
	notice := exchange.Notice{ID: "x", Title: "x", Text: "x", CreatedAt: at, Ways: []exchange.NoticeWay{{Address: "x", State: "x", Reason: "x"}}}
	health := []httpserver.Detail{{Name: "x", Reason: "x", Remedy: "x"}, {Name: "x", Required: true, Reason: "x", Remedy: "x"}}

	for name, page := range map[string]func(text string) templ.Component{
		"overview": func(text string) templ.Component {
			paused := markuptest.Fill(entry, text)
			v := overviewView{
				Health: markuptest.Fill(health, text), Notices: []exchange.Notice{markuptest.Fill(notice, text)}, Paused: &paused, Version: text, New: true,
				Agent: text, Agents: []string{text, text}, Period: periodDay,
			}
			step := operator.TrafficStep{At: at.Truncate(time.Hour), Channel: text, Received: 3, Failed: 1}
			v.Traffic = operator.Traffic{
				Since: step.At, Until: step.At.Add(time.Hour), Step: operator.StepHour, Steps: []operator.TrafficStep{step}, Channels: []operator.ChannelTraffic{{TrafficStep: step}},
			}
			v.Chart = chartOf(v.Traffic)
			v.Waiting.Breakers = []operator.Breaker{markuptest.Fill(operator.Breaker{Kind: "x", Target: "x", Reason: "x"}, text)}
			return overviewPage(v)
		},
		"server": func(text string) templ.Component {
			one := markuptest.Fill(entry, text)
			return serverPage(serverView{settingsView: some, Version: text, Domain: text, Paused: &one, Resting: []exchange.ListEntry{one}, Health: markuptest.Fill(health, text), Node: true})
		},
		"doctor": func(text string) templ.Component {
			found := doctor.Examination{At: at, Findings: []doctor.Finding{{Name: text, Status: "fail", Detail: text, Remedy: text}}}
			return doctorPage(doctorView{some, found})
		},
		"dns": func(text string) templ.Component {
			record := doctor.DNSRecord{Name: text, Type: text, Value: text, Note: text, Zone: text}
			return dnsPage(dnsView{some, []doctor.LookedRecord{{DNSRecord: record, State: doctor.RecordDiffers, Found: []string{text}, Reason: text}}, at})
		},
		"certificates": func(text string) templ.Component {
			return certificatesPage(some, []operator.Certificate{{Name: text, Names: []string{text}, Issuer: text, Since: at, Until: at, Problem: text, Renewal: text}})
		},
		"limits": func(text string) templ.Component {
			return limitsPage(some, []operator.Limit{{Key: text, Value: text, Payer: text, Known: true, Used: 1, Most: 2}})
		},
		"nodes": func(text string) templ.Component {
			return nodesPage(some, []operator.RunningNode{{ID: text, Host: text, Domain: text, Version: text, Since: at, SeenAt: at}}, at)
		},
		"backlog": func(text string) templ.Component {
			return backlogPage(some, operator.Backlog{Kinds: []operator.WaitingJobs{{Kind: text}}, Peers: []operator.SlowPeer{{Channel: text, Destination: text}}, More: true})
		},
		"configuration": func(text string) templ.Component { return configurationPage(some, text) },
		"lists": func(text string) templ.Component {
			return listsPage(listsView{settingsView: some, List: exchange.ListBlock, Entries: []exchange.ListEntry{markuptest.Fill(entry, text)}})
		},
		"notices": func(text string) templ.Component {
			v := noticesView{settingsView: some, Notices: []exchange.Notice{markuptest.Fill(notice, text)}}
			v.Pending.Counted = []exchange.NoticeTally{{Kind: text, Subject: text, Count: 1}}
			v.Pending.Lasting = []exchange.NoticeCondition{{Kind: text, Subject: text, State: text, Reason: text}}
			return noticesPage(v)
		},
		"audit": func(text string) templ.Component {
			one := markuptest.Fill(exchange.AuditRecord{ID: "x", Code: "x", TurnID: "x", Agent: "x", Principal: "x", Detail: "x", At: at}, text)
			return auditPage(auditView{settingsView: some, Code: text, Agent: text, Turn: text, Agents: []string{text}, Records: []exchange.AuditRecord{one}})
		},
		"sessions": func(text string) templ.Component {
			one := operator.SignedIn{ConsoleSession: exchange.ConsoleSession{ID: text, Name: text, Address: text, Agent: text, SeenAt: at, ExpiresAt: at}, By: text}
			return sessionsPage(sessionsView{settingsView: some, Rows: []operator.SignedIn{one}})
		},
	} {
		rendered := func(text string) []string {
			t.Helper()
			var html strings.Builder
			if err := page(text).Render(t.Context(), &html); err != nil {
				t.Fatal(err)
			}
			skeleton, err := markuptest.Skeleton(html.String())
			if err != nil {
				t.Errorf("%s, %q: %v", name, text, err)
			}
			return skeleton
		}
		harmless := rendered("harmless")
		for _, text := range markuptest.Hostile {
			if got := rendered(text); !slices.Equal(got, harmless) {
				t.Errorf("%s, %q:\n%v, want\n%v", name, text, got, harmless)
			}
		}
	}
}
