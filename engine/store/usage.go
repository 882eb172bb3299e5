package store

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"inbox/normalized"
)

// usageStore measures what is kept.
type usageStore struct{ *shared }

// AgentUsage is what one agent keeps. Bytes are those of the texts, without indexes.
type AgentUsage struct {
	Agent         string    `json:"agent"`
	Messages      int64     `json:"messages"` // rows, those that lost their words among them
	MessageBytes  int64     `json:"message_bytes"`
	AnswerBytes   int64     `json:"answer_bytes"`
	OriginalBytes int64     `json:"original_bytes"` // in the database; large ones are files
	StepBytes     int64     `json:"step_bytes"`     // timelines and results of runs
	FileBytes     int64     `json:"file_bytes"`     // files of questions and answers in the blob store; one that several have counts for each
	Oldest        time.Time `json:"oldest"`         // when the oldest message came
}

// Usage is what is kept. Estimated: there are many messages, and the numbers of agents were computed from a sample of some thousand.
type Usage struct {
	DatabaseBytes int64            `json:"database_bytes"`
	FreeBytes     int64            `json:"free_bytes,omitempty"` // of them, which the next rows take; PostgreSQL does not say it
	Rows          map[string]int64 `json:"rows"`
	Agents        []AgentUsage     `json:"agents"`
	Estimated     bool             `json:"estimated"`
}

const (
	usageStrata = 32
	usageSample = 500 // messages of a stratum
	// usageExact is up to how many messages are all read.
	usageExact = usageStrata * usageSample
)

// Usage measures: of up to some ten thousand messages each one, of more a sample that is spread evenly over their order.
func (s usageStore) Usage(ctx context.Context) (Usage, error) {
	usage := Usage{Rows: map[string]int64{}, Agents: []AgentUsage{}}
	var err error
	if usage.DatabaseBytes, usage.FreeBytes, err = s.engine.Size(ctx); err != nil {
		return usage, err
	}
	for _, table := range []string{"turns", "deliveries", "jobs", "documents", "audit", "sessions", "erasures"} {
		var count int64
		if _, err := first(ctx, s.engine.Reader(), `SELECT COUNT(*) FROM `+table, nil, &count); err != nil {
			return usage, err
		}
		usage.Rows[table] = count
	}

	total := usage.Rows["turns"]
	usage.Estimated = total > usageExact
	agents := map[string]*AgentUsage{}
	after, sampled := "", int64(0)
	for range usageStrata {
		last, count, err := s.sample(ctx, after, agents)
		if err != nil {
			return usage, err
		}
		sampled += count
		if count < usageSample {
			break
		}
		after = last
		if skip := total/usageStrata - usageSample; usage.Estimated && skip > 0 {
			if _, err := first(ctx, s.engine.Reader(), `SELECT id FROM turns WHERE id > $1 ORDER BY id LIMIT 1 OFFSET $2 + 0`, []any{after, skip - 1}, &after); err != nil {
				return usage, err
			}
		}
	}

	for _, agent := range agents {
		if usage.Estimated && sampled > 0 {
			for _, number := range []*int64{&agent.Messages, &agent.MessageBytes, &agent.AnswerBytes, &agent.OriginalBytes, &agent.StepBytes, &agent.FileBytes} {
				*number = int64(float64(*number) * float64(total) / float64(sampled))
			}
		}
		usage.Agents = append(usage.Agents, *agent)
	}
	slices.SortFunc(usage.Agents, func(a, b AgentUsage) int { return strings.Compare(a.Agent, b.Agent) })
	return usage, nil
}

const usageRange = ` FROM turns t WHERE t.id > $1 AND t.id <= $2 GROUP BY t.agent`

