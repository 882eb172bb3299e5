package inbox

import (
	"strings"
	"testing"
	"time"

	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/internal/await"
)

// TestOperatorIsToldOfReports: by mail, through the ordinary deliveries, once for many reports; all of them are on record.
func TestOperatorIsToldOfReports(t *testing.T) {
	server := startServer(t, "INBOX_OPERATOR_CONTACT=ops@elsewhere.example", "INBOX_OPERATOR_NOTIFY=true", "INBOX_OPERATOR_NAME=Example Org")
	for range 3 {
		record := exchange.AuditRecord{At: time.Now(), Code: "report:activitypub", Agent: "echo", Principal: "x https://peer.example/actor", Detail: "it is spam"}
		if err := (reportRecords{server.resources}).Audit(t.Context(), record); err != nil {
			t.Fatal(err)
		}
	}
	records, err := server.store.AuditRecords(t.Context(), exchange.AuditFilter{Code: "report:*", Limit: 10})
	if err != nil || len(records) != 3 {
		t.Fatalf("%d records %v", len(records), err)
	}
	var sent []delivery.Record
	await.Until(t, "the mail is delivered", func() bool {
		if sent, err = server.store.Deliveries(t.Context(), delivery.Filter{Limit: 10}); err != nil {
			t.Fatal(err)
		}
		return len(sent) > 0 && sent[0].State == delivery.StateDelivered
	})
	_, reply, err := server.store.Deliverer().Delivery(t.Context(), sent[0].ID)
	if err != nil || len(sent) != 1 || !strings.Contains(sent[0].Address, "ops@elsewhere.example") ||
		!strings.Contains(reply.Response.Parts[0].Content, "it is spam") || !strings.Contains(reply.Response.Parts[0].Content, "https://peer.example/actor") {
		t.Errorf("%d deliveries, to %s: %+v %v", len(sent), sent[0].Address, reply.Response.Parts, err)
	}
	if _, page := fetch(t, server, "/@echo", "text/html"); !strings.Contains(page, `href="mailto:ops@elsewhere.example"`) || !strings.Contains(page, "Example Org") {
		t.Errorf("the profile does not say who operates the server:\n%s", page)
	}
	if _, card := fetch(t, server, "/a2a/echo/.well-known/agent-card.json", "application/json"); !strings.Contains(card, "ops@elsewhere.example") || !strings.Contains(card, "Example Org") {
		t.Errorf("the card does not say who operates the server:\n%s", card)
	}
}
