// Package files opens the bytes of messages to the agents that got them: under addresses that open one content of one turn for a short
// time, and under the token of the agent. There is no directory of anything: a program reads what its message refers to. In the other
// direction it takes files that programs hand in for answers, and lets an answer name these and those of its turn only: a digest is no way
// to bytes of others.
package files

import (
	"bytes"
	"context"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Options configure a Service. All are required.
type Options struct {
	Base  *url.URL       // the public address of the server
	Blobs exchange.Blobs // what is too large for the database

	// Turn returns a turn as it stands, and Told its message with the history that its agent was given. NotFound when there is none.
	Turn func(ctx context.Context, id string) (exchange.TurnRecord, error)
	Told func(ctx context.Context, turn exchange.TurnRecord) (normalized.Message, error)

	// Original returns the native form of a message; the body is nil when it is in Blobs.
	Original func(ctx context.Context, digest string) (mediaType string, body []byte, err error)

	// Seal makes a text of a content that no one else can read or make, and Open reads it again, on each node.
	Seal func(content []byte, purpose string) string
	Open func(ctx context.Context, sealed, purpose string) ([]byte, error)

	// Tokens finds the tokens of programs.
	Tokens exchange.Tokens

	// Holds reports whether content that came in holds a key of this server: such content is not opened.
	Holds func(content io.Reader) (bool, error)

	Uploads Uploads
	// MaxUpload is the largest file that is handed in, and MaxUnused how many bytes one agent may have handed in that no answer has.
	MaxUpload, MaxUnused int64
}

// Uploads are the files that programs handed in. What no answer had for a day is forgotten. Errors are faults.
type Uploads interface {
	// ReserveUpload counts a file that is about to come, and reports whether it fits into most bytes that no answer has.
	ReserveUpload(ctx context.Context, upload exchange.Upload, most int64) (fits bool, err error)
	// FinishUpload notes that the file of a reservation is there.
	FinishUpload(ctx context.Context, id, digest string) error
	// DropUpload releases a reservation whose file did not come.
	DropUpload(ctx context.Context, id string) error
	// Uploaded returns the size of a file that was handed in for an agent.
	Uploaded(ctx context.Context, agent, digest string) (size int64, found bool, err error)
}

// Service has the addresses and the routes. It is safe for concurrent use and runs nothing in the background.
type Service struct {
	options Options
	tokens  *bearer.Cache
}

// New makes a Service.
func New(options Options) *Service {
	return &Service{options: options, tokens: bearer.NewCache(options.Tokens)}
}

// Turn has the bytes of one turn for one run. It is agents.Files.
type Turn struct {
	service *Service
	turn    exchange.TurnRecord
	expires time.Time

	mu   sync.Mutex
	kept map[string]bool // by Put
}

// Of returns the bytes of a turn. Its addresses open them until they expire.
func (s *Service) Of(turn exchange.TurnRecord, expires time.Time) *Turn {
	return &Turn{service: s, turn: turn, expires: expires, kept: map[string]bool{}}
}

// Address returns an address that opens a content of the turn. Its holder may read: it cannot be guessed, and names neither turn
// nor content. It opens nothing once the content left the message, because that was edited or erased.
func (t *Turn) Address(digest string) (string, time.Time) {
	sealed := t.service.options.Seal(capability{t.turn.ID, digest, t.expires.Truncate(time.Second)}.bytes(), purpose)
	return t.service.options.Base.JoinPath("v1", "files", sealed).String(), t.expires.Truncate(time.Second)
}

// Open returns a content of the turn.
func (t *Turn) Open(ctx context.Context, digest string) (io.ReadCloser, error) {
	found, is := inMessage(t.turn.Message, digest)
	if !is {
		return nil, errMissing()
	}
	return t.service.open(ctx, found)
}

// purpose is what capabilities are sealed for: nothing else that the server sealed opens a file.
const purpose = "agents/files capability"

// capability is what an address opens.
type capability struct {
	turn, digest string
	expires      time.Time
}

func (c capability) bytes() []byte {
	return []byte(strconv.FormatInt(c.expires.Unix(), 10) + " " + c.turn + " " + c.digest)
}

func readCapability(content []byte) (c capability, ok bool) {
	fields := strings.Split(string(content), " ")
	if len(fields) != 3 {
		return c, false
	}
	seconds, err := strconv.ParseInt(fields[0], 10, 64)
	return capability{fields[1], fields[2], time.Unix(seconds, 0)}, err == nil
}

// content is one of the bytes of a turn.
type content struct {
	digest    string
	mediaType string
	name      string // empty = it has none
	native    bool   // the native original
}

const refPrefix = "sha256:"

// inMessage finds a content in a message, in the answers of other agents that it brings, and in its history.
func inMessage(message normalized.Message, digest string) (content, bool) {
	if digest == "" {
		return content{}, false
	}
	if message.Raw.Ref == refPrefix+digest {
		return content{digest: digest, mediaType: message.Raw.MediaType, native: true}, true
	}

	if found, is := inParts(message.Parts, digest); is {
		return found, true
	}

	if message.ReceivedTrace != nil {
		if found, is := inParts(message.ReceivedTrace.Parts, digest); is {
			return found, true
		}
	}

	for i := range message.History {
		if found, is := inParts(message.History[i].Parts, digest); is {
			return found, true
		}
	}

	return content{}, false
}

func inParts(parts []normalized.Part, digest string) (content, bool) {
	for i := range parts {
		part := &parts[i]
		if part.BytesRef != nil && part.BytesRef.Kind == normalized.BytesContentAddressed && part.BytesRef.Digest == digest {
			return content{digest: digest, mediaType: part.MIME, name: part.Name}, true
		}
	}
	return content{}, false
}

// open opens the bytes of a content. All of what it returns can seek but for contents of a store that cannot.
func (s *Service) open(ctx context.Context, found content) (io.ReadCloser, error) {
	opened, err := s.read(ctx, found)
	if err != nil {
		return nil, err
	}

	seeker, is := opened.(io.Seeker)
	holds, err := s.options.Holds(opened)
	switch {
	case err == nil && holds:
		err = errKept()
	case err == nil && is:
		_, err = seeker.Seek(0, io.SeekStart)
	case err == nil:
		_ = opened.Close() // it was only read
		return s.read(ctx, found)
	}
	if err != nil {
		_ = opened.Close() // it was only read
		return nil, err
	}
	return opened, nil
}

func (s *Service) read(ctx context.Context, found content) (io.ReadCloser, error) {
	if found.native {
		_, body, err := s.options.Original(ctx, found.digest)
		switch {
		case err != nil:
			return nil, err
		case body != nil:
			return inMemory{bytes.NewReader(body)}, nil
		}
	}
	return s.options.Blobs.Open(ctx, found.digest)
}

type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// errKept refuses content with a key: an original has the quotation of the mail that it answers whole, with its links.
func errKept() error {
	return fault.New(fault.Forbidden, "this holds a link of this server that works for everyone who has it, so agents do not get it; the operator finds it at the message in the console")
}

func errMissing() error { return fault.New(fault.NotFound, "no such file") }
