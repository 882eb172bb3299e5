package pages

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/markup/markuptest"
	"inbox/normalized"
	"inbox/operator"
	"inbox/policypart"
)

// TestTextsOfWorkNeverBecomeMarkup fills every text of the pages of work with one that tries to leave its place.
func TestTextsOfWorkNeverBecomeMarkup(t *testing.T) {
	at := time.Unix(9, 0)
	some := workView{Tab: "held", CSRF: "x", Path: "/x", MayWork: true, MayAdmin: true, SelectAll: "/x", Next: "/x"}
	words := []normalized.Part{normalized.Text("x"), {Kind: normalized.PartFile, Name: "x", MIME: "x", Alt: "x"}, {Kind: normalized.PartLink, Title: "x", URL: "x"}}
	turn := exchange.TurnRecord{
		ID: "x", Agent: "x", Principal: "x", ThreadID: "x", State: exchange.StateHeld, Reason: "x", Channel: "x", AcceptedAt: at, ExpiresAt: &at,
		Message: normalized.Message{ID: "x", Recipient: "x", Sender: normalized.Sender{Address: identity.Stated("x"), DisplayName: "x", AuthMethod: "x"}, Parts: words},
	}
	approval := exchange.Approval{
		ID: "x", Code: "x", Agent: "x", TurnID: "x", ThreadID: "x", Asker: "x", Principal: "x", Question: "x", Tool: "x", Summary: "x",
		EditedBy: "x", DecidedBy: "x", Reason: "x", IssuedAt: at, ExpiresAt: at, UpdatedAt: at,
	}
	failures := failuresView{
		workView: some, Filter: workFilter{"x", "x", "x"}, Agents: []string{"x"}, Channels: []string{"x"},
		Rows: []failureRow{{ID: "x", Href: "/x", What: "x", Excerpt: "x", Channel: "x", Agent: "x", Words: "x", Turn: "x", At: at}},
	}

	for name, page := range map[string]func(text string) templ.Component{
		"all work": func(text string) templ.Component {
			row := markuptest.Fill(workRow{ID: "x", Title: "x", Subject: "x", Excerpt: "x", Channel: "x", Agent: "x"}, text)
			row.Href, row.Edit, row.Acts = "/x", "/x", []workAct{{"x", "/x", ""}}
			return allWorkPage(allWorkView{workView: some, Rows: []workRow{row}})
		},
		"conversation": func(text string) templ.Component {
			one := withParts(markuptest.Fill(turn, text), words, text)
			one.Message.Surface = &normalized.Surface{Subject: text}
			reader := markuptest.Fill(operator.Reader{Principal: "x y", Address: "x"}, text)
			sent := markuptest.Fill(operator.Delivery{ID: "x", Address: "x", Reason: "x"}, text)
			sent.State = operator.DeliveryDead
			return threadPage(threadView{
				Agent: text, ID: text, Sender: one.Message.Sender, Principal: text, Channel: text, Turns: []exchange.TurnRecord{one}, Chosen: one, MayWork: true, MayAdmin: true,
				Blocked: &exchange.ListEntry{Target: text}, Targets: []listTarget{{text, text}, {text, text}}, Readers: operator.Readers{Readers: []operator.Reader{reader}},
				Sent: []operator.Delivery{sent},
				List: inboxView{Beside: true, Rows: []inboxRow{{ID: "x", Href: "/x", Sender: text, Name: text, Subject: text, Excerpt: text, Agent: text, Edit: "/x", Holder: text}}},
			})
		},
		"held": func(text string) templ.Component {
			return heldPage(heldView{some, false, []exchange.TurnRecord{withParts(markuptest.Fill(turn, text), words, text)}})
		},
		"held message": func(text string) templ.Component {
			v := heldMessageView{workView: some, Turn: withParts(markuptest.Fill(turn, text), words, text), Unproven: true, Block: []listTarget{{text, text}}}
			return heldMessagePage(v)
		},
		"proven message": func(text string) templ.Component {
			v := heldMessageView{workView: some, Turn: withParts(markuptest.Fill(turn, text), words, text), Allow: []listTarget{{text, text}}, Closed: text}
			return heldMessagePage(v)
		},
		"approvals": func(text string) templ.Component {
			one := markuptest.Fill(approval, text)
			one.Kind, one.Status = exchange.ApprovalAction, exchange.ApprovalOpen
			return approvalsPage(approvalsView{workView: some, Rows: []exchange.Approval{one}})
		},
		"action": func(text string) templ.Component {
			one := markuptest.Fill(approval, text)
			one.Kind, one.Status = exchange.ApprovalAction, exchange.ApprovalOpen
			one.Preview, _ = json.Marshal(text)
			one.ApplyInput, _ = json.Marshal(map[string]string{"a": text})
			return approvalPage(approvalView{workView: some, Approval: one, Turn: withParts(markuptest.Fill(turn, text), words, text)})
		},
		"reply": func(text string) templ.Component {
			one := markuptest.Fill(approval, text)
			one.Kind, one.Status = exchange.ApprovalReply, exchange.ApprovalOpen
			one.Draft = &normalized.Response{Parts: filledParts(words, text), To: []string{text}, Cc: []string{text}}
			return approvalPage(approvalView{workView: some, Approval: one, Editing: true})
		},
		"compare": func(text string) templ.Component {
			return comparePage(compareView{workView: some, Title: text, Back: "/x", Before: "x", After: "y" + strings.ReplaceAll(text, "\n", " "), Was: "x", Action: "/x", Send: "x", Keep: "x", Stale: true})
		},
		"failed": func(text string) templ.Component { return failedPageOf(filledFailures(failures, text)) },
		"dead":   func(text string) templ.Component { return deliveriesPage(filledFailures(failures, text)) },
		"jobs":   func(text string) templ.Component { return deadJobsPage(filledFailures(failures, text)) },
		"retry": func(text string) templ.Component {
			return retryPage(retryView{
				workView: some, Filter: workFilter{text, text, text}, Would: 1, Skipped: 1, More: true,
				Rows: []exchange.Retried{markuptest.Fill(exchange.Retried{ID: "x", TurnID: "x", Agent: "x", What: "x", Failure: "x", Skipped: "x"}, text)},
			})
		},
		"delivery": func(text string) templ.Component {
			one := markuptest.Fill(operator.ShownDelivery{Record: delivery.Record{ID: "x", TurnID: "x", Agent: "x", Channel: "x", Key: "x", Address: "x", Reason: "x"}, Fixed: "x"}, text)
			one.State, one.Answer = delivery.StateDead, &normalized.Response{Parts: filledParts(words, text)}
			return deliveryPage(deliveryView{some, one})
		},
		"editable delivery": func(text string) templ.Component {
			one := markuptest.Fill(operator.ShownDelivery{Record: delivery.Record{ID: "x", TurnID: "x", Agent: "x", Channel: "x", Key: "x", Address: "x"}}, text)
			one.State, one.Answer = delivery.StateDead, &normalized.Response{Parts: filledParts(words, text)}
			return deliveryPage(deliveryView{some, one})
		},
		"calls": func(text string) templ.Component {
			one := markuptest.Fill(exchange.ToolRequest{ID: "x", Agent: "x", ToolName: "x", Status: "x"}, text)
			return toolRequestsPage(toolRequestsView{some, false, []exchange.ToolRequest{one}})
		},
		"call": func(text string) templ.Component {
			one := markuptest.Fill(exchange.ToolRequest{ID: "x", Agent: "x", TurnID: "x", ToolName: "x"}, text)
			one.Status = "pending"
			one.Request, _ = json.Marshal(text)
			return toolRequestPage(toolRequestView{some, one})
		},
		"demands": func(text string) templ.Component {
			one := markuptest.Fill(operator.Demand{
				ID: "x", Kind: "x", Agent: "x", TurnID: "x", Principal: "x", Asker: "x", Title: "x", Message: "x", Amount: "x", Currency: "x", Scopes: []string{"x"},
			}, text)
			one.Status = policypart.StatusIssued
			return demandsPage(demandsView{some, []operator.Demand{one}})
		},
		"mailbox": func(text string) templ.Component {
			return mailboxPage(mailboxView{some, "", text, text, text, []exchange.Mail{markuptest.Fill(aMail, text)}})
		},
		"mail": func(text string) templ.Component {
			return mailPage(mailView{some, markuptest.Fill(aMail, text), []check{{text, text}}})
		},
		"reports": func(text string) templ.Component {
			return mailReportsPage(mailReportsView{
				some, "", text, true, []exchange.ReportSum{markuptest.Fill(exchange.ReportSum{Kind: "x", Source: "x", DKIM: "x", SPF: "x", Result: "x"}, text)},
				[]exchange.StoredReportRow{markuptest.Fill(exchange.StoredReportRow{
					ID: "x", Kind: "x", MailID: "x", Reporter: "x", MailReportRow: exchange.MailReportRow{Source: "x", Result: "x", DKIM: "x", SPF: "x"},
				}, text)},
			})
		},
		"suppressed": func(text string) templ.Component {
			return suppressedPage(suppressedView{some, "", []exchange.Suppression{markuptest.Fill(exchange.Suppression{Address: "x", Kind: "x", Reason: "x", DeliveryID: "x"}, text)}})
		},
		"breakers": func(text string) templ.Component {
			return breakersPage(breakersView{some, []operator.Breaker{markuptest.Fill(operator.Breaker{Kind: "x", Target: "x", Channel: "x", State: "x", Reason: "x"}, text)}, 1})
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

var aMail = exchange.Mail{
	ID: "x", Kind: "x", Mailbox: "x", From: "x", FromName: "x", To: []string{"x"}, Subject: "x", Proof: "x", Note: "x", Text: "x", Cut: true,
	Headers: []exchange.MailHeader{{Name: "x", Value: "x"}}, Files: []exchange.MailFile{{Name: "x", MIME: "x", Size: 1}},
}

func filledParts(words []normalized.Part, text string) []normalized.Part {
	filled := slices.Clone(words)
	for i := range filled {
		kind := filled[i].Kind
		filled[i] = markuptest.Fill(filled[i], text)
		filled[i].Kind = kind
	}
	return filled
}

func withParts(turn exchange.TurnRecord, words []normalized.Part, text string) exchange.TurnRecord {
	turn.Message.Parts = filledParts(words, text)
	return turn
}

func filledFailures(v failuresView, text string) failuresView {
	v.Filter, v.Agents, v.Channels = workFilter{text, text, text}, []string{text}, []string{text}
	v.Rows = []failureRow{markuptest.Fill(v.Rows[0], text)}
	v.Rows[0].Href = at("messages", text)
	return v
}
