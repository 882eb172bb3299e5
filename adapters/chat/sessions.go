package chat

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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

// A session of a guest is a secret that opens it: guestPrefix and 32 random bytes, or a random UUID of the client's own
// making. The session of a token holder opens nothing without the token: a UUIDv7 and a tag of its owner.
const (
	guestPrefix   = "guest-"
	guestBytes    = 32
	uuidLength    = 36
	tagLength     = 16
	maxSession    = 512
	connectorName = "chat"
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
	if _, _, minted := splitMinted(asked); minted {
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
		id := uuid.Must(uuid.NewV7()).String()
		return id + "." + o.tag(id), nil
	}
	if id, tag, minted := splitMinted(asked); minted && tag != o.tag(id) || isGuestSession(asked) {
		return "", sessionNotFound()
	}
	return asked, nil
}

func (o owner) tag(id string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{"chat session", o.agent, o.principal, id}, "\x00")))
	return hex.EncodeToString(sum[:])[:tagLength]
}

func splitMinted(session string) (id, tag string, minted bool) {
	if len(session) != uuidLength+1+tagLength || session[uuidLength] != '.' || !isRandomUUID(session[:uuidLength]) {
		return "", "", false
	}
	return session[:uuidLength], session[uuidLength+1:], true
}

// thread is the structured key of connector, conversation and agent. The owner is in it, so that one name that two
// principals chose is two threads, and a guest's secret cannot be read out of it.
func (o owner) thread(session string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{"chat thread", o.agent, o.principal, session}, "\x00")))
	return connectorName + ":" + hex.EncodeToString(sum[:16]) + ":" + o.agent
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

	turns, err := s.options.Turns.Turns(ctx, exchange.TurnFilter{
		Agent: owned.agent, Principal: owned.principal, ThreadID: owned.thread(session), ReceivedVia: normalized.ViaA2A, ByArrival: true, Limit: limit,
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
