package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	seam "inbox/agents"
	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/normalized"
)

// largeFile is a file that compresses badly and holds no secrets.
func largeFile(bytes int) (content []byte, digest string) {
	source := rand.NewChaCha8([32]byte{1})
	content = make([]byte, bytes)
	_, _ = source.Read(content)
	sum := sha256.Sum256(content)
	return content, hex.EncodeToString(sum[:])
}

// fetched reads an address as a program elsewhere does, and returns status, media type and the digest of what it read.
func fetched(t *testing.T, address string, header ...string) (status int, mediaType, digest string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Error(err)
		return 0, "", ""
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return 0, "", ""
	}
	defer func() { _ = response.Body.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, response.Body); err != nil {
		t.Error(err)
	}
	return response.StatusCode, response.Header.Get("Content-Type"), hex.EncodeToString(sum.Sum(nil))
}

// fileTask is an A2A message with a text and a file.
func fileTask(id string, content []byte) []byte {
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "SendMessage",
		"params": map[string]any{
			"message": map[string]any{
				"messageId": id, "role": "ROLE_USER", "parts": []map[string]string{
					{"text": "what is this?"}, {"raw": base64.StdEncoding.EncodeToString(content), "filename": "large.bin", "mediaType": "application/x-large"},
				},
			},
			"configuration": map[string]any{"returnImmediately": true},
		},
	})
	if err != nil {
		panic(err) // texts can always be written
	}
	return body
}

