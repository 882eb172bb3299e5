package chat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

var callers = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_chat_callers_total",
	Help: "Callers at the chat edge, by outcome (token, signed, guest, closed, unknown, other_agent, error).",
}, []string{"outcome"})

// access checks who calls, whether the caller may write to an agent, and how much it may send.
type access struct {
	*site
	tokens   *bearer.Cache
	decoding chan struct{} // has a place for each large request of a guest that is decoded
}

// caller is who a request is from: the holder of a token, or a guest, who is known by a session alone.
type caller struct {
	token  *exchange.Token // one that the operator made
	signed *signedToken    // one of an issuer, or of an agent elsewhere; it is checked when the agent is known
	from   netip.Addr      // of a guest
}

func (c caller) guest() bool { return c.token == nil && c.signed == nil }

// identify reads the token of a request. Faults: Unauthenticated for a token that is not valid.
func (a *access) identify(r *http.Request) (caller, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 || len(values) == 1 && values[0] == "" {
		return caller{from: httpserver.ClientIP(r)}, nil
	}
	if a.options.Issued != nil && a.options.Issued.Signed(r) {
		return caller{signed: &signedToken{r, map[string]Credential{}}}, nil
	}

	shown := bearer.Of(r)
	if !bearer.WellFormed(shown) || len(values) > 1 {
		callers.WithLabelValues("unknown").Inc()
		return caller{}, badToken()
	}

	token, found, err := a.tokens.Find(r.Context(), shown)
	switch {
	case err != nil:
		callers.WithLabelValues("error").Inc()
		return caller{}, err
	case !found, !token.Valid(time.Now()), token.Scope != exchange.TokenPeer:
		callers.WithLabelValues("unknown").Inc()
		return caller{}, badToken()
	}

	return caller{token: &token}, nil
}

func badToken() error { return fault.New(fault.Unauthenticated, "the bearer token is not valid") }

// admit reports whether the caller may write to an agent at all; its rules are asked later. Faults: Forbidden (agent runtime
// contract, section 6.5: permission fails before the request is looked at), Unauthenticated for a signed token that is not
// good for the agent.
func (a *access) admit(who caller, agent exchange.AgentProfile) error {
	return a.admitTo(scopeSend, who, agent)
}

// admitTo is admit for what needs another scope of a signed token.
func (a *access) admitTo(scope string, who caller, agent exchange.AgentProfile) error {
	switch {
	case who.guest() && !a.options.Guests(agent.Name):
		callers.WithLabelValues("closed").Inc()
		return fault.New(fault.Forbidden, "this agent takes no messages without a bearer token")
	case who.guest():
		callers.WithLabelValues("guest").Inc()
	case who.signed != nil:
		if err := a.issued(who, agent, scope); err != nil {
			return err
		}
		callers.WithLabelValues("signed").Inc()
	case who.token.Agent != "" && !strings.EqualFold(who.token.Agent, agent.Name):
		callers.WithLabelValues("other_agent").Inc()
		return fault.New(fault.Forbidden, "the bearer token is not for this agent")
	default:
		callers.WithLabelValues("token").Inc()
	}
	return nil
}

// sender is what is known of the caller. The holder of a token is the same principal as over A2A; a guest proves nothing
// and has an address that only the holder of the session can have.
func (a *access) sender(who caller, agent exchange.AgentProfile, session string) normalized.Sender {
	switch {
	case who.signed != nil:
		return who.signed.checked[agent.Name].Sender
	case who.token == nil:
		return normalized.Sender{Address: identity.Stated(guestAddress(session, a.options.Domain)), DisplayName: "Guest", AuthMethod: normalized.AuthNone}
	case who.token.Scope == exchange.TokenAdmin:
		return a.operatorSender(*who.token, agent)
	}
	return bearer.Sender(*who.token, agent, a.options.Domain)
}

