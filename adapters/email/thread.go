package email

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

const (
	maxLookups = 20
)

// parentage is what a mail says about the mails before it, as far as its author said so.
type parentage struct {
	parent     string // In-Reply-To when it is exactly one id
	references []string
}

// parentsOf reads In-Reply-To and References. Some mail programs write References alone, which end with the mail that is answered (RFC 5322,
// section 3.6.4).
func (i *inbox) parentsOf(mail *arrival) parentage {
	var p parentage
	if mail.counts("references") {
		p.references = message.IDs(mail.fields.Get("References"))
	}

	switch ids := message.IDs(mail.fields.Get("In-Reply-To")); {
	case !mail.counts("in-reply-to"):
	case len(ids) == 1:
		p.parent = ids[0]
	case !mail.fields.Has("In-Reply-To") && len(p.references) > 0:
		if last := p.references[len(p.references)-1]; !i.answeredAt(last).IsZero() {
			p.parent = last
		}
	}
	return p
}

// conversation is where a mail belongs.
type conversation struct {
	id     string
	parent route // the note of the message that the mail answers; empty if the mail joins no known conversation
	begins bool  // the mail is the first one of the conversation
	known  bool  // the mail joins a conversation of its sender

	chain   string // see exchange.Inbound.Chain
	astray  bool   // see exchange.Inbound.Astray
	answers string // the Message-ID of our mail that is answered, where the mail knows it by another id; empty = it does not
}

// thread decides which conversation a mail belongs to: that of the mail it answers, if its sender wrote that one or was addressed
// in it, otherwise one of the sender's own. Message ids travel in plain sight, so that the id of a mail opens nothing, and a field that
// others may have written names no conversation of the author.
//
// A conversation that began before the agent was copied in holds together by its root: the name that the sender gives it.
func (i *inbox) thread(ctx context.Context, mail *arrival, to recipient, parents parentage, sender normalized.Sender, id string) (conversation, error) {
	candidates := parents.ids()
	if to.answered != "" && i.namesTag(mail, to) {
		candidates = append(candidates, to.answered+"@"+i.domain)
	}

	found, err := i.continued(ctx, to, sender, candidates)
	if err != nil || found.known {
		return found, err
	}
	own, err := i.relayed(ctx, candidates)
	if err != nil {
		return conversation{}, err
	}
	if len(own) > 0 {
		if found, err = i.continued(ctx, to, sender, own); err != nil || found.known {
			found.answers = own[0]
			return found, err
		}
	}

	root := id
	switch {
	case len(parents.references) > 0:
		root = parents.references[0]
	case !mail.counts("message-id"):
		root = digestOf(mail.mail) + "@" + i.domain
	}
	chain, astray, err := i.chain(ctx, mail, to, append(slices.Clone(candidates), own...))
	if err != nil {
		return conversation{}, err
	}
	return conversation{
		chain: chain, astray: astray,
		id: exchange.ConversationID(ChannelName, to.agent, sender.Principal(), root), begins: len(parents.references) == 0 || root == id,
	}, nil
}

// continued finds the conversation that one of the ids belongs to and that the sender is party to.
func (i *inbox) continued(ctx context.Context, to recipient, sender normalized.Sender, ids []string) (conversation, error) {
	for _, name := range sender.Names() {
		known, found, err := i.options.Threads.ContinuedMessage(ctx, to.agent, ChannelName, name, ids)
		if err != nil {
			return conversation{}, fmt.Errorf("find parent mail: %w", err)
		}
		if found {
			notes, _ := readRoute(known.Route)
			return conversation{id: known.ThreadID, parent: notes, chain: notes.Chain, known: true}, nil
		}
	}
	return conversation{}, nil
}

