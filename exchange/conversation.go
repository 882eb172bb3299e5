package exchange

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Audience is whom a message was meant for beside its sender and its agent. The history of a party is made of the turns whose
// audience has the party; nothing else opens them.
type Audience struct {
	// Open means that everyone who can reach the conversation may read the message: it was posted publicly, or said in a room whose
	// program decides who is in it.
	Open bool
	// Parties are the principals (normalized.Sender.Principal) that the addressed people have once they prove themselves. They are
	// whom the sender addressed, and become a party by their own proof alone.
	Parties []string
}

// Has reports whether a party may see the message: its sender may, whom it was meant for may, and everyone may where it is open.
func (a Audience) Has(sender, principal string) bool {
	return a.Open || sender == principal || slices.Contains(a.Parties, principal)
}

// MaxParties bounds Audience.Parties; more are left out, and are no party.
const MaxParties = 100

var conversationEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ConversationName is what a peer calls one of its conversations: the Message-ID of a mail, the context of an A2A client, the session of
// a chat. The name counts only for its owner on its channel with its agent, so no one enters a conversation by knowing what another
// calls it.
type ConversationName struct {
	Channel string
	Agent   string
	Owner   string // the principal whose name it is; empty = a public thread has the name from its server
	Carrier string // the caller that brings what the owner says, where that is another one (normalized.Sender.Carried)
	Name    string
}

// ID returns our id of the conversation. It needs no row, so that two messages which begin a conversation at the same time are in one.
func (n ConversationName) ID() string {
	fields := []string{"conversation", n.Channel, strings.ToLower(n.Agent), n.Owner, n.Name}
	if n.Carrier != "" {
		fields = append(fields, n.Carrier)
	}

	hash := sha256.New()
	for _, text := range fields { // lengths keep the fields apart
		hash.Write(binary.AppendUvarint(nil, uint64(len(text))))
		hash.Write([]byte(text))
	}
	return idPrefix + conversationEncoding.EncodeToString(hash.Sum(nil)[:16])
}

const idPrefix = "c-"

// IsConversationID reports whether the id of a thread is one of ours: those from before may have any other form.
func IsConversationID(threadID string) bool { return strings.HasPrefix(threadID, idPrefix) }

// ConversationID is ConversationName.ID of a conversation without a carrier.
func ConversationID(channel, agent, owner, name string) string {
	return ConversationName{Channel: channel, Agent: agent, Owner: owner, Name: name}.ID()
}

// Conversations finds the conversation that its owner calls by a name.
type Conversations interface {
	// Conversation returns ConversationName.ID, or the id of a conversation that began before ids were made of names.
	Conversation(ctx context.Context, name ConversationName) (string, error)
}

// ByName finds conversations where none is from before ids were made of names.
type ByName struct{}

// Conversation implements Conversations.
func (ByName) Conversation(_ context.Context, name ConversationName) (string, error) {
	return name.ID(), nil
}

// ConversationOwner is to whom the names that a channel makes up for its clients belong.
type ConversationOwner struct {
	Kind      string // of the names; those of two channels differ in it
	Agent     string
	Principal string
}

const (
	uuidLength = 36
	tagLength  = 16
)

// MintName makes up a name of a conversation for an owner who gave none: a UUIDv7 and a tag of the owner. The tag opens nothing; by it
// a client that brings a name of someone else is told that it has no such conversation, see MayName.
func (o ConversationOwner) MintName() string {
	id := uuid.Must(uuid.NewV7()).String()
	return id + "." + o.tag(id)
}

// MayName reports whether the owner may call a conversation by the name: it was not made up for another owner.
func (o ConversationOwner) MayName(name string) bool {
	id, tag, minted := splitName(name)
	return !minted || tag == o.tag(id)
}

// IsMinted reports whether a name has the form of those that MintName makes.
func IsMinted(name string) bool {
	_, _, minted := splitName(name)
	return minted
}

func splitName(name string) (id, tag string, minted bool) {
	if len(name) != uuidLength+1+tagLength || name[uuidLength] != '.' {
		return "", "", false
	}
	parsed, err := uuid.Parse(name[:uuidLength])
	return name[:uuidLength], name[uuidLength+1:], err == nil && parsed.Version() == 7
}

func (o ConversationOwner) tag(id string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{o.Kind, o.Agent, o.Principal, id}, "\x00")))
	return hex.EncodeToString(sum[:])[:tagLength]
}

// MessageAudience is whom one message of a conversation was meant for.
type MessageAudience struct {
	TurnID    string
	Principal string // of its sender
	Address   string // of its sender, as stated
	Audience  Audience
	Shared    bool // its sender's other conversations with the agent have it as history, and those of linked addresses
}
