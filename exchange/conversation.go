package exchange

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"slices"
	"strings"
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

// ConversationID returns our id of a conversation that a peer knows by a name: a Message-ID, a context, a session. The name counts
// only for its owner on its channel with its agent, so no one enters a conversation by knowing what another calls it. Owner is the
// principal whose name it is; empty for a name that a public thread has from its server.
func ConversationID(channel, agent, owner, name string) string {
	hash := sha256.New()
	for _, text := range []string{"conversation", channel, strings.ToLower(agent), owner, name} { // lengths keep the fields apart
		hash.Write(binary.AppendUvarint(nil, uint64(len(text))))
		hash.Write([]byte(text))
	}
	return "c-" + conversationEncoding.EncodeToString(hash.Sum(nil)[:16])
}

// MessageAudience is whom one message of a conversation was meant for.
type MessageAudience struct {
	TurnID    string
	Principal string // of its sender
	Address   string // of its sender, as stated
	Audience  Audience
}
