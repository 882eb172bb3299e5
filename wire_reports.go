package inbox

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

const (
	noticeNamespace = "operator.notice" // "report" → when the operator was last told of one
	noticeEvery     = time.Hour
)

// reportRecords writes what the adapter records, and tells the operator of reports: in the log, and by mail with
// operator.notify. One mail an hour at most, because anybody can send reports; the list has them all.
type reportRecords struct{ server *Server }

// Audit stores the record. The mail is durable with it.
func (r reportRecords) Audit(ctx context.Context, record exchange.AuditRecord) error {
	s := r.server
	if !strings.HasPrefix(record.Code, "report:") {
		return s.store.Audit(ctx, record)
	}
	s.logger.WarnContext(ctx, "an agent was reported; see: inbox reports list", "agent", record.Agent, "turn", record.TurnID, "by", record.Principal, "comment", record.Detail)
	if !s.config.Operator.Notify {
		return s.store.Audit(ctx, record)
	}
	if record.ID == "" {
		record.ID = uuid.Must(uuid.NewV7()).String()
	}
	return s.notifyOperator(ctx, "report", r.notice(record), func(tx pipeline.Tx) error { return tx.Audit(ctx, record) })
}

// notifyOperator writes a record, and the mail that tells of it unless one of the same key left within the hour.
func (s *Server) notifyOperator(ctx context.Context, key string, notice pipeline.Notice, write func(pipeline.Tx) error) error {
	told, _, err := s.store.State().Get(ctx, noticeNamespace, key)
	if err != nil {
		return err
	}
	last, _ := time.Parse(time.RFC3339Nano, string(told)) // none, or not ours: long ago
	job, err := notice.Job()
	if err != nil {
		return err
	}
	return s.store.Pipeline().InTx(ctx, func(tx pipeline.Tx) error {
		if err := write(tx); err != nil || time.Since(last) < noticeEvery {
			return err
		}
		now := []byte(time.Now().UTC().Format(time.RFC3339Nano))
		instead, err := tx.Claim(ctx, exchange.Claim{Namespace: noticeNamespace, Key: key, Value: now, Instead: told})
		if err != nil || instead != nil { // somebody else told just now
			return err
		}
		return tx.Enqueue(ctx, job)
	})
}

func (r reportRecords) notice(record exchange.AuditRecord) pipeline.Notice {
	text := "Another server has reported the agent " + record.Agent + ".\n\nReported by: " + record.Principal + "\nWhat they say: " + record.Detail
	if record.TurnID != "" {
		text += "\n\nThe conversation: inbox show " + record.TurnID
	}
	text += "\n\nAll reports: inbox reports list. Further ones within an hour are only there."
	return pipeline.Notice{ID: record.ID, Agent: record.Agent, To: r.server.config.Operator.Contact, Subject: record.Agent + " was reported", Text: text}
}

// operatorAddress is where notices are sent; empty = the operator wants none.
func (s *Server) operatorAddress() string {
	if !s.config.Operator.Notify {
		return ""
	}
	return s.config.Operator.Contact
}

// handleNotices tells the operator something through the ordinary deliveries.
func (s *Server) handleNotices() {
	s.queue.Handle(pipeline.NoticeKind, queue.KindOptions{Concurrency: 1}, func(ctx context.Context, job queue.Job) error {
		notice, err := pipeline.NoticeOf(job)
		if err != nil {
			return queue.Classed(ctx, err)
		}
		opening, err := openers{s.channels}.open(ctx, notice.Agent, strings.TrimPrefix(notice.To, "@"), notice.Subject)
		if err != nil {
			return queue.GiveUp(fault.Of(err).Public, err)
		}
		return s.pipeline.Notify(ctx, job, notice, opening)
	})
}
