package inbox

import (
	"context"
	"strings"
	"time"

	"inbox/engine/store"
	"inbox/internal/config"
)

const (
	retainEvery = time.Minute
	// originalsEvery is how often native forms are looked for that no message has any more: that reads all messages.
	originalsEvery = time.Hour

	retentionNamespace = "retention" // what → when a node began with it last; it ends when the next time is due
)

// retain removes what has reached its end, now and then until ctx ends, on one node at a time.
func (r *resources) retain(ctx context.Context) error {
	ticker := time.NewTicker(retainEvery)
	defer ticker.Stop()
	for {
		r.retainOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (r *resources) retainOnce(ctx context.Context) {
	if r.due(ctx, "messages", retainEvery-time.Second) {
		if err := r.endSuppressions(ctx); err != nil && ctx.Err() == nil { // before the messages go that end them
			r.logger.WarnContext(ctx, "suppressions are ended later", "error", err)
		}
		removed, err := r.store.Retain(ctx, retentionOf(r.now().config), time.Now())
		if err != nil && ctx.Err() == nil {
			r.logger.WarnContext(ctx, "what has reached its end is removed later", "error", err)
		}
		for kind, count := range removed {
			if count > 0 {
				r.logger.InfoContext(ctx, "what had reached its end was removed", "kind", kind, "count", count)
			}
		}
	}

	if r.due(ctx, "originals", originalsEvery) {
		if err := r.store.DropOriginals(ctx); err != nil && ctx.Err() == nil {
			r.logger.WarnContext(ctx, "native forms that no message has any more are removed later", "error", err)
		}
	}
}

// countEvery is how often the numbers of the overview are brought up to date.
const countEvery = time.Minute

// signNode says that this node runs, until ctx ends.
func (s *Server) signNode(ctx context.Context) error {
	return s.operator().Nodes.Sign(ctx, s.config.Domain, Version, func(err error) {
		s.logger.WarnContext(ctx, "operators do not see this node", "error", err)
	})
}

// countHours keeps the statistics, until ctx ends, on one node at a time.
func (r *resources) countHours(ctx context.Context) error {
	ticker := time.NewTicker(countEvery)
	defer ticker.Stop()
	for {
		if r.due(ctx, "statistics", countEvery-time.Second) {
			if err := r.store.CountHours(ctx, time.Now()); err != nil && ctx.Err() == nil {
				r.logger.WarnContext(ctx, "statistics are counted later", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// lookEvery is the shortest interval between two rounds of the search for rows without their job.
const lookEvery = time.Minute

// lookForLost queues rows whose job is gone, until ctx ends. Each node looks: what one has seen, only the same one compares with what is there later.
// A run notices within a lease that its job is gone.
func (r *resources) lookForLost(ctx context.Context) error {
	ticker := time.NewTicker(max(lookEvery, r.config.Queue.Lease))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if _, err := r.store.LookForLost(ctx); err != nil && ctx.Err() == nil {
			r.logger.WarnContext(ctx, "rows without their job are looked for later", "error", err)
		}
	}
}

// due reports whether this node is the one that does the work now.
func (r *resources) due(ctx context.Context, work string, every time.Duration) bool {
	now := time.Now()
	_, mine, err := r.store.State().PutIfAbsent(ctx, retentionNamespace, work, []byte(now.UTC().Format(time.RFC3339)), now.Add(every))
	return err == nil && mine
}

// retentionOf are the periods of the settings.
func retentionOf(c *Config) store.Retention {
	rules := store.Retention{Default: periods(c.Retention.Agents()), Agents: map[string]store.Periods{}}
	for i := range c.Agents {
		rules.Agents[strings.ToLower(c.Agents[i].Name)] = periods(c.Agents[i].Retention)
	}
	return rules
}

func periods(r config.AgentRetention) store.Periods {
	return store.Periods{
		store.RetainMessages: r.Messages, store.RetainOriginals: r.Originals, store.RetainFiles: r.Files, store.RetainSteps: r.Steps,
		store.RetainDemands: r.Demands, store.RetainDispatches: r.Dispatches, store.RetainTools: r.Tools, store.RetainAudit: r.Audit,
		store.RetainSessions: r.Sessions, store.RetainRecords: r.Records,
	}
}

// ceilings are the ends that hold whatever agents say.
func ceilings(r config.Retention) store.Periods {
	return store.Periods{
		store.RetainResults: r.ResultsCeiling, store.RetainDemands: r.DemandsCeiling, store.RetainDispatches: r.DispatchesCeiling,
		store.RetainTools: r.ToolsCeiling, store.RetainAudit: r.AuditCeiling, store.RetainOperatorMail: r.OperatorMail,
		store.RetainCapturedMail: r.CapturedMail, store.RetainMailReports: r.MailReports,
	}
}

// eraseEvery is how soon the server goes on with an erasure.
const eraseEvery = 2 * time.Second

// wakeErasures says that an erasure may have begun.
func (r *resources) wakeErasures() {
	select {
	case r.erasing <- struct{}{}:
	default:
	}
}

// runErasures does what operators began.
func (m *modules) runErasures(ctx context.Context) error {
	return m.operator().Erasures.Run(ctx, eraseEvery, func(err error) {
		m.logger.WarnContext(ctx, "an erasure goes on later", "error", err)
	})
}

// stopErased ends what is under way for persons whose erasure was begun.
func (m *modules) stopErased(ctx context.Context) error {
	return m.operator().Erasures.RunStops(ctx, m.erasing, func(err error) {
		m.logger.WarnContext(ctx, "open messages of an erased person are cancelled later", "error", err)
	})
}
