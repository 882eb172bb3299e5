package chat_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"inbox/internal/await"
)

// TestGuestsMaySendWhatThePageOffers: a file as large as the script lets a guest attach is taken, and a larger message is refused with
// the limit that the setting names, whatever the request's form.
func TestGuestsMaySendWhatThePageOffers(t *testing.T) {
	t.Parallel()
	for setting, most := range map[string]int{"": 5 << 20, "INBOX_LIMITS_GUEST_MAX_BYTES=300KiB": 300 << 10} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			var settings []string
			if setting != "" {
				settings = append(settings, setting)
			}
			s := newChatServer(t, settings...)
			status, _, script := s.Read(http.MethodGet, "/chat.js", "", "")
			if status != http.StatusOK {
				t.Fatalf("the script answered %d", status)
			}
			var offered struct{ Files, Guest, Token int64 }
			found := regexp.MustCompile(`const limits = (\{[^}]+\})`).FindStringSubmatch(script)
			if found == nil || json.Unmarshal([]byte(found[1]), &offered) != nil {
				t.Fatalf("the script names no limits: %v", found)
			}
			if offered.Guest > int64(most) || offered.Guest < int64(most)-8 || offered.Token <= offered.Guest {
				t.Errorf("the script offers %+v where a guest may send %d bytes", offered, most)
			}

			body := func(files ...int64) string {
				attached := make([]map[string]any, 0, len(files))
				for i, size := range files {
					attached = append(attached, map[string]any{
						"name": fmt.Sprintf("picture-%d.bin", i), "mimeType": "application/octet-stream",
						"bytes": base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(i)}, int(size))),
					})
				}
				encoded, err := json.Marshal(map[string]any{"agent": "helper", "attachments": attached})
				if err != nil {
					t.Fatal(err)
				}
				return string(encoded)
			}
			if got := s.post("/v1/chat", "", body(offered.Guest)); got.status != http.StatusOK || !strings.Contains(got.body, `"reply":"pong"`) {
				t.Errorf("one file of %d bytes: %d %.300s", offered.Guest, got.status, got.body)
			}
			small := make([]int64, 8)
			for i := range small {
				small[i] = offered.Guest / 8 // kept inline where they are small
			}
			if got := s.post("/v1/chat", "", body(small...)); got.status != http.StatusOK {
				t.Errorf("eight files of %d bytes together: %d %.300s", offered.Guest, got.status, got.body)
			}
			if got := s.post("/v1/chat", "", body(offered.Guest, offered.Guest/2)); got.status != http.StatusRequestEntityTooLarge || strings.Contains(got.body, "bearer") {
				t.Errorf("more than a guest may send: %d %.300s", got.status, got.body)
			}
			if got := s.post("/v1/chat", s.Token("app"), body(offered.Guest, offered.Guest/4)); got.status != http.StatusOK {
				t.Errorf("as much from the holder of a token: %d %.300s", got.status, got.body)
			}
		})
	}
}

// TestLargeMessagesOfGuestsAreDecodedInTurn: many large messages of guests at once are all answered, and so is a small one beside them.
func TestLargeMessagesOfGuestsAreDecodedInTurn(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	picture := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 1<<20))
	large := `{"agent":"helper","message":"look","attachments":[{"name":"a.bin","mimeType":"application/octet-stream","bytes":"` + picture + `"}]}`
	answered := make(chan int, 12)
	for range cap(answered) {
		go func() { answered <- s.post("/v1/chat", "", large).status }()
	}
	if got := s.post("/v1/chat", "", `{"agent":"helper","message":"hi"}`); got.status != http.StatusOK {
		t.Errorf("a small message beside large ones: %d %s", got.status, got.body)
	}
	for range cap(answered) {
		if status := await.Receive(t, answered, "the answer to a large message"); status != http.StatusOK {
			t.Errorf("a large message was answered %d", status)
		}
	}
}
