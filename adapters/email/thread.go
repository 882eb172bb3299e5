package email

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/normalized"
)

const (
	maxLookups = 20
)

// parentage is what a mail says about the mails before it.
type parentage struct {
	parent     string // In-Reply-To when it is exactly one id
	references []string
}

func parentsOf(fields message.Header) parentage {
	var p parentage
	if ids := message.IDs(fields.Get("In-Reply-To")); len(ids) == 1 {
		p.parent = ids[0]
	}
	p.references = message.IDs(fields.Get("References"))
	return p
}

// thread decides which conversation a mail belongs to. It joins a known one only when its sender took part in the
// message that it refers to, and with no weaker proof than that message had: message ids travel in plain sight, and
// a conversation's history goes to all who are in it.
//
// An unknown root named by a proven sender makes a thread of its own per sender: "root/sender". So a conversation
// that started before the agent was copied in holds together, and no one enters that of others by naming its root.
//
// parent is the note of the message that the mail answers, empty where it joins no known conversation.
func (i *inbox) thread(ctx context.Context, mail *arrival, to recipient, id string) (threadID string, parent route, err error) {
	parents := parentsOf(mail.fields)
	known, found, err := i.findParent(ctx, to.agent, parents)
	if err == nil && !found && to.answered != "" {
		known, found, err = i.findMail(ctx, to.agent, to.answered+"@"+i.domain)
	}
	if err != nil {
		return "", route{}, err
	}

	if found {
		if notes, ok := readRoute(known.Route); ok && mayJoin(mail.sender, known.Message, notes) {
			return known.ThreadID, notes, nil
		}
		return id, route{}, nil
	}

	if len(parents.references) > 0 && mail.sender.verified() {
		return parents.references[0] + "/" + mail.sender.from.Key(), route{}, nil
	}

	return id, route{}, nil
}

// findParent looks for the message that is answered: In-Reply-To, then References from the last to the first.
func (i *inbox) findParent(ctx context.Context, agent string, parents parentage) (exchange.ThreadEntry, bool, error) {
	candidates := make([]string, 0, maxLookups)
	if parents.parent != "" {
		candidates = append(candidates, parents.parent)
	}

	for i := len(parents.references) - 1; i >= 0 && len(candidates) < maxLookups; i-- {
		if parents.references[i] != parents.parent {
			candidates = append(candidates, parents.references[i])
		}
	}

	for _, id := range candidates {
		if entry, found, err := i.findMail(ctx, agent, id); found || err != nil {
			return entry, found, err
		}
	}

	return exchange.ThreadEntry{}, false, nil
}

// findMail finds a mail by its id, or the mail that was answered with it.
func (i *inbox) findMail(ctx context.Context, agent, id string) (exchange.ThreadEntry, bool, error) {
	entry, found, err := i.options.Threads.FindMessage(ctx, agent, id)
	if err != nil {
		return exchange.ThreadEntry{}, false, fmt.Errorf("find parent mail: %w", err)
	}
	return entry, found && entry.Message.ReceivedVia == normalized.ViaEmail, nil
}

func mayJoin(sender verdict, known normalized.Message, notes route) bool {
	if known.Sender.Verified && !sender.verified() {
		return false
	}

	key := sender.from.Key()
	if strings.EqualFold(known.Sender.Address, "@"+key) {
		return true
	}

	for _, box := range append(append([]message.Mailbox{}, notes.To...), notes.Cc...) {
		if box.Key() == key {
			return true
		}
	}

	return false
}

