package inbox

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"inbox/engine/notice"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// noticeSettings are what a configuration says about notices to the operator.
func noticeSettings(config *Config) notice.Settings {
	settings := notice.Settings{Kinds: config.Operator.NotifyKinds, Secret: config.Operator.NotifySecret.Reveal(), OutageAfter: config.Operator.OutageAfter}
	settings.Hour, settings.Minute, settings.Zone = config.Operator.DigestTime()
	for _, one := range config.Operator.Addresses() {
		settings.Addresses = append(settings.Addresses, notice.Address{Label: one.Label, Person: one.Person, URL: one.URL})
	}
	return settings
}

// operatorHears reports whether the operator is told of turns that fail.
func (e *engine) operatorHears() bool {
	operator := e.now().config.Operator
	return len(operator.Addresses()) > 0 && noticeSettings(e.now().config).Tells(exchange.NoticeTurn)
}

// noticesOf makes the part that stores notices, for a program that has only the database: a running server sends them.
func noticesOf(config func() *Config, opened *store.Store) *notice.Service {
	return notice.New(notice.Options{
		Store: opened.Notifier(), Domain: config().Domain, Current: func() notice.Settings { return noticeSettings(config()) },
	})
}

// handleNotices tells the operator of trouble: by webhooks, and through the ordinary deliveries of the first agent.
func (e *engine) handleNotices() {
	e.notices = notice.New(notice.Options{
		Store: e.store.Notifier(), Domain: e.config.Domain, Logger: e.logger,
		Current: func() notice.Settings { return noticeSettings(e.now().config) },
		Observe: func(ctx context.Context) []notice.Observation {
			if e.observe == nil {
				return nil
			}
			return e.observe(ctx)
		},
		Begin: e.beginNotice,
		Client: func(address string) notice.Client {
			u, err := url.Parse(address) // the validation of the settings has let only addresses pass
			if err != nil {
				return e.client
			}
			port := u.Port()
			if port == "" {
				port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
			}
			return e.client.Trusting(net.JoinHostPort(u.Hostname(), port)) // the operator wrote it
		},
	})
	e.queue.Handle(notice.JobKind, queue.KindOptions{Concurrency: noticeConcurrency}, e.notices.Send)
}

// noticeConcurrency is how many notices are brought on their way at once.
const noticeConcurrency = 2

// beginNotice sends a notice to a person as a message of the first agent.
func (e *engine) beginNotice(ctx context.Context, job queue.Job, letter notice.Letter) error {
	all := e.registry.Agents()
	if len(all) == 0 {
		return fault.GiveUp("this server has no agent that could write to "+letter.To, nil)
	}
	opening, err := openers{e.channels}.open(ctx, all[0].Name, letter.To, letter.Subject)
	if err != nil {
		return err
	}
	return e.pipeline.Notify(ctx, job, pipeline.Notice{
		ID: letter.Way.ID, Agent: all[0].Name, To: letter.To, Subject: letter.Subject, Text: letter.Text,
		With: func(ctx context.Context, tx pipeline.Tx, turnID string) error {
			way := letter.Way
			way.State, way.TurnID, way.UpdatedAt = exchange.NoticeSent, turnID, time.Now()
			return tx.SettleNotice(ctx, way)
		},
	}, opening)
}

// orders remembers how the last order of each certificate ended.
type orders struct {
	mu     sync.Mutex
	failed map[string]string // name → what the authority said
}

func (o *orders) ended(name string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		delete(o.failed, name)
		return
	}
	if o.failed == nil {
		o.failed = map[string]string{}
	}
	o.failed[name] = err.Error()
}

func (o *orders) failure(name string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed[name]
}

// observeNode looks at what lasts on this node: its disk, its certificates, and whether it answers itself.
func (s *Server) observeNode(ctx context.Context) (seen []notice.Observation) {
	host, err := os.Hostname()
	if err != nil {
		host = "this node"
	}
	directory, err := filepath.Abs(s.config.DataDir)
	if err != nil {
		directory = s.config.DataDir
	}

	full := s.disk.Full()
	seen = append(seen,
		notice.Observation{
			Kind: exchange.NoticeDisk, Subject: "full, " + host + ":" + directory, Bad: full,
			Reason: "no message is accepted until there is room; make some where data_dir is, or lower limits.free_disk",
		},
		notice.Observation{
			Kind: exchange.NoticeDisk, Subject: "low, " + host + ":" + directory, Bad: !full && s.availability.guests.Full(),
			Reason: "messages of senders without proof are refused until there is room",
		})

	for _, one := range s.domains() {
		seen = append(seen, one.observeDatabase(ctx, host))
	}
	if last := s.probe.last.Load(); last != nil {
		observation := notice.Observation{Kind: exchange.NoticeProbe, Subject: host + " " + s.HTTPAddr().String(), Bad: last.err != nil}
		if last.err != nil {
			observation.Reason = fault.InWords(last.err)
		}
		seen = append(seen, observation)
	}

	return append(seen, s.observeCertificates(ctx, host)...)
}

func (s *Server) observeCertificates(ctx context.Context, host string) (seen []notice.Observation) {
	subject := "certificates of " + s.config.Domain
	if s.acme == nil {
		subject += " on " + host
	}
	if s.acme != nil || s.config.HTTP.CertFile != "" {
		observation := notice.Observation{Kind: exchange.NoticeCertificate, Subject: subject}
		if err := s.checkCertificate(ctx); err != nil {
			observation.Bad, observation.Reason = true, fault.Of(err).Public
		}
		seen = append(seen, observation)
	}
	if s.acme == nil {
		return seen
	}

	for _, name := range s.config.CertificateNames() {
		said := s.orders.failure(name)
		if said == "" && !s.acme.Fresh(name) { // an order is under way, or another node's
			continue
		}
		observation := notice.Observation{Kind: exchange.NoticeCertificate, Subject: "renewal of " + name, Bad: said != ""}
		if said != "" {
			observation.Reason = "the authority gave none; it is asked again: " + said
		}
		seen = append(seen, observation)
	}
	return seen
}
