// Package simulation sends messages to a running server as others would: a mention from a server of the fediverse, a mail, a task of
// another agent, a chat. The sender is a peer that lives as long as a Network does, answers what the server asks to check a proof (actor,
// key, WebFinger, names), and proves no more than the server could check of a stranger. It knows no database: what became of a message
// others see.
package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/peer"
)

// Ways by which a message is sent.
const (
	Mention = "mention"
	Mail    = "mail"
	Task    = "task"
	Chat    = "chat"
)

// Ways lists them.
func Ways() []string { return []string{Mention, Mail, Task, Chat} }

// Domain is that of simulated mail. Names below .test exist nowhere (RFC 6761, section 6.2), so no one else can be meant.
const Domain = "simulated.test"

// TokenPrefix begins the names of tokens of simulated callers, so that they are no one else's.
const TokenPrefix = "simulated-"

// Faults lists what can be wrong with a message of a way; nil for a word that is none.
func Faults(way string) []string {
	switch way {
	case Mention:
		return peer.FediverseFaults()
	case Mail:
		return peer.MailFaults()
	case Task, Chat:
		return peer.CallerFaults()
	}
	return nil
}

// Bounds of one message and of one Network.
const (
	MaxTextBytes = 1 << 20
	MaxFiles     = 16
	MaxFileBytes = 16 << 20 // of all files of a message together
	maxSenders   = 64
	maxActivity  = 1 << 20 // bytes of the largest activity that a server takes
)

// Server is what has to be known of the server that is written to.
type Server struct {
	PublicURL string
	Domain    string       // of its agents' addresses
	HTTP      *http.Client // reaches it under PublicURL; nil = as PublicURL says
	SMTPAddr  string       // host:port; empty = it takes no mail
	Resolver  string       // host:port of the name server that it asks; empty = that of its system
	Private   bool         // it fetches from loopback addresses
	Captures  bool         // answers by mail stay there
	MaxBody   int          // bytes of the largest request that it takes by HTTP
	MaxTask   int          // by A2A
	MaxMail   int          // by mail
}

// Options say where the fediverse peers are reached. The zero value is a loopback address.
type Options struct {
	Listen string // host:port; empty = a free port of 127.0.0.1
	Host   string // under which the server reaches Listen by https, where something with a certificate passes it on
}

// Message is what someone sends.
type Message struct {
	Way      string
	Agent    string
	From     string // name of the sender; empty = alice
	Subject  string // of a mail
	Text     string
	Language string // BCP 47, of mentions and mails
	Files    []peer.File
	Fault    string // one of Faults; empty = none

	Token    string // of a task or a chat
	Continue *Sent  // the message whose conversation goes on; nil = a new one
}

// Sent is a message that was offered to the server.
type Sent struct {
	*peer.Sent

	From string // address of the sender, as the server should see it
	Note string // what keeps a proof from being checked, for people; empty = nothing that is known

	answered string // id of the answer, once the peer has it
}

// Received returns the answer that came to the sender so far.
func (s *Sent) Received() (peer.Received, bool, error) {
	got, came, err := s.Sent.Received()
	if came {
		s.answered = got.ID
	}
	return got, came, err
}

// Network is where simulated senders live. Its methods are for one goroutine.
type Network struct {
	server  Server
	options Options

	fediverse map[string]*peer.Fediverse // by name of the account
	mail      map[string]*peer.Mail      // by name and fault
	note      map[*peer.Mail]string
	callers   []*peer.Caller
	sent      []*Sent
}

// New makes a network; peers begin with their first message.
func New(server Server, options Options) *Network {
	return &Network{
		server: server, options: options,
		fediverse: map[string]*peer.Fediverse{}, mail: map[string]*peer.Mail{}, note: map[*peer.Mail]string{},
	}
}

