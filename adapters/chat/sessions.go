package chat

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"inbox/adapters/chat/contract"
	"inbox/internal/fault"
)

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

func sessionNotFound() error { return fault.New(fault.NotFound, "the session was not found") }

// guestSession returns the session of a guest. One that others could guess opens nothing, and neither does none: then the
// guest gets a session of its own, which the answer names. It is made of the run's id when that is a random UUID, so that
// the repeat of a first message is recognised.
func guestSession(asked string, handles ...string) (string, error) {
	if isGuestSession(asked) || isRandomUUID(asked) {
		return asked, nil
	}
	if _, _, minted := splitMinted(asked); minted {
		return "", sessionNotFound()
	}
	for _, handle := range handles {
		if isRandomUUID(handle) {
			sum := sha256.Sum256([]byte("inbox chat session\x00" + strings.ToLower(handle)))
			return guestPrefix + base64.RawURLEncoding.EncodeToString(sum[:]), nil
		}
	}
	secret := make([]byte, guestBytes)
	_, _ = rand.Read(secret) // never fails since Go 1.24
	return guestPrefix + base64.RawURLEncoding.EncodeToString(secret), nil
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
// minted for somebody else, or is a guest's, is not found.
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

// thread is the structured key of connector, conversation and agent. The owner is in it, so that one name that two
// principals chose is two threads, and a guest's secret cannot be read out of it.
func (o owner) thread(session string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{"chat thread", o.agent, o.principal, session}, "\x00")))
	return connectorName + ":" + hex.EncodeToString(sum[:16]) + ":" + o.agent
}

func splitMinted(session string) (id, tag string, minted bool) {
	if len(session) != uuidLength+1+tagLength || session[uuidLength] != '.' || !isRandomUUID(session[:uuidLength]) {
		return "", "", false
	}
	return session[:uuidLength], session[uuidLength+1:], true
}

// serveForget is DELETE /v1/chat?agent=…: it ends what runs in the session of the header Chat-Session and removes what was
// said in it. 204 means that it is gone.
func (a *Adapter) serveForget(w http.ResponseWriter, r *http.Request) error {
	who, err := a.identify(r)
	if err != nil {
		return err
	}
	agent, known := a.agent(r.URL.Query().Get("agent"))
	if !known {
		return noAgent()
	}
	if err := a.admitTo(scopeCancel, who, agent); err != nil {
		return err
	}
	q := question{agent: agent, who: who, input: contract.Input{SessionID: sessionOf(r)}}
	if err := a.forget(r.Context(), q); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// forget leaves the session's own row to the end, and is done again by the same request when it was cut off.
func (a *Adapter) forget(ctx context.Context, q question) error {
	if q.input.SessionID == "" {
		return sessionNotFound()
	}
	session, owned, err := a.place(q)
	if err != nil {
		return err
	}
	_, unknown := a.stop(ctx, q, "")
	if unknown != nil && !fault.Is(unknown, fault.NotFound) {
		return unknown
	}
	if _, err := a.options.Memory.ForgetThread(ctx, owned.agent, owned.thread(session)); err != nil {
		return err
	}
	err = a.options.Memory.DeleteSession(ctx, owned.principal, session)
	if fault.Is(err, fault.NotFound) { // guests have no row
		return unknown
	}
	return err
}
