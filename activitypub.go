package inbox

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"inbox/adapters/activitypub"
	"inbox/console"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

func (s *Server) openActivityPub() (module exchange.Module, err error) {
	s.activitypub, err = activitypub.New(activitypub.Options{
		Domain: s.config.Domain, PublicURL: s.config.PublicURL, Version: Version,
		Receiver: s.pipeline, Directory: s.registry, Threads: s.store, Replies: s.store, State: s.vault(),
		Amender: s.pipeline, Timeline: s.pipeline, Records: reportRecords{s},
		Outbox: outbox{s.store}, Client: s.client.Refusing(s.unlisted),
		HostAllowed: s.hostAllowed, ActorAllowed: s.actorAllowed, NamesLocal: s.namesLocal,
		AllowPrivate: s.config.Federation.AllowPrivate, Mode: s.config.Federation.Mode,
		UnsignedHost: !s.config.Federation.RequireSignedHost, MaxRefusals: s.maxRefusals(),
		Follows: s.follows, Stopped: s.stopped, FollowersOnly: s.followersOnly, Fields: operatorFields(s.config),
		AnswersAgents: s.answersAgents, Likes: s.likes, EmptyMention: activitypub.EmptyGreet,
		Present: s.demands.Present, Blobs: s.blobs, Profile: s.fediverseProfile, Recent: s.store,
		PublicReplies: s.config.Federation.PublicReplies, PostLength: s.config.Federation.PostLength,
		FollowersGetReplies: s.config.Federation.FollowersGetReplies, AuthorizedFetch: s.config.Federation.AuthorizedFetch,
		Alive: s.hostAlive,
		Policy: exchange.Policy{
			Schedule: s.config.Federation.Retry,
			Limits: exchange.DeliveryLimits{
				Concurrency: s.config.Federation.HostConcurrency, PerSecond: float64(s.config.Federation.HostRate), WaitsTogether: true,
			},
			Conversation: exchange.ConversationLimits{Same: s.config.Limits.SameMessages},
		},
	})
	if err != nil {
		return module, err
	}

	module = s.activitypub.Module()
	module.Background = append(module.Background, s.prepareKeys)
	options := queue.KindOptions{Concurrency: s.config.Queue.DeliveryConcurrency, MaxAttempts: len(s.config.Federation.Retry) + 1}
	for _, kind := range []string{activityJob, activityBulkJob} { // what is no reply, such as Accept and Move
		module.Jobs = append(module.Jobs, exchange.Job{Kind: kind, Options: options, Handler: s.sendActivity(s.activitypub)})
	}
	return module, nil
}

// maxRefusals is the adapter's own limit, or none where requests are not limited by address at all.
func (s *Server) maxRefusals() int {
	if len(s.config.Limits.HTTP) > 0 {
		return 0
	}
	return -1
}

func (s *Server) answersAgents(name string) bool {
	entry, known := s.registry.Lookup(name)
	return known && entry.Settings.AnswerAgents
}

// likes reports whether an agent acknowledges a note by liking it.
func (s *Server) likes(name string) bool {
	entry, known := s.registry.Lookup(name)
	return known && entry.Settings.AckLike
}

// Queue kinds of activities that are not replies, such as Accept; those to many followers wait behind the others.
const (
	activityJob     = "activity"
	activityBulkJob = "activity.bulk"
)

// outbox keeps an activity in the durable queue until its receiver has it.
type outbox struct{ store *store.Store }

// SendLater stores the activity; it is sent after the commit, in order inside the partition.
func (o outbox) SendLater(ctx context.Context, partition, payload string) error {
	job := laterJob(activitypub.Later{Partition: partition, Payload: payload})
	return o.store.Pipeline().InTx(ctx, func(tx pipeline.Tx) error { return tx.Enqueue(ctx, job) })
}

func laterJob(later activitypub.Later) queue.NewJob {
	kind := activityJob
	if later.Bulk {
		kind = activityBulkJob
	}
	return queue.NewJob{ID: uuid.Must(uuid.NewV7()).String(), Kind: kind, Partition: kind + " " + later.Partition, Payload: later.Payload}
}

// sendActivity is the job: one attempt under the rules of deliveries. What it asks for besides is stored in the
// transaction that ends it.
func (s *Server) sendActivity(adapter *activitypub.Adapter) queue.Handler {
	return func(ctx context.Context, job queue.Job) error {
		attempt := func(ctx context.Context) error {
			more, err := adapter.Perform(ctx, job.Payload, job.Attempt)
			if err != nil || len(more) == 0 {
				return err
			}
			return s.storeLater(ctx, job, more)
		}
		if host := activitypub.LaterHost(job.Payload); host != "" {
			return s.delivery.Guard(ctx, job, activitypub.ChannelName, host, attempt)
		}
		err := attempt(ctx)
		if f := fault.Of(err); err != nil && ctx.Err() == nil && f.Permanent {
			return queue.GiveUp(f.Public, err)
		}
		return err
	}
}

func (s *Server) storeLater(ctx context.Context, job queue.Job, more []activitypub.Later) error {
	err := s.store.Pipeline().InTx(ctx, func(tx pipeline.Tx) error {
		for _, later := range more {
			if err := tx.Enqueue(ctx, laterJob(later)); err != nil {
				return err
			}
		}
		return tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done})
	})
	if err != nil {
		return err
	}
	return queue.ErrSettled
}

// operatorFields are the lines on every profile that say who operates the server.
func operatorFields(c *Config) []activitypub.Field {
	var fields []activitypub.Field
	for _, field := range []activitypub.Field{
		{Name: "Operator", Value: c.Operator.Name}, {Name: "Contact", Value: c.Operator.Contact}, {Name: "Account", Value: c.Operator.Account},
		{Name: "Privacy", Value: c.Operator.Privacy}, {Name: "Source", Value: c.Operator.Source},
	} {
		if field.Value != "" {
			fields = append(fields, field)
		}
	}
	return fields
}

// operatorLines are the same lines on the page of every agent.
func operatorLines(c *Config) []console.Field {
	var lines []console.Field
	for _, field := range operatorFields(c) {
		line := console.Field{Name: field.Name, Value: field.Value}
		switch field.Name {
		case "Contact":
			line.Href = "mailto:" + strings.TrimPrefix(field.Value, "@")
		case "Privacy", "Source":
			line.Href = field.Value
		}
		lines = append(lines, line)
	}
	return lines
}

func (s *Server) agentTable(name string) config.Agent {
	for _, agent := range s.config.Agents {
		if strings.EqualFold(agent.Name, name) {
			return agent
		}
	}
	return config.Agent{Follows: activitypub.FollowAccept} // an agent of an embedding program
}

func (s *Server) follows(name string) string     { return s.agentTable(name).Follows }
func (s *Server) followersOnly(name string) bool { return s.agentTable(name).FollowersOnly }