// Close ends the peers. What the server still has to say to them is lost.
func (n *Network) Close() error {
	var errs []error
	for _, sent := range n.sent {
		sent.Close()
	}
	for _, one := range n.fediverse {
		errs = append(errs, one.Close())
	}
	for _, one := range n.mail {
		errs = append(errs, one.Close())
	}
	for _, one := range n.callers {
		one.Close()
	}
	return errors.Join(errs...)
}

// Send sends a message and returns what the server said. fault.Malformed is a message that cannot be sent, fault.Conflict a server to which
// none of its kind may be sent; fault.Unavailable says that the server cannot be reached.
func (n *Network) Send(ctx context.Context, message Message) (*Sent, error) {
	if message.From == "" {
		message.From = "alice"
	}
	if err := message.check(); err != nil {
		return nil, err
	}

	wire := peer.Message{
		To: "@" + message.Agent + "@" + n.server.Domain, Subject: message.Subject, Text: message.Text, Language: message.Language,
		Files: message.Files, Fault: message.Fault,
	}
	if before := message.Continue; before != nil {
		wire.Follows, wire.Thread = before.Object, before.Thread
		if before.answered != "" {
			wire.Follows = before.answered
		}
	}

	send := map[string]func(context.Context, Message, peer.Message) (*Sent, error){
		Mention: n.mention, Mail: n.mailTo, Task: n.task, Chat: n.chat,
	}[message.Way]
	sent, err := send(ctx, message, wire)
	if err != nil {
		return nil, unsent(err)
	}
	n.sent = append(n.sent, sent)
	return sent, nil
}

// unsent is the error of a message that did not reach the server, unless it says more already.
func unsent(err error) error {
	if _, is := errors.AsType[*fault.Fault](err); is {
		return err
	}
	return fault.Wrap(fault.Unavailable, "the message did not reach the server: "+fault.InWords(err)+"; does it run?", err)
}

func (m Message) check() error {
	size := 0
	for _, file := range m.Files {
		size += len(file.Content)
	}
	switch {
	case !slices.Contains(Ways(), m.Way):
		return fault.InField("channel", "must be one of "+strings.Join(Ways(), ", "))
	case m.Fault != "" && !slices.Contains(Faults(m.Way), m.Fault):
		return fault.InField("fault", "must be one of "+strings.Join(Faults(m.Way), ", "))
	case !identity.ValidAgentName(m.From):
		return fault.InField("from", "must be 1 to 64 of A-Z a-z 0-9 . _ - without a dot at either end")
	case m.Text == "" && len(m.Files) == 0:
		return fault.InField("text", "is missing")
	case len(m.Text) > MaxTextBytes:
		return fault.InField("text", fmt.Sprintf("is over %d KiB", MaxTextBytes>>10))
	case len(m.Files) > MaxFiles || size > MaxFileBytes:
		return fault.InField("files", fmt.Sprintf("are more than %d or over %d MiB together", MaxFiles, MaxFileBytes>>20))
	case m.Language != "" && m.Way != Mention && m.Way != Mail:
		return fault.InField("language", "is said by mentions and mails alone")
	}
	return nil
}

func (n *Network) mention(ctx context.Context, message Message, wire peer.Message) (*Sent, error) {
	account, known := n.fediverse[message.From]
	if !known {
		if len(n.fediverse) >= maxSenders {
			return nil, tooMany()
		}
		listen := n.options.Listen
		if len(n.fediverse) > 0 {
			listen = "" // one port is for one account
		}
		started, err := peer.NewFediverse(peer.FediverseOptions{
			Listen: listen, Host: n.options.Host, User: message.From, Name: displayName(message.From), Client: n.server.HTTP,
		})
		if err != nil {
			return nil, fault.Wrap(fault.Unavailable, "the simulated server cannot start: "+fault.InWords(err), err)
		}
		account, n.fediverse[message.From] = started, started
	}

	wire.Bytes = maxActivity
	sent, err := account.Post(ctx, n.server.PublicURL, wire)
	if err != nil {
		return nil, err
	}
	note := ""
	if !n.server.Private && n.options.Host == "" {
		note = "the server fetches nothing from loopback addresses (federation.allow_private), so it cannot check the signature; give the simulated server a public name with --peer-host"
	}
	return &Sent{Sent: &sent, From: account.Address(), Note: note}, nil
}

