package files_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"inbox/agents/files"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

func post(handler http.Handler, body io.Reader, length int64, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, "/v1/files?name=..%2Freport.pdf", body)
	request.ContentLength = length
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

func contentDigest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// TestUploads: a file that comes in whole, within the bounds and from the agent's own program, is kept; of others nothing is left.
func TestUploads(t *testing.T) {
	s, _, handler := newShelf(t)
	token := "Bearer " + s.token("helper", exchange.TokenPull, false)
	content := strings.Repeat("large ", 500) // more than other bodies may have
	got := post(handler, strings.NewReader(content), int64(len(content)), "Authorization", token, "Content-Type", "application/pdf", "Content-Digest", contentDigest(content))
	var upload files.Upload
	if err := json.Unmarshal(got.Body.Bytes(), &upload); err != nil || got.Code != http.StatusCreated || upload.BytesRef == nil {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	if upload.BytesRef.Digest != digestOf(content) || upload.Size != int64(len(content)) || upload.MIME != "application/pdf" || upload.Name != "report.pdf" || upload.Kind != normalized.PartFile {
		t.Errorf("%+v", upload)
	}

	for name, one := range map[string]struct {
		body   io.Reader
		length int64
		header []string
		status int
	}{
		"no token":             {strings.NewReader("x"), 1, nil, 401},
		"a token for callers":  {strings.NewReader("x"), 1, []string{"Authorization", "Bearer " + s.token("helper", exchange.TokenPeer, false)}, 401},
		"no length":            {strings.NewReader("x"), -1, []string{"Authorization", token}, 400},
		"too large":            {strings.NewReader("x"), 4097, []string{"Authorization", token}, 413},
		"cut off":              {strings.NewReader("x"), 2, []string{"Authorization", token}, 400},
		"broken off":           {iotest.ErrReader(errors.New("gone")), 2, []string{"Authorization", token}, 503},
		"another digest":       {strings.NewReader("x"), 1, []string{"Authorization", token, "Content-Digest", contentDigest("y")}, 400},
		"no digest":            {strings.NewReader("x"), 1, []string{"Authorization", token, "Content-Digest", "md5=:x:"}, 400},
		"no media type":        {strings.NewReader("x"), 1, []string{"Authorization", token, "Content-Type", "no media type;;"}, 400},
		"too much in one day":  {strings.NewReader("x"), 2500, []string{"Authorization", token}, 429},
		"an empty file is one": {strings.NewReader(""), 0, []string{"Authorization", token}, 201},
	} {
		if got := post(handler, one.body, one.length, one.header...); got.Code != one.status {
			t.Errorf("%s: %d %s, want %d", name, got.Code, got.Body, one.status)
		}
	}
	if len(s.uploads) != 2 || len(s.digests) != 2 {
		t.Errorf("%d reservations, %d files are left, want 2", len(s.uploads), len(s.digests))
	}
}

// TestCheck: an answer names what its turn has, what its agent handed in and what the run kept, and nothing else.
func TestCheck(t *testing.T) {
	s, service, handler := newShelf(t)
	for agent, content := range map[string]string{"helper": "of helper", "other": "of other"} {
		if got := post(handler, strings.NewReader(content), int64(len(content)), "Authorization", "Bearer "+s.token(agent, exchange.TokenTools, false)); got.Code != http.StatusCreated {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
	}
	turn := service.Of(s.turns["turn-1"], time.Now())
	if _, _, err := turn.Put(t.Context(), strings.NewReader("kept")); err != nil {
		t.Fatal(err)
	}

	for content, want := range map[string]bool{
		attached: true, earlier: true, "of helper": true, "kept": true, native: false, "of other": false, "of another turn": false, "nowhere": false,
	} {
		ref := normalized.Stored(digestOf(content))
		ref.URL = "https://inbox.example/v1/files/sealed"
		parts := []normalized.Part{normalized.Text("look"), {Kind: normalized.PartArtifact, BytesRef: ref, Size: 1}}
		checked, err := turn.Check(t.Context(), parts)
		if (err == nil) != want || err != nil && (!fault.Is(err, fault.Malformed) || fault.Of(err).Field != "parts[1].bytes_ref.digest") {
			t.Errorf("%q: %v", content, err)
		}
		if err == nil && (checked[1].BytesRef.URL != "" || parts[1].BytesRef.URL == "") {
			t.Errorf("%q: %+v", content, checked[1].BytesRef)
		}
		if content == "of helper" && checked[1].Size != int64(len(content)) {
			t.Errorf("the size is %d", checked[1].Size)
		}
		if err := service.Check(t.Context(), "turn-1", parts); (err == nil) != (want && content != "kept") {
			t.Errorf("%q in an answer that came in: %v", content, err)
		}
	}
	if err := service.Check(t.Context(), "turn-1", []normalized.Part{normalized.Text("nothing")}); err != nil {
		t.Error(err)
	}
}