// guestAddress is made of the session, and the session cannot be read out of it.
func guestAddress(session, domain string) string {
	sum := sha256.Sum256([]byte("inbox chat guest\x00" + session))
	return "@guest-" + hex.EncodeToString(sum[:16]) + "@" + domain
}

// Scopes of signed tokens; they are those of A2A, which open the same for the same callers.
const (
	scopeSend   = "a2a:send"
	scopeRead   = "a2a:read"
	scopeCancel = "a2a:cancel"
)

// Credential is what a signed token proves, and for what it is good.
type Credential struct {
	Sender normalized.Sender
	May    func(scope string) bool
}

// Issued checks signed tokens: access tokens of the issuers that the operator configured, and what agents of other
// servers sign for themselves. Faults: Unauthenticated, Unavailable.
type Issued interface {
	Signed(r *http.Request) bool
	// Credential checks the token for an agent. Address is that of the request as the caller sees it, audiences are names
	// of the agent here.
	Credential(r *http.Request, agent exchange.AgentProfile, address string, audiences ...string) (Credential, error)
	// Challenges return how to authenticate after a refusal; scope is what a token lacked.
	Challenges(agent exchange.AgentProfile, shown bool, scope string, cause error) []string
}

// signedToken is a token that cannot be checked before the agent is known: it is made out to one. It belongs to one
// request and one goroutine.
type signedToken struct {
	request *http.Request
	checked map[string]Credential // by agent: a proof of possession is good once
}

// issued checks the caller's signed token for an agent.
func (a *access) issued(who caller, agent exchange.AgentProfile, scope string) error {
	found, known := who.signed.checked[agent.Name]
	if !known {
		var err error
		r := who.signed.request
		if found, err = a.options.Issued.Credential(r, agent, a.base+r.URL.EscapedPath(), a.audience(agent)); err != nil {
			return a.refusedToken(who, agent, "", err)
		}
		who.signed.checked[agent.Name] = found
	}
	if !found.May(scope) {
		return a.refusedToken(who, agent, scope, fault.New(fault.Forbidden, "the token is not good for this: it lacks the scope "+scope))
	}
	return nil
}

// audience is the name of an agent in the chat (RFC 8707), beside those that it has for A2A.
func (a *access) audience(agent exchange.AgentProfile) string {
	return a.base + "/v1/agent/" + url.PathEscape(agent.Name)
}

// unidentified is a refusal with the challenges of its agent.
type unidentified struct {
	error
	challenges []string
}

// Unwrap returns the fault.
func (u *unidentified) Unwrap() error { return u.error }

func (a *access) refusedToken(who caller, agent exchange.AgentProfile, scope string, err error) error {
	if !fault.Is(err, fault.Unauthenticated) && !fault.Is(err, fault.Forbidden) {
		callers.WithLabelValues("error").Inc()
		return err
	}
	callers.WithLabelValues("unknown").Inc()
	return &unidentified{err, a.options.Issued.Challenges(agent, who.signed != nil, scope, err)}
}

// readBody takes the whole body: it is the original that is stored with the message. Pages of strangers can make a
// browser send other media types without asking us first (Fetch standard, CORS-safelisted request headers), so only JSON
// is read.
func (a *access) readBody(r *http.Request, who caller) ([]byte, error) {
	return a.readBodyUpTo(r, who, contract.MaxInputBytes, httpserver.ReadBody)
}

// readFiles takes the whole body of a request that may carry files. done says that it is decoded and stored.
func (a *access) readFiles(r *http.Request, who caller) (body []byte, done func(), err error) {
	done = func() {}
	body, err = a.readBodyUpTo(r, who, a.options.MaxRequestBytes, func(r *http.Request, limit int64) (body []byte, err error) {
		if !who.guest() || r.ContentLength >= 0 && r.ContentLength < largeRequest {
			return httpserver.ReadBody(r, limit)
		}
		body, done, err = a.readInTurn(r, limit)
		return body, err
	})
	if err != nil && done != nil {
		done()
	}
	return body, done, err
}

