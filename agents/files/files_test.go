package files_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"inbox/agents/files"
	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/sealing"
	"inbox/normalized"
)

// shelf has turns, contents and tokens; the sealing is the server's own.
type shelf struct {
	turns  map[string]exchange.TurnRecord
	told   map[string]normalized.Message
	blobs  map[string]string
	native map[string]string
	tokens map[string]exchange.Token // by hash
	box    *sealing.Box
	holds  string // content with a key of the server

	uploads map[string]exchange.Upload // by id
	digests map[string]string          // of those that came in whole, by id
}

func (s *shelf) Put(_ context.Context, from io.Reader) (digest string, size int64, err error) {
	content, err := io.ReadAll(from)
	if err != nil {
		return "", 0, fault.Wrap(fault.Unavailable, "the content could not be read to its end", err)
	}
	s.blobs[digestOf(string(content))] = string(content)
	return digestOf(string(content)), int64(len(content)), nil
}

func (s *shelf) ReserveUpload(_ context.Context, upload exchange.Upload, most int64) (bool, error) {
	sum := upload.Size
	for _, before := range s.uploads {
		sum += before.Size
	}
	if sum > most {
		return false, nil
	}
	s.uploads[upload.ID] = upload
	return true, nil
}

func (s *shelf) FinishUpload(_ context.Context, id, digest string) error {
	s.digests[id] = digest
	return nil
}

func (s *shelf) DropUpload(_ context.Context, id string) error {
	delete(s.uploads, id)
	return nil
}

func (s *shelf) Uploaded(_ context.Context, agent, digest string) (int64, bool, error) {
	for id, upload := range s.uploads {
		if strings.EqualFold(upload.Agent, agent) && s.digests[id] == digest {
			return upload.Size, true, nil
		}
	}
	return 0, false, nil
}

type seekable struct{ *bytes.Reader }

func (seekable) Close() error { return nil }

func (s *shelf) Open(_ context.Context, digest string) (io.ReadCloser, error) {
	content, is := s.blobs[digest]
	if !is {
		return nil, fault.New(fault.NotFound, "no such content")
	}
	return seekable{bytes.NewReader([]byte(content))}, nil
}

func (s *shelf) TokenByHash(_ context.Context, hash string) (exchange.Token, bool, error) {
	token, found := s.tokens[hash]
	return token, found, nil
}

func (s *shelf) token(agent, scope string, revoked bool) string {
	text, hash := bearer.Mint()
	token := exchange.Token{Agent: agent, Scope: scope, Hash: hash}
	if revoked {
		token.RevokedAt = time.Now()
	}
	s.tokens[hash] = token
	return text
}

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

const (
	attached = "an attached file"
	native   = "the native original"
	earlier  = "a file of an earlier message"
)

