// Package mailbox keeps mail for the operator: what came to role addresses of the domain, such as postmaster (RFC 5321, section 4.5.1; RFC
// 2142), and answers that were captured instead of sent. It decides who pays for the room, and what is sent on to the operator elsewhere.
package mailbox

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

var (
	keptTotal = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_mailbox_mails_total", Help: "Mails for the operator by result."},
		[]string{"result"}) // kept, repeated, refused (over a quota)
	reportsTotal = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_mailbox_reports_total", Help: "Reports of other servers by kind and by whether something proves who wrote them."},
		[]string{"kind", "proven"}) // dmarc, tls; yes, no
)

// Bounds.
const (
	maxInline = 64 << 10 // larger mails go to the blob store
	rowBytes  = 512      // what a line of a report counts

	maxCaptured = 1000 // newest captured mails that stay
	trimEvery   = 50
)

// ForwardKind is the queue kind of mails that are to be sent on; the payload is an exchange.MailForward.
const ForwardKind = "mail-forward"

// Store keeps mail.
type Store interface {
	MailRoom(ctx context.Context, key string, charge exchange.MailCharge) (known bool, err error)
	KeepMail(ctx context.Context, mail exchange.IncomingMail, charge exchange.MailCharge, digest string, jobs ...queue.NewJob) (exchange.KeptMail, error)
	TrimMail(ctx context.Context, kind string, newest int) (deleted int, err error)
	Mail(ctx context.Context, id string) (exchange.Mail, error)
	MailBytes(ctx context.Context, id string) (raw []byte, digest string, err error)
}

// Blobs keeps the bytes of large mails.
type Blobs interface {
	// Stage keeps bytes that may turn out not to be needed; withdraw, which may be nil, removes them again.
	Stage(ctx context.Context, content []byte) (withdraw func() error, err error)
	Open(ctx context.Context, digest string) (io.ReadCloser, error)
}

// Options configure a Service. All but ForwardTo are required.
type Options struct {
	Store    Store
	Blobs    Blobs
	Networks func(netip.Addr) []string // names of the networks of an address, the narrowest first
	Quota    func() exchange.MailQuota

	// ForwardTo returns where mail is sent on to by itself, at most how many a day; empty = nowhere.
	ForwardTo func() (address string, perDay int64)
	Logger    *slog.Logger
}

// Service keeps mail for the operator.
type Service struct {
	options  Options
	captures atomic.Int64
}

// New makes a Service.
func New(options Options) *Service { return &Service{options: options} }

// Keep keeps a mail: when it returns nil, the mail is durable, or a repeat of one that is. The error is fault.RateLimited where its sender,
// or all, have too much here.
func (s *Service) Keep(ctx context.Context, mail exchange.IncomingMail) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make id: %w", err)
	}
	mail.ID, mail.Size = id.String(), int64(len(mail.Raw))

	charge, jobs, err := s.chargeOf(mail)
	if err != nil {
		return err
	}

	digest, withdraw := "", (func() error)(nil)
	if len(mail.Raw) > maxInline {
		var known bool
		if digest, withdraw, known, err = s.stage(ctx, mail, charge); err != nil || known {
			s.count(ctx, mail, exchange.KeptMail{}, 0, err)
			return err
		}
	}

	kept, err := s.options.Store.KeepMail(ctx, mail, charge, digest, jobs...)
	if withdraw != nil && !kept.New && fault.OutcomeOf(err) != fault.Unknown {
		if failed := withdraw(); failed != nil {
			s.options.Logger.WarnContext(ctx, "the bytes of a mail that was not kept stay until the next sweep", "error", failed)
		}
	}
	s.count(ctx, mail, kept, len(jobs), err)
	if err != nil {
		return err
	}
	if mail.Kind == exchange.MailCaptured && s.captures.Add(1)%trimEvery == 1 {
		_, err = s.options.Store.TrimMail(ctx, exchange.MailCaptured, maxCaptured)
	}
	return err
}

// stage writes the bytes of a mail for which there is room, before its row, so that no row points at nothing. withdraw removes them again:
// another mail may take the room first.
func (s *Service) stage(ctx context.Context, mail exchange.IncomingMail, charge exchange.MailCharge) (digest string, withdraw func() error, known bool, err error) {
	if known, err = s.options.Store.MailRoom(ctx, mail.Key, charge); err != nil || known {
		return "", nil, known, err
	}
	if withdraw, err = s.options.Blobs.Stage(ctx, mail.Raw); err != nil {
		return "", nil, false, fmt.Errorf("store mail bytes: %w", err)
	}
	return normalized.Digest(mail.Raw), withdraw, false, nil
}