// requestText is the room that a request has beside its files, which are base64 in it.
const requestText = 256 << 10

// requestOf returns the size of a request that carries so many bytes of files; filesOf is its inverse.
func requestOf(files int64) int64 { return files/3*4 + 4 + requestText }
func filesOf(request int64) int64 { return max(0, request-requestText-4) / 4 * 3 }

// guestRequest is the largest request of a caller who proves nothing.
func (o *Options) guestRequest() int64 {
	if most := o.GuestBytes(); most > 0 && most < o.MaxRequestBytes {
		return min(requestOf(most), o.MaxRequestBytes)
	}
	return o.MaxRequestBytes
}

// mostFiles is what the files of one message may measure together.
func (o *Options) mostFiles(guest bool) int64 {
	if guest {
		return filesOf(o.guestRequest())
	}
	return filesOf(o.MaxRequestBytes)
}

// maxBodyValues bounds the members and items of a request: 8 MiB of empty objects would take half a gigabyte to decode.
const maxBodyValues = 100_000

func (a *access) readBodyUpTo(r *http.Request, who caller, limit int64, read func(r *http.Request, limit int64) ([]byte, error)) ([]byte, error) {
	switch {
	case who.token != nil:
		httpserver.Proven(r)
	case who.guest() && !slices.ContainsFunc(a.options.Directory.Agents(), func(agent exchange.AgentProfile) bool { return a.options.Guests(agent.Name) }):
		callers.WithLabelValues("closed").Inc()
		return nil, fault.New(fault.Forbidden, "no agent here takes messages without a bearer token")
	case who.guest():
		limit = min(limit, a.options.guestRequest())
	}

	if declared := r.Header.Get("Content-Type"); declared != "" {
		if mediaType, _, err := mime.ParseMediaType(declared); err != nil || mediaType != "application/json" {
			return nil, fault.New(fault.Unsupported, "Content-Type must be application/json")
		}
	} else if r.Header.Get("Origin") != "" {
		return nil, fault.New(fault.Unsupported, "Content-Type must be application/json")
	}

	body, err := read(r, limit)
	if fault.Is(err, fault.TooLarge) {
		return nil, tooLarge(limit, who.guest())
	}
	if err != nil {
		return nil, err
	}
	return body, httpserver.RefuseCostly(body, maxBodyValues)
}

// readInTurn waits for one of the places in which large requests of guests are decoded, with the request in a file: many that arrive at
// the same time would need hundreds of megabytes of memory. A place is taken after the last byte, so that a slow sender keeps it from no one. done frees it.
func (a *access) readInTurn(r *http.Request, limit int64) (body []byte, done func(), err error) {
	file, err := httpserver.SpoolBody(r, a.options.Spool, limit)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()

	select {
	case a.decoding <- struct{}{}:
	case <-r.Context().Done():
		return nil, nil, fault.Wrap(fault.Unavailable, "too many large messages are being read at the same time: try again later", context.Cause(r.Context()))
	}
	info, err := file.Stat()
	if err == nil {
		body = make([]byte, info.Size())
		_, err = io.ReadFull(file, body)
	}
	if err != nil {
		<-a.decoding
		return nil, nil, fmt.Errorf("read a request from its file: %w", err)
	}
	return body, func() { <-a.decoding }, nil
}

const (
	// largeRequest is the size from which at most atATime requests of guests are in memory together. Decoding 7 MiB takes about 50 MiB.
	largeRequest = 512 << 10
	atATime      = 1
)

// tooLarge names the limit, and for a guest that a token has another one.
func tooLarge(limit int64, guest bool) error {
	size := fmt.Sprintf("%d MiB", limit>>20)
	if limit%(1<<20) != 0 {
		size = fmt.Sprintf("%d KiB", limit>>10)
	}
	if guest {
		return fault.Newf(fault.TooLarge, "the request is over %s, which is the most that a guest may send", size)
	}
	return fault.Newf(fault.TooLarge, "the request is over %s", size)
}