func newShelf(t *testing.T) (*shelf, *files.Service, http.Handler) {
	t.Helper()
	s := &shelf{
		turns: map[string]exchange.TurnRecord{}, told: map[string]normalized.Message{}, tokens: map[string]exchange.Token{},
		blobs:  map[string]string{digestOf(attached): attached, digestOf(earlier): earlier, digestOf("of another turn"): "of another turn"},
		native: map[string]string{digestOf(native): native}, uploads: map[string]exchange.Upload{}, digests: map[string]string{},
	}
	part := func(content, mediaType, name string) normalized.Part {
		return normalized.Part{Kind: normalized.PartFile, MIME: mediaType, Name: name, BytesRef: normalized.Stored(digestOf(content))}
	}
	message := normalized.Message{
		Parts: []normalized.Part{normalized.Text("look"), part(attached, "text/html; charset=utf-8", `..\evil/"na me".html`)},
		Raw:   normalized.Raw{Ref: "sha256:" + digestOf(native), MediaType: "message/rfc822"},
	}
	s.turns["turn-1"] = exchange.TurnRecord{ID: "turn-1", Agent: "helper", Message: message}
	message.History = []normalized.HistoricalMessage{{Parts: []normalized.Part{part(earlier, "application/pdf", "old.pdf")}}}
	s.told["turn-1"] = message
	s.turns["turn-2"] = exchange.TurnRecord{ID: "turn-2", Agent: "other", Message: normalized.Message{
		Parts: []normalized.Part{part("of another turn", "no media type", "")},
	}}
	s.told["turn-2"] = s.turns["turn-2"].Message

	box, err := sealing.New(sealing.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	s.box = box
	base, err := url.Parse("https://inbox.example/base")
	if err != nil {
		t.Fatal(err)
	}
	missing := fault.New(fault.NotFound, "no such turn")
	service := files.New(files.Options{
		Holds: func(content io.Reader) (bool, error) {
			body, err := io.ReadAll(content)
			return s.holds != "" && string(body) == s.holds, err
		},
		Base: base, Blobs: s, Tokens: s, Seal: box.Seal, Uploads: s, MaxUpload: 4096, MaxUnused: 5000,
		Open: func(_ context.Context, sealed, purpose string) ([]byte, error) { return box.Open(sealed, purpose) },
		Turn: func(_ context.Context, id string) (exchange.TurnRecord, error) {
			if turn, is := s.turns[id]; is {
				return turn, nil
			}
			return exchange.TurnRecord{}, missing
		},
		Told: func(_ context.Context, turn exchange.TurnRecord) (normalized.Message, error) {
			return s.told[turn.ID], nil
		},
		Original: func(_ context.Context, digest string) (string, []byte, error) {
			if content, is := s.native[digest]; is {
				return "message/rfc822", []byte(content), nil
			}
			return "", nil, missing
		},
	})
	server, err := httpserver.New(httpserver.Options{Listen: "127.0.0.1:0", Routes: service.Routes(), Logger: slog.New(slog.DiscardHandler), MaxBodyBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return s, service, server.Handler()
}

func get(handler http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

// pathOf returns an address as the server behind its base sees it.
func pathOf(t *testing.T, address string) string {
	t.Helper()
	path, is := strings.CutPrefix(address, "https://inbox.example/base")
	if !is {
		t.Fatalf("the address %q is not on this server", address)
	}
	return path
}

func TestAddresses(t *testing.T) {
	s, service, handler := newShelf(t)
	hour := time.Now().Add(time.Hour)
	of := func(id, content string, expires time.Time) string {
		address, until := service.Of(s.turns[id], expires).Address(digestOf(content))
		if until.After(expires) || strings.Contains(address, id) || strings.Contains(address, digestOf(content)) {
			t.Errorf("the address %q until %s tells of %s", address, until, id)
		}
		return pathOf(t, address)
	}
	good := of("turn-1", attached, hour)

	for name, one := range map[string]struct {
		path, body string
		status     int
	}{
		"a file":                       {good, attached, 200},
		"the original":                 {of("turn-1", native, hour), native, 200},
		"an expired address":           {of("turn-1", attached, time.Now().Add(-time.Second)), "", 410},
		"a content of another turn":    {of("turn-1", "of another turn", hour), "", 404},
		"a content of the history":     {of("turn-1", earlier, hour), "", 404}, // history has no addresses
		"a letter less":                {good[:len(good)-1], "", 404},
		"a letter more":                {good + "A", "", 404},
		"another letter":               {good[:len(good)-9] + swapped(good[len(good)-9]) + good[len(good)-8:], "", 404},
		"a guess":                      {"/v1/files/" + strings.Repeat("A", 200), "", 404},
		"a very long guess":            {"/v1/files/" + strings.Repeat("A", 2000), "", 404},
		"the directory":                {"/v1/files/", "", 404},
		"a sealed text of another use": {"/v1/files/" + otherUse(s), "", 404},
	} {
		got := get(handler, one.path)
		if got.Code != one.status || one.body != "" && got.Body.String() != one.body {
			t.Errorf("%s: %d %q, want %d %q", name, got.Code, got.Body, one.status, one.body)
		}
	}

	turn := s.turns["turn-1"]
	turn.Message.Parts = turn.Message.Parts[:1]
	s.turns["turn-1"] = turn
	if got := get(handler, good); got.Code != http.StatusNotFound {
		t.Errorf("a file that left the message is answered %d", got.Code)
	}
	delete(s.turns, "turn-1")
	if got := get(handler, good); got.Code != http.StatusNotFound {
		t.Errorf("a file of a turn that is gone is answered %d", got.Code)
	}
}

func swapped(letter byte) string {
	if letter == 'x' {
		return "y"
	}
	return "x"
}

// otherUse is a capability that was sealed for another purpose.
func otherUse(s *shelf) string {
	return s.box.Seal([]byte("99999999999 turn-1 "+digestOf(attached)), "webhook secret")
}

func TestHowAFileIsServed(t *testing.T) {
	s, service, handler := newShelf(t)
	address, _ := service.Of(s.turns["turn-1"], time.Now().Add(time.Hour)).Address(digestOf(attached))
	got := get(handler, pathOf(t, address))
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Content-Disposition": `attachment; filename="na me_.html"`, "X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'", "Cache-Control": "private, no-store",
		"ETag": `"` + digestOf(attached) + `"`, "Accept-Ranges": "bytes", "Referrer-Policy": "no-referrer",
	} {
		if has := got.Header().Get(name); has != want && name != "Content-Disposition" {
			t.Errorf("%s is %q, want %q", name, has, want)
		}
	}
	if has := got.Header().Get("Content-Disposition"); !strings.HasPrefix(has, "attachment; filename=") || strings.ContainsAny(has, `/\<`) {
		t.Errorf("Content-Disposition is %q", has)
	}
	if part := get(handler, pathOf(t, address), "Range", "bytes=3-10"); part.Code != http.StatusPartialContent || part.Body.String() != attached[3:11] {
		t.Errorf("a range is answered %d %q", part.Code, part.Body)
	}

	address, _ = service.Of(s.turns["turn-2"], time.Now().Add(time.Hour)).Address(digestOf("of another turn"))
	if got := get(handler, pathOf(t, address)).Header(); got.Get("Content-Type") != "application/octet-stream" || got.Get("Content-Disposition") != "attachment; filename=file" {
		t.Errorf("a file without name and type has %v", got)
	}
}

func TestTokens(t *testing.T) {
	s, _, handler := newShelf(t)
	pull, tools := s.token("helper", exchange.TokenPull, false), s.token("HELPER", exchange.TokenTools, false)
	path := func(turn, content string) string { return "/v1/turns/" + turn + "/files/" + digestOf(content) }

	for name, one := range map[string]struct {
		path, token, body string
		status            int
	}{
		"a file":                    {path("turn-1", attached), pull, attached, 200},
		"by a token for tools":      {path("turn-1", attached), tools, attached, 200},
		"the original":              {path("turn-1", native), pull, native, 200},
		"a file of the history":     {path("turn-1", earlier), pull, earlier, 200},
		"a content of another turn": {path("turn-1", "of another turn"), pull, "", 404},
		"the turn of another agent": {path("turn-2", "of another turn"), pull, "", 404},
		"no such turn":              {path("turn-3", attached), pull, "", 404},
		"nothing":                   {"/v1/turns/turn-1/files/", pull, "", 404},
		"no token":                  {path("turn-1", attached), "", "", 401},
		"an unknown token":          {path("turn-1", attached), "inbox_" + strings.Repeat("A", 43), "", 401},
		"a revoked token":           {path("turn-1", attached), s.token("helper", exchange.TokenPull, true), "", 401},
		"a peer's token":            {path("turn-1", attached), s.token("helper", exchange.TokenPeer, false), "", 401},
		"a token of no agent":       {path("turn-1", attached), s.token("", exchange.TokenPull, false), "", 401},
		"the operator's own token":  {path("turn-1", attached), s.token("", exchange.TokenAdmin, false), "", 401},
		"a token of another agent":  {path("turn-1", attached), s.token("other", exchange.TokenPull, false), "", 404},
		"a bridge's token":          {path("turn-1", attached), s.token("helper", exchange.TokenBridge, false), "", 401},
	} {
		got := get(handler, one.path, "Authorization", "Bearer "+one.token)
		if got.Code != one.status || one.body != "" && got.Body.String() != one.body {
			t.Errorf("%s: %d %q, want %d %q", name, got.Code, got.Body, one.status, one.body)
		}
		if (got.Code == http.StatusUnauthorized) != (got.Header().Get("WWW-Authenticate") != "") {
			t.Errorf("%s: WWW-Authenticate is %q at status %d", name, got.Header().Get("WWW-Authenticate"), got.Code)
		}
	}
}

// TestOpen: an agent of this process reads what its message refers to and nothing else.
func TestOpen(t *testing.T) {
	s, service, _ := newShelf(t)
	turn := service.Of(s.turns["turn-1"], time.Now())
	for content, want := range map[string]bool{attached: true, native: true, "of another turn": false, earlier: false} {
		opened, err := turn.Open(t.Context(), digestOf(content))
		if (err == nil) != want || err != nil && !fault.Is(err, fault.NotFound) {
			t.Errorf("opening %q: %v", content, err)
			continue
		}
		if err != nil {
			continue
		}
		if read, err := io.ReadAll(opened); err != nil || string(read) != content {
			t.Errorf("read %q, %v", read, err)
		}
	}
}

// TestOriginalsWithKeysStayClosed: the native original has the quotation whole, with the links that were hidden in the message.
func TestOriginalsWithKeysStayClosed(t *testing.T) {
	s, service, handler := newShelf(t)
	s.holds = native
	turn := service.Of(s.turns["turn-1"], time.Now().Add(time.Hour))
	closed, _ := turn.Address(digestOf(native))
	open, _ := turn.Address(digestOf(attached))
	if got := get(handler, pathOf(t, closed)); got.Code != http.StatusForbidden || strings.Contains(got.Body.String(), native) {
		t.Errorf("by its address: %d %s", got.Code, got.Body)
	}
	if got := get(handler, pathOf(t, open)); got.Code != http.StatusOK || got.Body.String() != attached {
		t.Errorf("another file: %d %s", got.Code, got.Body)
	}
	if _, err := turn.Open(t.Context(), digestOf(native)); !fault.Is(err, fault.Forbidden) {
		t.Errorf("in the program: %v", err)
	}
	token := s.token("helper", exchange.TokenPull, false)
	if got := get(handler, "/v1/turns/turn-1/files/"+digestOf(native), "Authorization", "Bearer "+token); got.Code != http.StatusForbidden {
		t.Errorf("by a token: %d", got.Code)
	}
}
