package files

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/openapi"
	"inbox/internal/redact"
)

var served = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_agent_files_total", Help: "Requests of agents for the bytes of their messages, by way (address, token, upload) and outcome (served, refused, failed).",
}, []string{"way", "outcome"})

// maxCapability bounds the text of a capability before it is opened; ours have about 200 bytes.
const maxCapability = 1 << 10

// Keys are the addresses that open a file for everyone who has them.
func Keys() []redact.Key { return []redact.Key{{Path: "/v1/files/"}} }

// Routes returns the HTTP face.
func (s *Service) Routes() []httpserver.Route {
	return []httpserver.Route{
		{Method: http.MethodGet, Pattern: "/v1/files/{capability}", Handler: s.counted("address", s.byAddress)},
		{Method: http.MethodPost, Pattern: "/v1/files", Handler: s.counted("upload", s.upload)},
		{Method: http.MethodGet, Pattern: "/v1/turns/{turn}/files/{digest}", Handler: s.counted("token", s.byToken)},
	}
}

// Operations describe the routes.
func Operations() []openapi.Operation {
	return []openapi.Operation{
		{
			Method: "GET", Path: "/v1/files/{capability}", Summary: "Read a file of a message by the address that the message has for it",
			Tag: "files", Headers: []string{"Range"}, Bytes: true, Errors: []int{http.StatusGone},
		},
		{
			Method: "POST", Path: "/v1/files", Summary: "Hand in a file for an answer",
			Tag: "files", Security: "agent", Query: []string{"name"}, Headers: []string{"Content-Digest"}, Request: "", Media: "*/*",
			Response: Upload{}, Status: http.StatusCreated, Errors: []int{http.StatusTooManyRequests},
		},
		{
			Method: "GET", Path: "/v1/turns/{turn}/files/{digest}", Summary: "Read a file of a message, of its history or the native original",
			Tag: "files", Security: "agent", Headers: []string{"Range"}, Bytes: true,
		},
	}
}

func (s *Service) counted(way string, serve func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := serve(w, r)
		outcome := "served"
		switch {
		case fault.Is(err, fault.Unavailable), fault.Is(err, fault.Internal):
			outcome = "failed"
		case err != nil:
			outcome = "refused"
		}

		served.WithLabelValues(way, outcome).Inc()
		if err == nil {
			return
		}

		if fault.Is(err, fault.Unauthenticated) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="files"`)
		}

		httpserver.WriteFault(w, err)
	})
}

// byAddress serves who has the address. What was not sealed here, is for another turn, or has left the message, is not there; one that
// expired says so, because only its holder can know it.
func (s *Service) byAddress(w http.ResponseWriter, r *http.Request) error {
	sealed := httpserver.Param(r, "capability")
	if sealed == "" || len(sealed) > maxCapability {
		return errMissing()
	}

	opened, err := s.options.Open(r.Context(), sealed, purpose)
	if err != nil {
		return errMissing()
	}

	wanted, ok := readCapability(opened)
	if !ok {
		return errMissing()
	}
	if !time.Now().Before(wanted.expires) {
		return fault.New(fault.Gone, "this address has expired: the message has a new one when it is delivered again")
	}

	turn, err := s.options.Turn(r.Context(), wanted.turn)
	if err != nil {
		return missingOr(err)
	}

	found, is := inMessage(turn.Message, wanted.digest)
	if !is {
		return errMissing()
	}

	return s.serve(w, r, found)
}

// byToken serves a program with a token of the turn's agent. A turn of another agent is not there for it.
func (s *Service) byToken(w http.ResponseWriter, r *http.Request) error {
	agent, err := s.agentOf(r)
	if err != nil {
		return err
	}

	turn, err := s.options.Turn(r.Context(), httpserver.Param(r, "turn"))
	if err != nil {
		return missingOr(err)
	}
	if !strings.EqualFold(turn.Agent, agent) {
		return errMissing()
	}

	digest := httpserver.Param(r, "digest")
	found, is := inMessage(turn.Message, digest)
	if !is {
		told, err := s.options.Told(r.Context(), turn)
		if err != nil {
			return missingOr(err)
		}
		if found, is = inMessage(told, digest); !is {
			return errMissing()
		}
	}

	return s.serve(w, r, found)
}

// agentOf returns the agent in whose name the caller acts: by a token that takes its turns or executes its tools.
func (s *Service) agentOf(r *http.Request) (string, error) {
	refused := fault.New(fault.Unauthenticated, "a bearer token of the agent is needed; see: inbox tokens create --help")
	shown := bearer.Of(r)
	if shown == "" {
		return "", refused
	}

	token, found, err := s.tokens.Find(r.Context(), shown)
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, "tokens cannot be checked right now", err)
	}
	if !found || !token.Valid(time.Now()) || token.Agent == "" || token.Scope != exchange.TokenPull && token.Scope != exchange.TokenTools {
		return "", refused
	}
	return token.Agent, nil
}

// missingOr hides what is not there behind one answer, and passes trouble on.
func missingOr(err error) error {
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Malformed) {
		return errMissing()
	}
	return err
}

// serve writes the bytes, whole or the ranges that are asked for, as something to keep: no browser shows a page of a stranger's bytes
// at the address of this server.
func (s *Service) serve(w http.ResponseWriter, r *http.Request, found content) error {
	opened, err := s.open(r.Context(), found)
	if err != nil {
		return missingOr(err)
	}
	defer func() { _ = opened.Close() }() // it was only read

	seekable, is := opened.(io.ReadSeeker)
	if !is {
		return fault.Wrap(fault.Internal, "the file cannot be read", errors.New("the blob store cannot seek"))
	}

	mediaType, parameters, err := mime.ParseMediaType(found.mediaType)
	if err != nil {
		mediaType, parameters = "application/octet-stream", nil
	}

	header := w.Header()
	header.Set("Content-Type", mime.FormatMediaType(mediaType, parameters))
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": found.fileName()}))
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "private, no-store")
	header.Set("ETag", `"`+found.digest+`"`)
	http.ServeContent(w, r, "", time.Time{}, seekable)
	return nil
}

// fileName is a plain name, whatever the sender calls the file.
func (c content) fileName() string {
	switch name := agents.FileName(c.name); {
	case name != "":
		return name
	case c.native:
		return "original"
	}
	return "file"
}