// puller takes one turn of a pull agent, as a program behind NAT does, and answers what answer says of its document.
func (s *server) puller(t *testing.T, agent, token string, answer func(seam.Document) string) {
	t.Helper()
	ask := func(path string, body io.Reader) *http.Response {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/v1/pull/"+agent+path, body)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
	var taken struct {
		seam.Document
		Lease struct {
			ID string `json:"id"`
		} `json:"lease"`
	}
	if response := ask("/take?wait=30", nil); json.NewDecoder(response.Body).Decode(&taken) != nil {
		t.Fatalf("taking a turn is answered %s", response.Status)
	}
	said, err := json.Marshal(say(answer(taken.Document)))
	if err != nil {
		t.Fatal(err)
	}
	if response := ask("/"+taken.Turn.ID+"/answer?lease="+taken.Lease.ID, bytes.NewReader(said)); response.StatusCode >= 300 {
		text, _ := io.ReadAll(response.Body)
		t.Fatalf("the answer is answered %s %s", response.Status, text)
	}
}

func filePart(message normalized.Message) (part normalized.Part) {
	for _, one := range message.Parts {
		if one.BytesRef != nil {
			return one
		}
	}
	return part
}

// TestAgentsReadLargeFiles: a file of 5 MiB by A2A, where a request has 8 MiB at most, reaches a webhook, a program behind NAT, a program on this machine and an agent
// elsewhere, byte for byte, and no one else.
func TestAgentsReadLargeFiles(t *testing.T) {
	content, digest := largeFile(5 << 20)
	onBothDatabases(t, func(t *testing.T, database string) {
		var addresses []string
		hook := startScripted(t, func(message normalized.Message) normalized.Response {
			part := filePart(message)
			status, mediaType, read := fetched(t, part.BytesRef.URL)
			_, original, _ := fetched(t, message.Raw.URL)
			_, _, first := fetched(t, part.BytesRef.URL, "Range", "bytes=0-9")
			sum := sha256.Sum256(content[:10])
			addresses = append(addresses, part.BytesRef.URL, message.Raw.URL)
			return say(fmt.Sprintf("%d %s %s, original %s, range %t", status, mediaType, read, original, first == hex.EncodeToString(sum[:])))
		})
		far := start(t, instance.Settings{Agents: hook.table("hook", "")})
		program := filepath.Join(t.TempDir(), "agent.sh")
		script := "#!/bin/sh\ncat >/dev/null\nsha256sum \"$INBOX_FILES\"/*.bin | cut -d' ' -f1\nls \"$INBOX_FILES\" | wc -l\n"
		if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		s := start(t, instance.Settings{
			Database: database,
			Agents: hook.table("hook", "") + fmt.Sprintf(`
[[agents]]
name = "hidden"
kind = "pull"
[[agents]]
name = "other"
kind = "pull"
[[agents]]
name = "program"
kind = "command"
[agents.command]
program = %q
output = "text"
[[agents]]
name = "far"
kind = "remote"
[agents.remote]
card_url = %q
token = %q
`, program, far.URL()+"/a2a/hook/.well-known/agent-card.json", far.peerToken("near")),
		})
		ask := func(agent string) (load.A2APeer, string) {
			peer := s.a2aPeer(agent, "ann-"+agent)
			task, err := peer.Send(t.Context(), fileTask("file-"+agent, content))
			if err != nil {
				t.Fatalf("%s: %v", agent, err)
			}
			return peer, task.ID
		}
		said := func(agent string) string {
			peer, id := ask(agent)
			return texts(awaitTask(t, peer, id, completed))
		}
		want := "200 application/x-large " + digest + ", original application/json"

		if text := said("hook"); !strings.Contains(text, want) || !strings.Contains(text, "range true") {
			t.Errorf("the webhook read %q, want %q", text, want)
		}
		if text := said("program"); !strings.Contains(text, digest) || !strings.Contains(text, "\n1") {
			t.Errorf("the program read %q, want %s in one file", text, digest)
		}
		if text := said("far"); !strings.Contains(text, "200 application/x-large "+digest) {
			t.Errorf("the agent elsewhere read %q, want %s", text, digest)
		}

		token := strings.TrimSpace(lastLine(s.inbox("tokens", "create", "--agent", "hidden", "--pull", "puller")))
		foreign := strings.TrimSpace(lastLine(s.inbox("tokens", "create", "--agent", "other", "--pull", "foreign")))
		peer, id := ask("hidden")
		s.puller(t, "hidden", token, func(document seam.Document) string {
			status, _, read := fetched(t, filePart(document.Message).BytesRef.URL)
			path := s.URL() + "/v1/turns/" + document.Turn.ID + "/files/"
			byToken, _, again := fetched(t, path+digest, "Authorization", "Bearer "+token)
			for name, refused := range map[string]struct {
				address, token string
				want           int
			}{
				"no token":                 {path + digest, "", http.StatusUnauthorized},
				"the token of another":     {path + digest, foreign, http.StatusNotFound},
				"a content of no message":  {path + strings.Repeat("0", 64), token, http.StatusNotFound},
				"no turn":                  {s.URL() + "/v1/turns/none/files/" + digest, token, http.StatusNotFound},
				"an address that is wrong": {filePart(document.Message).BytesRef.URL + "x", "", http.StatusNotFound},
			} {
				if got, _, _ := fetched(t, refused.address, "Authorization", "Bearer "+refused.token); got != refused.want {
					t.Errorf("%s: status %d, want %d", name, got, refused.want)
				}
			}
			return fmt.Sprintf("%d %s, %d %s", status, read, byToken, again)
		})
		if text := texts(awaitTask(t, peer, id, completed)); !strings.Contains(text, fmt.Sprintf("200 %s, 200 %s", digest, digest)) {
			t.Errorf("the program behind NAT read %q, want %s twice", text, digest)
		}

		for _, address := range addresses { // still valid: the turn is there
			if status, _, _ := fetched(t, address); status != http.StatusOK {
				t.Errorf("an address of a turn that is over: status %d", status)
			}
		}
	})
}

// TestAgentReadsLargeMail: a file of 20 MiB in a mail, and the mail itself.
func TestAgentReadsLargeMail(t *testing.T) {
	content, digest := largeFile(20 << 20)
	onBothDatabases(t, func(t *testing.T, database string) {
		hook := startScripted(t, func(message normalized.Message) normalized.Response {
			status, _, read := fetched(t, filePart(message).BytesRef.URL)
			original, mediaType, native := fetched(t, message.Raw.URL)
			return say(fmt.Sprintf("%d %s; %d %s %t", status, read, original, mediaType, "sha256:"+native == message.Raw.Ref))
		})
		p := startPostWith(t, database, hook.table("memory", ""), func(settings *instance.Settings) { settings.MaxMail = "40MiB" })
		var mail bytes.Buffer
		mail.WriteString("From: Ann <ann@sender.test>\r\nTo: memory@inbox.test\r\nSubject: A file\r\nMessage-ID: <large@sender.test>\r\n" +
			"Date: Mon, 23 Nov 2026 12:00:00 +0000\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" +
			"--b\r\nContent-Type: text/plain\r\n\r\nWhat is this?\r\n--b\r\nContent-Type: application/x-large; name=large.bin\r\n" +
			"Content-Disposition: attachment; filename=large.bin\r\nContent-Transfer-Encoding: base64\r\n\r\n")
		encoded := base64.StdEncoding.EncodeToString(content)
		for len(encoded) > 76 {
			mail.WriteString(encoded[:76] + "\r\n")
			encoded = encoded[76:]
		}
		mail.WriteString(encoded + "\r\n--b--\r\n")
		signed, err := p.sender.Sign(mail.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		p.send("ann@sender.test", "memory@inbox.test", signed)
		want := "200 " + digest + "; 200 message/rfc822 true"
		if text := plain(p.outbox.await(t, "large@sender.test").Raw); !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("the reply is %s, want %q", text, want)
		}
	})
}