// route is the adapter's own note on how to answer; it is stored with the message.
type route struct {
	Version     int               `json:"v"`
	Local       string            `json:"local"` // the agent's local part as addressed
	Tag         string            `json:"tag,omitempty"`
	From        message.Mailbox   `json:"from"`
	ReplyTo     *message.Mailbox  `json:"reply_to,omitempty"`     // only when it may be used
	ReplySigned bool              `json:"reply_signed,omitempty"` // ReplyTo is covered by the aligned signature of a verified mail
	To          []message.Mailbox `json:"to,omitempty"`           // without ourselves
	Cc          []message.Mailbox `json:"cc,omitempty"`
	Subject     string            `json:"subject,omitempty"`
	MessageID   string            `json:"message_id,omitempty"` // empty when the mail had none that can be referred to
	References  []string          `json:"references,omitempty"`
	Topic       string            `json:"topic,omitempty"` // Thread-Topic of Outlook
	Index       string            `json:"index,omitempty"` // Thread-Index of Outlook
	Lists       []string          `json:"lists,omitempty"` // addresses of the mailing list that it came through; nothing is sent there
	Verified    bool              `json:"verified"`
	Body        string            `json:"body,omitempty"`       // digest of the body, to tell another mail with the same id from a repeat
	Opened      bool              `json:"opened,omitempty"`     // we write first: there is no mail that is answered
	Forward     bool              `json:"forward,omitempty"`    // a mail to a role address is sent on
	ReplyAll    bool              `json:"reply_all,omitempty"`  // the answer goes to To and Cc as well, where it may
	Unfollowed  string            `json:"unfollowed,omitempty"` // a Reply-To that is not written to
}

func readRoute(raw json.RawMessage) (route, bool) {
	var notes route
	err := json.Unmarshal(raw, &notes)
	return notes, err == nil && notes.Version == 1
}

// answerOf returns when the answer of ours was made to which a mail answers: our ids tell their time. Zero = it answers none
// of ours.
func (i *inbox) answerOf(fields message.Header) time.Time {
	replyID, domain := ReplyIDOf(parentsOf(fields).parent)
	id, err := uuid.Parse(replyID)
	if err != nil || id.Version() != 7 || !strings.EqualFold(domain, i.domain) {
		return time.Time{}
	}
	return time.Unix(id.Time().UnixTime())
}

const (
	indexHead   = 22 // bytes of the conversation: 1 reserved, 5 of the time, 16 of an id
	indexChild  = 5  // bytes of each answer
	maxChildren = 100
)

// fileTime counts 100 ns since 1601, as Windows does.
func fileTime(t time.Time) uint64 {
	const epoch = 116444736000000000
	if t.Unix() < 0 {
		return epoch
	}
	return uint64(t.UnixNano()/100) + epoch
}

// threadIndexOf returns the field as it is kept: without the white space that folding leaves, and nothing that is no index.
func threadIndexOf(fields message.Header) string {
	value := strings.Join(strings.Fields(fields.Get("Thread-Index")), "")
	if answerIndex(value, time.Time{}) == "" {
		return ""
	}
	return value
}

// answerIndex is the Thread-Index of an answer to a mail of Outlook: that of the mail and one child more, whose time is
// counted from the beginning of the conversation ([MS-OXOMSG], section 2.2.1.3). Empty when the mail has none that can be
// read.
func answerIndex(parent string, at time.Time) string {
	raw, err := base64.StdEncoding.DecodeString(parent)
	if err != nil || len(raw) < indexHead || (len(raw)-indexHead)%indexChild != 0 || len(raw) > indexHead+maxChildren*indexChild {
		return ""
	}

	var start [8]byte
	copy(start[:6], raw[:6])
	begun, now := binary.BigEndian.Uint64(start[:]), fileTime(at)
	if now < begun {
		now = begun
	}

	delta, far := now-begun, uint32(0)
	if delta>>49 == 0 {
		delta >>= 18
	} else {
		delta, far = delta>>23, 1
	}

	child := make([]byte, indexChild) // the last byte is random elsewhere; a repeat must have the same bytes
	binary.BigEndian.PutUint32(child, far<<31|uint32(delta&0x7fffffff))
	return base64.StdEncoding.EncodeToString(append(raw, child...))
}
