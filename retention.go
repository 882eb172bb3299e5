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

// due reports whether this node is the one that does the work now.
func (r *resources) due(ctx context.Context, work string, every time.Duration) bool {
	now := time.Now()
	_, mine, err := r.store.State().PutIfAbsent(ctx, retentionNamespace, work, []byte(now.UTC().Format(time.RFC3339)), now.Add(every))
	return err == nil && mine
}

// retentionOf are the periods of the settings.
func retentionOf(c *Config) store.Retention {
	rules := store.Retention{Default: periods(c.Retention), Agents: map[string]store.Periods{}}
	for i := range c.Agents {
		rules.Agents[strings.ToLower(c.Agents[i].Name)] = periods(config.Retention(c.Agents[i].Retention))
	}
	return rules
}

func periods(r config.Retention) store.Periods {
	return store.Periods{
		store.RetainMessages: r.Messages, store.RetainOriginals: r.Originals, store.RetainFiles: r.Files, store.RetainSteps: r.Steps,
		store.RetainDemands: r.Demands, store.RetainDispatches: r.Dispatches, store.RetainTools: r.Tools, store.RetainAudit: r.Audit,
		store.RetainSessions: r.Sessions, store.RetainRecords: r.Records,
	}
}
