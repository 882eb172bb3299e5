package chat

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/capability"
	"inbox/internal/fault"
	"inbox/normalized"
)

// sessions knows to whom a session belongs, and what was said in it.
type sessions struct {
	*site
	access *access
}

// A session of a guest is a secret that proves who it is: guestPrefix and 32 random bytes, or a random UUID of the client's own
// making. The session of a token holder is a name that opens nothing without the token.
const (
	guestPrefix = "guest-"
	guestBytes  = 32
	uuidLength  = 36
	maxSession  = 512
)

// owner is the pair to which a session belongs.
type owner struct{ agent, principal string }

// place returns the session of a question and whose it is.
func (s *sessions) place(q question) (session string, owned owner, err error) {
	asked := q.input.SessionID
	if len(asked) > maxSession {
		return "", owner{}, sessionNotFound()
	}

	owned.agent = q.agent.Name
	if q.who.guest() {
		session, err = guestSession(s.options.Secret, asked, q.input.RunID, q.messageID)
		owned.principal = s.access.sender(q.who, q.agent, session).Principal()
		return session, owned, err
	}

	owned.principal = s.access.sender(q.who, q.agent, "").Principal()
	session, err = owned.session(asked)
	return session, owned, err
}

func sessionNotFound() error { return fault.New(fault.NotFound, "the session was not found") }

// guestSession returns the session of a guest. One that others could guess opens nothing, and neither does none: then the
// guest gets a session of its own, which the answer names. It follows from the run's id when that is a random UUID, so that
// the repeat of a first message is recognised. It follows from our key, too: agents and operators see ids of runs, and the session
// opens the conversation to its holder.
func guestSession(key []byte, asked string, handles ...string) (string, error) {
	if isGuestSession(asked) || isRandomUUID(asked) {
		return asked, nil
	}
	if exchange.IsMinted(asked) {
		return "", sessionNotFound()
	}

	for _, handle := range handles {
		if isRandomUUID(handle) {
			return guestPrefix + capability.Mint(key, capability.Claim{Purpose: "session of a guest", Who: strings.ToLower(handle), Form: capability.Long}), nil
		}
	}

	return guestPrefix + capability.Draw(capability.Long), nil
}

func isGuestSession(text string) bool {
	encoded, is := strings.CutPrefix(text, guestPrefix)
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	return is && err == nil && len(decoded) == guestBytes
}

// isRandomUUID takes the versions with 74 random bits and more (RFC 9562, sections 5.4 and 5.7).
func isRandomUUID(text string) bool {
	parsed, err := uuid.Parse(text)
	return err == nil && len(text) == uuidLength && (parsed.Version() == 4 || parsed.Version() == 7)
}

// session returns the session of a token holder: a new one, one that it invented, or one that was minted for it. What was
// minted for another owner, or is a guest's, is not found.
func (o owner) session(asked string) (string, error) {
	if asked == "" {
		return o.names().MintName(), nil
	}
	if !o.names().MayName(asked) || isGuestSession(asked) {
		return "", sessionNotFound()
	}
	return asked, nil
}

// names are those of the sessions that we make up for the owner.
func (o owner) names() exchange.ConversationOwner {
	return exchange.ConversationOwner{Kind: "chat session", Agent: o.agent, Principal: o.principal}
}

// conversation names the conversation of a session.
func (o owner) conversation(session string) exchange.ConversationName {
	return exchange.ConversationName{Channel: ChannelName, Agent: o.agent, Owner: o.principal, Name: session}
}

// turnsOf returns the newest turns of a session; NotFound where there is none.
func (s *sessions) turnsOf(ctx context.Context, q question, limit int) ([]exchange.TurnRecord, error) {
	if q.input.SessionID == "" {
		return nil, sessionNotFound()
	}

	session, owned, err := s.place(q)
	if err != nil {
		return nil, err
	}

	thread, err := s.options.Conversations.Conversation(ctx, owned.conversation(session))
	if err != nil {
		return nil, err
	}

	turns, err := s.options.Turns.Turns(ctx, exchange.TurnFilter{
		Agent: owned.agent, Principal: owned.principal, ThreadID: thread, ReceivedVia: normalized.ViaA2A, ByArrival: true, Limit: limit,
	})
	if err != nil {
		return nil, err
	}

	turns = slices.DeleteFunc(turns, func(turn exchange.TurnRecord) bool { return !routeOf(turn).Chat }) // forgotten
	if len(turns) == 0 {
		return nil, sessionNotFound()
	}

	return turns, nil
}