func (s *Service) count(ctx context.Context, mail exchange.IncomingMail, kept exchange.KeptMail, wanted int, err error) {
	switch {
	case mail.Kind == exchange.MailCaptured:
		return
	case fault.Is(err, fault.RateLimited):
		keptTotal.WithLabelValues("refused").Inc()
		s.options.Logger.WarnContext(ctx, "a mail for the operator was deferred: the quota of its sender, or of all, is full", "mailbox", mail.Mailbox, "from", mail.From)
	case err != nil:
	case !kept.New:
		keptTotal.WithLabelValues("repeated").Inc()
	default:
		keptTotal.WithLabelValues("kept").Inc()
		s.tell(ctx, mail)
		if wanted > 0 && !kept.Forwarded {
			s.options.Logger.WarnContext(ctx, "a mail for the operator is not sent on: enough were today; see: inbox mail show", "mail", mail.ID, "mailbox", mail.Mailbox)
		}
	}
}

// tell says in the log and by metrics that there is new mail for the operator; the digest counts it where it is stored.
func (s *Service) tell(ctx context.Context, mail exchange.IncomingMail) {
	proven := "no"
	if mail.Proven() {
		proven = "yes"
	}
	if mail.Report != nil {
		reportsTotal.WithLabelValues(mail.Report.Kind, proven).Inc()
	}
	s.options.Logger.InfoContext(ctx, "mail for the operator; see: inbox mail show", "mail", mail.ID, "mailbox", mail.Mailbox, "kind", mail.Kind, "from", mail.From, "proven", proven)
}

// chargeOf says who pays for a mail, and makes the job that sends it on. A sender without proof pays by network, others by domain; relays of
// the operator pay for no network.
func (s *Service) chargeOf(mail exchange.IncomingMail) (charge exchange.MailCharge, jobs []queue.NewJob, err error) {
	if mail.Kind == exchange.MailCaptured {
		return charge, nil, nil
	}

	charge = exchange.MailCharge{Proven: mail.Proven(), Bytes: int64(len(mail.Raw)), Quota: s.options.Quota()}
	if mail.Report != nil {
		charge.Bytes += rowBytes * int64(len(mail.Report.Rows))
	}
	if charge.Proven {
		charge.Accounts = []string{"domain " + identity.RegistrableDomain(exchange.MailDomain(mail.From))}
	} else {
		charge.Accounts = s.options.Networks(mail.Client)
	}

	if charge.Bytes > charge.Quota.SenderBytes { // it never fits, whenever it comes again
		return charge, nil, fault.New(fault.TooLarge, "the mail is larger than the operator's mailbox takes")
	}

	to, perDay := s.options.ForwardTo()
	if to == "" || !mail.Answers || mail.Kind != exchange.MailOrdinary || strings.EqualFold(mail.From, to) {
		return charge, nil, nil
	}

	charge.ForwardsPerDay = perDay
	job, _, err := ForwardJob(mail.ID, to)
	return charge, []queue.NewJob{job}, err
}

// ForwardJob is the work to send a kept mail on.
func ForwardJob(mailID, to string) (queue.NewJob, exchange.MailForward, error) {
	forward, job := exchange.MailForward{ID: uuid.Must(uuid.NewV7()).String(), MailID: mailID, To: to}, uuid.Must(uuid.NewV7()).String()
	payload, err := json.Marshal(forward)
	return queue.NewJob{ID: job, Kind: ForwardKind, Payload: string(payload)}, forward, err
}

// ForwardOf reads the payload of a job.
func ForwardOf(job queue.Job) (exchange.MailForward, error) {
	var forward exchange.MailForward
	if err := json.Unmarshal([]byte(job.Payload), &forward); err != nil {
		return forward, fault.GiveUp("what is to be sent on cannot be read", err)
	}
	return forward, nil
}

// maxForwardedText bounds the text above an attached mail.
const maxForwardedText = 16 << 10

// Forwarded returns a kept mail, what is written above it, and it as a file.
func (s *Service) Forwarded(ctx context.Context, id string) (mail exchange.Mail, text string, file normalized.Part, err error) {
	if mail, err = s.options.Store.Mail(ctx, id); err != nil {
		return mail, "", file, err
	}
	raw, digest, err := s.options.Store.MailBytes(ctx, id)
	if err != nil {
		return mail, "", file, err
	}

	file = normalized.Part{Kind: normalized.PartFile, MIME: "message/rfc822", Name: "mail.eml", Size: mail.Size, BytesRef: &normalized.BytesRef{
		Kind: normalized.BytesContentAddressed, Algo: "sha256", Digest: digest,
	}}
	if digest == "" {
		file.BytesRef = &normalized.BytesRef{Kind: normalized.BytesInline, DataBase64: base64.StdEncoding.EncodeToString(raw)}
	}

	proof := "Who wrote it is proven: " + mail.Proof
	if !mail.Proven() {
		proof = "Nothing proves who wrote it"
	}
	said := mail.Text
	if len(said) > maxForwardedText {
		said = strings.ToValidUTF8(said[:maxForwardedText], "") + "\n[…]"
	}
	text = "Mail for " + strings.Join(mail.To, ", ") + ", received " + mail.ReceivedAt.UTC().Format(time.RFC1123) + ".\n\nFrom: " + mail.From + "\nSubject: " + mail.Subject +
		"\n" + proof + ".\n\nThe whole mail is attached; on the server: inbox mail show " + mail.ID + "\n\n" + said
	return mail, text, file, nil
}
