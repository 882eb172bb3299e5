package activitypub

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
)

var reports = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_reports_total", Help: "Reports (Flag) of other servers about our agents or their notes.",
}, []string{"agent"})

// codeReport is the code of the audit record that an operator finds a report by.
const codeReport = "report:activitypub"

// maxReported is how many agents one report is written down for.
const maxReported = 16

// flag keeps a report for the operator, one record for each agent that it is about. The reporter is usually the other
// server's own actor, so that nobody learns who complained.
func (i *interactions) flag(ctx context.Context, in *incoming) (string, error) {
	objects := document.References(in.activity["object"])
	about, err := i.reported(ctx, objects)
	if err != nil || len(about) == 0 {
		return outcomeIgnored, err
	}
	comment := notetext.Visible(document.Text(in.activity, "content"), 500)
	if comment == "" {
		comment = "no comment"
	}
	for _, record := range about {
		record.At, record.Code, record.Principal = i.now(), codeReport, i.principal(in.actor)
		record.Detail = document.Clip(comment+" ("+strings.Join(objects, " ")+")", 1000)
		if err := i.options.Records.Audit(ctx, record); err != nil {
			return "", unavailable(err)
		}
		reports.WithLabelValues(record.Agent).Inc()
	}
	return outcomeDone, nil
}

// reported finds our agents among the objects, and the turn of the first note of each.
func (i *interactions) reported(ctx context.Context, objects []string) ([]exchange.AuditRecord, error) {
	var about []exchange.AuditRecord
	at := func(agent string) *exchange.AuditRecord {
		for at := range about {
			if about[at].Agent == agent {
				return &about[at]
			}
		}
		if len(about) == maxReported {
			return new(exchange.AuditRecord)
		}
		about = append(about, exchange.AuditRecord{Agent: agent})
		return &about[len(about)-1]
	}
	for _, iri := range objects {
		if agent, found := i.agentOf(iri); found {
			at(agent.Name)
			continue
		}
		row, found, err := i.reaction(ctx, document.Object{"object": iri}, "")
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		reply, _, err := i.options.Replies.Reply(ctx, row.Reply)
		if err != nil {
			return nil, unavailable(err)
		}
		if record := at(reply.Agent); record.TurnID == "" {
			record.TurnID = row.Turn
		}
	}
	return about, nil
}