func (n *Network) mailTo(ctx context.Context, message Message, wire peer.Message) (*Sent, error) {
	switch {
	case n.server.SMTPAddr == "":
		return nil, fault.New(fault.Conflict, "the server takes no mail: smtp.listen is off")
	case !n.server.Captures:
		return nil, fault.New(fault.Conflict, `the answer to a simulated mail would leave for `+Domain+`: simulate mail where mail.mode = "capture"`)
	}

	key := message.From + " " + message.Fault
	sender, known := n.mail[key]
	if !known {
		if len(n.mail) >= maxSenders {
			return nil, tooMany()
		}
		started, note, err := n.startMail(message)
		if err != nil {
			return nil, fault.Wrap(fault.Unavailable, "the simulated mail domain cannot start: "+fault.InWords(err), err)
		}
		sender, n.mail[key], n.note[started] = started, started, note
	}

	wire.Bytes = n.server.MaxMail
	if wire.Subject == "" && message.Continue == nil {
		wire.Subject = "A simulated mail"
	}
	sent, err := sender.Post(ctx, n.server.SMTPAddr, wire)
	if err != nil {
		return nil, err
	}
	return &Sent{Sent: &sent, From: sender.Address(), Note: n.note[sender]}, nil
}

// startMail starts a mail domain whose name server is the one that the server asks, where that is on loopback and no one else is there.
func (n *Network) startMail(message Message) (started *peer.Mail, note string, err error) {
	options := peer.MailOptions{Domain: Domain, User: message.From, Name: displayName(message.From), Fault: message.Fault}
	if message.Fault != "" { // servers remember records, also those that are not there
		options.Domain = message.Fault + "." + Domain
	}

	host, _, err := net.SplitHostPort(n.server.Resolver)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsLoopback() {
		options.DNS = n.server.Resolver
		for _, other := range n.mail {
			if other.Resolver() == options.DNS {
				options.Beside = other
			}
		}
		if started, err = peer.NewMail(options); err == nil {
			return started, "", nil
		}
		options.DNS, options.Beside = "", nil
	}

	asked := n.server.Resolver
	if asked == "" {
		asked = "that of its system"
	}
	started, err = peer.NewMail(options)
	return started, "the name server that the server asks (" + asked + ") does not know " + options.Domain +
		", so nothing can prove the sender; with dns.resolver at a free loopback address, such as 127.0.0.1:5354, the simulation answers there", err
}

func (n *Network) task(ctx context.Context, message Message, wire peer.Message) (*Sent, error) {
	return n.called(message, func(caller *peer.Caller) (peer.Sent, error) {
		wire.Bytes = n.server.MaxTask
		return caller.Task(ctx, n.server.PublicURL+"/a2a/"+url.PathEscape(message.Agent), wire)
	})
}

func (n *Network) chat(ctx context.Context, message Message, wire peer.Message) (*Sent, error) {
	return n.called(message, func(caller *peer.Caller) (peer.Sent, error) {
		wire.Bytes = n.server.MaxBody
		return caller.Chat(ctx, n.server.PublicURL+"/v1/agent/"+url.PathEscape(message.Agent), wire)
	})
}

func (n *Network) called(message Message, send func(*peer.Caller) (peer.Sent, error)) (*Sent, error) {
	caller := peer.NewCaller(peer.CallerOptions{Token: message.Token, Client: n.server.HTTP})
	n.callers = append(n.callers, caller)
	sent, err := send(caller)
	return &Sent{Sent: &sent, From: TokenPrefix + message.From}, err
}

func tooMany() error {
	return fault.Newf(fault.TooLarge, "a simulation has at most %d senders", maxSenders)
}

func displayName(name string) string {
	first, rest := name[:1], name[1:]
	return strings.ToUpper(first) + rest
}