// sample adds the messages after an id, and returns the last one and how many they were.
func (s usageStore) sample(ctx context.Context, after string, agents map[string]*AgentUsage) (last string, count int64, err error) {
	last = "~"
	if _, err := first(ctx, s.engine.Reader(), `SELECT id FROM turns WHERE id > $1 ORDER BY id LIMIT 1 OFFSET $2 + 0`, []any{after, int64(usageSample - 1)}, &last); err != nil {
		return "", 0, err
	}

	of := func(name string) *AgentUsage {
		if agents[name] == nil {
			agents[name] = &AgentUsage{Agent: name}
		}
		return agents[name]
	}
	bounds := []any{after, last}
	err = s.engine.Reader().Each(ctx, `SELECT t.agent, COUNT(*), SUM(OCTET_LENGTH(t.message) + OCTET_LENGTH(t.route)), MIN(t.accepted_at)`+usageRange, bounds, func(r row) error {
		var name string
		var messages, bytes, oldest int64
		if err := r.Scan(&name, &messages, &bytes, &oldest); err != nil {
			return err
		}
		agent := of(name)
		agent.Messages, agent.MessageBytes = agent.Messages+messages, agent.MessageBytes+bytes
		if agent.Oldest.IsZero() || instant(oldest).Before(agent.Oldest) {
			agent.Oldest = instant(oldest)
		}
		count += messages
		return nil
	})
	if err != nil {
		return "", 0, err
	}

	for _, part := range []struct {
		query string
		into  func(*AgentUsage) *int64
	}{
		{`SELECT t.agent, SUM(OCTET_LENGTH(r.response)) FROM turns t JOIN replies r ON r.turn_id = t.id`, func(a *AgentUsage) *int64 { return &a.AnswerBytes }},
		{`SELECT t.agent, SUM(OCTET_LENGTH(o.body)) FROM turns t JOIN originals o ON o.digest = t.original_digest`, func(a *AgentUsage) *int64 { return &a.OriginalBytes }},
		{`SELECT t.agent, SUM(OCTET_LENGTH(e.body) + OCTET_LENGTH(e.kind)) FROM turns t JOIN events e ON e.turn_id = t.id`, func(a *AgentUsage) *int64 { return &a.StepBytes }},
		{`SELECT t.agent, SUM(OCTET_LENGTH(n.body)) FROM turns t JOIN run_results n ON n.turn_id = t.id`, func(a *AgentUsage) *int64 { return &a.StepBytes }},
	} {
		err := s.engine.Reader().Each(ctx, part.query+` WHERE t.id > $1 AND t.id <= $2 GROUP BY t.agent`, bounds, func(r row) error {
			var name string
			var bytes int64
			err := r.Scan(&name, &bytes)
			*part.into(of(name)) += bytes
			return err
		})
		if err != nil {
			return "", 0, err
		}
	}

	for _, query := range []string{
		`SELECT t.agent, t.message FROM turns t WHERE t.id > $1 AND t.id <= $2 AND t.message LIKE '%"digest"%'`,
		`SELECT t.agent, r.response FROM turns t JOIN replies r ON r.turn_id = t.id WHERE t.id > $1 AND t.id <= $2 AND r.response LIKE '%"digest"%'`,
	} {
		err := s.engine.Reader().Each(ctx, query, bounds, func(r row) error {
			var name, text string
			if err := r.Scan(&name, &text); err != nil {
				return err
			}
			var stored struct {
				Parts []normalized.Part `json:"parts"`
			}
			if json.Unmarshal([]byte(text), &stored) != nil {
				return nil //nolint:nilerr // what cannot be read has no files
			}
			for _, part := range stored.Parts {
				if part.BytesRef != nil && part.BytesRef.Digest != "" {
					of(name).FileBytes += part.Size
				}
			}
			return nil
		})
		if err != nil {
			return "", 0, err
		}
	}
	return last, count, nil
}

// Size returns the bytes of the database.
func (s usageStore) Size(ctx context.Context) (int64, error) {
	total, _, err := s.engine.Size(ctx)
	return total, err
}