// chain returns what led to a mail that joins no conversation of its sender (decision 0187): the conversation in which we wrote the answer that it answers, whichever sender
// asked there, or for a reply that names no mail of ours its subject, in the sender's domain. A program that writes from a new address each time is
// recognised by it. Only a mail that names an answer of ours costs a look-up.
func (i *inbox) chain(ctx context.Context, mail *arrival, to recipient, ids []string) (chain string, astray bool, err error) {
	for _, id := range ids {
		if i.answeredAt(id).IsZero() {
			continue
		}
		known, found, err := i.options.Threads.RepliedMessage(ctx, to.agent, ChannelName, id)
		if err != nil {
			return "", false, fmt.Errorf("find the mail that was answered with %s: %w", id, err)
		}
		if found {
			notes, _ := readRoute(known.Route)
			return cmp.Or(notes.Chain, known.ThreadID), true, nil
		}
	}

	subject := mail.subject()
	base := message.BaseSubject(subject)
	if base == "" || base == strings.TrimSpace(subject) && len(ids) == 0 {
		return "", false, nil
	}
	sum := sha256.Sum256([]byte(identity.RegistrableDomain(mail.sender.from.Domain) + "\n" + strings.ToLower(base)))
	return "subject " + hex.EncodeToString(sum[:16]), false, nil
}

// unprovenChain begins the chains of mails that nothing proves.
const unprovenChain = "unproven "

// countedChain returns the chain by which a mail is counted. Anyone can state an address, so unproven mails use up a limit of their own and not that
// of proven senders.
func countedChain(mail *arrival, chain string) string {
	chain = strings.TrimPrefix(chain, unprovenChain)
	if chain == "" || mail.sender.verified() {
		return chain
	}
	return unprovenChain + chain
}

// namesTag reports whether the author wrote to the address with the thread tag. The envelope alone says that only if it is the author's.
func (i *inbox) namesTag(mail *arrival, to recipient) bool {
	if !mail.sender.verified() || mail.sender.addressing.direct {
		return true
	}
	return slices.ContainsFunc(slices.Concat(mail.addresses("To"), mail.addresses("Cc")), func(box message.Mailbox) bool {
		local, tag := splitTag(box.Local)
		return box.Domain == i.domain && local == to.local && i.recipients.answeredReply(local, tag) == to.answered
	})
}

// ids are those of the mails before, nearest first: In-Reply-To, then References from the last to the first.
func (p parentage) ids() []string {
	list := make([]string, 0, maxLookups)
	if p.parent != "" {
		list = append(list, p.parent)
	}
	for i := len(p.references) - 1; i >= 0 && len(list) < maxLookups; i-- {
		if p.references[i] != p.parent {
			list = append(list, p.references[i])
		}
	}
	return list
}

// audience names the other people of a proven mail as they will be known when they prove themselves, and the sender in the common case. Who else is in a mail that no one
// vouches for is hearsay.
func (i *inbox) audience(sender normalized.Sender, notes route) (who exchange.Audience) {
	if len(sender.Identities) == 0 {
		return who
	}
	who.Parties = sender.Names()[1:]
	for _, box := range slices.Concat(notes.To, notes.Cc) {
		if len(who.Parties) < exchange.MaxParties {
			who.Parties = append(who.Parties, principalsOf(i.options.Domain, box)...)
		}
	}
	return who
}

// principalsOf are those that a mailbox has once it is proven, see verifier.evidence: people write the case of an address as they like.
func principalsOf(domain string, box message.Mailbox) []string {
	written := domain + " " + subjectOf(box)
	if folded := domain + " mailto:" + box.Key(); folded != written {
		return []string{written, folded}
	}
	return []string{written}
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
	Chain       string            `json:"chain,omitempty"`      // see exchange.Inbound.Chain
	Marks       []string          `json:"marks,omitempty"`      // weak marks of automatic mail that all mails of the sender may have
}

func readRoute(raw json.RawMessage) (route, bool) {
	var notes route
	err := json.Unmarshal(raw, &notes)
	return notes, err == nil && notes.Version == 1
}

// answeredAt returns when we sent the answer with this Message-ID, which contains the time. Zero = the answer is not ours.
func (i *inbox) answeredAt(messageID string) time.Time {
	replyID, domain := ReplyIDOf(messageID)
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
