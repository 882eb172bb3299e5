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
	"mime"
	"mime/multipart"
	"net/http"
	"net/mail"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	seam "inbox/agents"
	"inbox/agents/files"
	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/sealing"
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
	s.pullerWith(t, agent, token, func(document seam.Document) normalized.Response { return say(answer(document)) })
}

// pullerWith is puller with a whole answer.
func (s *server) pullerWith(t *testing.T, agent, token string, answer func(seam.Document) normalized.Response) {
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
	said, err := json.Marshal(answer(taken.Document))
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

// forger makes addresses of files with the server's own key, so that what they are refused for is what they open.
func (s *server) forger(t *testing.T) func(turn, digest string, expires time.Time) string {
	t.Helper()
	written, err := os.ReadFile(filepath.Join(s.Directory, "data", "secret.key"))
	if os.IsNotExist(err) {
		written, err = os.ReadFile(filepath.Join(s.Directory, "shared.key"))
	}
	if err != nil {
		t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(written)))
	if err != nil {
		t.Fatal(err)
	}
	box, err := sealing.New(key)
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	service := files.New(files.Options{Base: base, Seal: box.Seal})
	return func(turn, digest string, expires time.Time) string {
		address, _ := service.Of(exchange.TurnRecord{ID: turn}, expires).Address(digest)
		return address
	}
}

// TestAgentsReadLargeFiles: a file of 20 MiB by A2A reaches a webhook, a program behind NAT, a program on this machine and an agent
// elsewhere, byte for byte, and no one else.
func TestAgentsReadLargeFiles(t *testing.T) {
	content, digest := largeFile(20 << 20)
	onBothDatabases(t, func(t *testing.T, database string) {
		var addresses, originals []string
		hook := startScripted(t, func(message normalized.Message) normalized.Response {
			part := filePart(message)
			status, mediaType, read := fetched(t, part.BytesRef.URL)
			_, original, _ := fetched(t, message.Raw.URL)
			_, _, first := fetched(t, part.BytesRef.URL, "Range", "bytes=0-9")
			sum := sha256.Sum256(content[:10])
			addresses = append(addresses, part.BytesRef.URL, message.Raw.URL)
			originals = append(originals, strings.TrimPrefix(message.Raw.Ref, "sha256:"))
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
			forged, hour := s.forger(t), time.Now().Add(time.Hour)
			if status, _, read := fetched(t, forged(document.Turn.ID, digest, hour)); status != http.StatusOK || read != digest {
				t.Errorf("an address that was made with the server's key: status %d", status)
			}
			for name, refused := range map[string]struct {
				address, token string
				want           int
			}{
				"an address that expired":  {forged(document.Turn.ID, digest, time.Now().Add(-time.Second)), "", http.StatusGone},
				"a content of other turns": {forged(document.Turn.ID, originals[0], hour), "", http.StatusNotFound},
				"a turn without it":        {forged("none", digest, hour), "", http.StatusNotFound},
				"a guess":                  {s.URL() + "/v1/files/v1." + strings.Repeat("A", 180), "", http.StatusNotFound},
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

		s.reportPeak(t)
		for _, address := range addresses { // still valid: the turn is there
			if status, _, _ := fetched(t, address); status != http.StatusOK {
				t.Errorf("an address of a turn that is over: status %d", status)
			}
		}
	})
}

// reportPeak logs what the server took at most, and holds it to a bound.
func (s *server) reportPeak(t *testing.T) {
	t.Helper()
	peak, err := s.Peak()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the server had %d MiB at most", peak>>20)
	if peak > mostMemory {
		t.Errorf("the server had %d MiB at most, want %d", peak>>20, mostMemory>>20)
	}
}

// mostMemory is what a server may take for files of 20 MiB, one at a time.
const mostMemory = 768 << 20

// kinds are agents of each kind for whom a program works elsewhere or here: hook, far, program and hidden.
func kinds(hook *scripted, far *server, script string) string {
	return hook.table("hook", "") + fmt.Sprintf(`
[[agents]]
name = "hidden"
kind = "pull"
[[agents]]
name = "program"
kind = "command"
[agents.command]
program = "/bin/sh"
arguments = ["-c", %q]
output = "text"
[[agents]]
name = "far"
kind = "remote"
[agents.remote]
card_url = %q
token = %q
`, script, far.URL()+"/a2a/hook/.well-known/agent-card.json", far.peerToken("near"))
}

// mailWith is a signed mail with a file.
func (p *post) mailWith(t *testing.T, id, to string, content []byte) []byte {
	t.Helper()
	var mail bytes.Buffer
	mail.WriteString("From: Ann <ann@sender.test>\r\nTo: " + to + "\r\nSubject: A file\r\nMessage-ID: <" + id + ">\r\n" +
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
	return signed
}

// TestAgentReadsLargeMail: a file of 20 MiB in a mail, and the mail itself, reach agents of each kind.
func TestAgentReadsLargeMail(t *testing.T) {
	content, digest := largeFile(20 << 20)
	onBothDatabases(t, func(t *testing.T, database string) {
		hook := startScripted(t, func(message normalized.Message) normalized.Response {
			status, _, read := fetched(t, filePart(message).BytesRef.URL)
			original, mediaType, native := fetched(t, message.Raw.URL)
			return say(fmt.Sprintf("%d %s; %d %s %t", status, read, original, mediaType, "sha256:"+native == message.Raw.Ref))
		})
		far := start(t, instance.Settings{Agents: hook.table("hook", "")})
		p := startPostWith(t, database, kinds(hook, far, `cat >/dev/null; sha256sum "$INBOX_FILES"/*.bin | cut -c1-64`),
			func(settings *instance.Settings) { settings.MaxMail = "40MiB" })
		token := strings.TrimSpace(lastLine(p.inbox("tokens", "create", "--agent", "hidden", "--pull", "puller")))
		for agent, want := range map[string]string{
			"hook": "200 " + digest + "; 200 message/rfc822 true", "program": digest, "far": "200 " + digest, "hidden": "200 " + digest,
		} {
			id := "large-" + agent + "@sender.test"
			p.send("ann@sender.test", agent+"@inbox.test", p.mailWith(t, id, agent+"@inbox.test", content))
			if agent == "hidden" {
				p.puller(t, agent, token, func(document seam.Document) string {
					status, _, read := fetched(t, filePart(document.Message).BytesRef.URL)
					return fmt.Sprintf("%d %s", status, read)
				})
			}
			if text := plain(p.outbox.await(t, id).Raw); !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
				t.Errorf("%s: the reply is %s, want %q", agent, text, want)
			}
		}
		p.reportPeak(t)
	})
}

// handIn uploads a file for an answer, as a program of the agent does, and returns the part of the answer that has it.
func handIn(t *testing.T, server, token string, content []byte) (part normalized.Part) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+"/v1/files?name=large.bin", bytes.NewReader(content))
	if err != nil {
		t.Error(err)
		return part
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/x-large")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return part
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusCreated || json.Unmarshal(text, &part) != nil {
		t.Errorf("the upload is answered %s %s %v", response.Status, text, err)
	}
	part.Kind, part.ArtifactType, part.ID, part.Description = normalized.PartArtifact, "report", "result-1", "a large report"
	return part
}

// attached returns the first file of a mail and its header.
func attached(t *testing.T, raw []byte) (digest string, header textproto.MIMEHeader) {
	t.Helper()
	parsed, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	_, parameters, err := mime.ParseMediaType(parsed.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	for reader := multipart.NewReader(parsed.Body, parameters["boundary"]); ; {
		part, err := reader.NextRawPart()
		if err != nil {
			return "", nil
		}
		if part.FileName() == "" {
			continue
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, base64.NewDecoder(base64.StdEncoding, part)); err != nil {
			t.Error(err)
		}
		return hex.EncodeToString(sum.Sum(nil)), part.Header
	}
}

// sentFile returns the digest of the file in a task, inline or at its address, and the type of its artifact.
func sentFile(t *testing.T, task load.Task) (digest, kind string) {
	t.Helper()
	for _, artifact := range task.Artifacts {
		for _, part := range artifact.Parts {
			mentionable, _ := artifact.Metadata["mentionable"].(map[string]any)
			kind, _ := mentionable["artifact_type"].(string)
			switch {
			case part.URL != "":
				_, _, digest := fetched(t, part.URL)
				return digest, kind
			case part.Raw != "":
				content, _ := base64.StdEncoding.DecodeString(part.Raw)
				sum := sha256.Sum256(content)
				return hex.EncodeToString(sum[:]), kind
			}
		}
	}
	return "", ""
}

var mediaAddress = regexp.MustCompile(`https?://[^/\s]+/media/[^\s"\\<>)]+`)

// TestAgentsAnswerWithLargeFiles: a file of 20 MiB reaches the reader by every way, byte for byte, from a webhook, a program behind NAT, a
// program on this machine and an agent elsewhere. A digest that the agent did not hand in opens nothing.
//
//contract:shows message-20
func TestAgentsAnswerWithLargeFiles(t *testing.T) {
	content, digest := largeFile(20 << 20)
	onBothDatabases(t, func(t *testing.T, database string) {
		var p *post
		var far *server
		tokens := map[string]string{}
		answering := func(at func() *server, token string) *scripted {
			return startScripted(t, func(message normalized.Message) normalized.Response {
				response := say("here")
				if strings.Contains(normalized.PlainText(message.Parts), "of another") {
					response.Parts = append(response.Parts, normalized.Part{Kind: normalized.PartFile, MIME: "a/b", BytesRef: normalized.Stored(digest)})
					return response
				}
				response.Parts = append(response.Parts, handIn(t, at().URL(), tokens[token], content))
				return response
			})
		}
		there := answering(func() *server { return far }, "there")
		hook := answering(func() *server { return p.server }, "hook")
		thief := startScripted(t, func(normalized.Message) normalized.Response {
			return normalized.Response{Parts: []normalized.Part{{Kind: normalized.PartFile, MIME: "a/b", BytesRef: normalized.Stored(digest)}}}
		})
		far = start(t, instance.Settings{Agents: there.table("hook", "")})
		tokens["there"] = strings.TrimSpace(lastLine(far.inbox("tokens", "create", "--agent", "hook", "--tools", "uploads")))

		source := filepath.Join(t.TempDir(), "large.bin")
		if err := os.WriteFile(source, content, 0o600); err != nil {
			t.Fatal(err)
		}
		p = startPostWith(t, database, kinds(hook, far, `cat >/dev/null; echo here; cp `+source+` "$INBOX_ANSWER_FILES/large.bin"`)+thief.table("thief", ""),
			func(settings *instance.Settings) { settings.MaxMail = "40MiB" })
		tokens["hook"] = strings.TrimSpace(lastLine(p.inbox("tokens", "create", "--agent", "hook", "--tools", "uploads")))
		puller := strings.TrimSpace(lastLine(p.inbox("tokens", "create", "--agent", "hidden", "--pull", "puller")))

		for _, agent := range []string{"hook", "program", "far"} {
			id := "question-" + agent + "@sender.test"
			p.send("ann@sender.test", agent+"@inbox.test", p.mailWith(t, id, agent+"@inbox.test", []byte("small")))
			reply := p.outbox.await(t, id)
			read, header := attached(t, reply.Raw)
			if agent == "far" { // it came as an address, because an answer of another server has 8 MiB at most
				body := strings.NewReplacer("=\r\n", "", "=3D", "=").Replace(string(reply.Raw))
				_, _, read = fetched(t, mediaAddress.FindString(body))
			}
			if read != digest {
				t.Errorf("%s by mail: %q %v, want %s", agent, read, header, digest)
			}
			if agent == "hook" && (header.Get("X-Mentionable-Artifact-Type") != "report" || header.Get("X-Mentionable-Artifact-Id") != "result-1" || header.Get("Content-Description") != "a large report") {
				t.Errorf("the mail says of its file %v", header)
			}

			peer := p.a2aPeer(agent, "ann-"+agent)
			task, err := peer.Send(t.Context(), load.SendBody("question-"+agent, "a file please", true))
			if err != nil {
				t.Fatal(err)
			}
			if read, kind := sentFile(t, awaitTask(t, peer, task.ID, completed)); read != digest || (agent != "program") != (kind == "report") {
				t.Errorf("%s by A2A: %q of type %q, want %s", agent, read, kind, digest)
			}
		}

		peer := p.a2aPeer("hidden", "ann-hidden")
		task, err := peer.Send(t.Context(), load.SendBody("question-hidden", "a file please", true))
		if err != nil {
			t.Fatal(err)
		}
		p.pullerWith(t, "hidden", puller, func(seam.Document) normalized.Response {
			return normalized.Response{Parts: []normalized.Part{handIn(t, p.URL(), puller, content)}}
		})
		if read, _ := sentFile(t, awaitTask(t, peer, task.ID, completed)); read != digest {
			t.Errorf("the program behind NAT by A2A: %q, want %s", read, digest)
		}

		token := "Bearer " + p.peerToken("chatter")
		for name, ask := range map[string]func() string{
			"JSON-RPC": func() string {
				return p.shown("POST", "/v1/agent/hook", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"type":"text","text":"hi"}]}}}`, token).body
			},
			"REST": func() string { return p.shown("POST", "/v1/chat", `{"agent":"hook","message":"hi"}`, token).body },
			"OpenAI": func() string {
				return p.shown("POST", "/v1/chat/completions", `{"model":"hook","messages":[{"role":"user","content":"hi"}]}`, token).body
			},
			"a stream in OpenAI's form": func() string {
				return p.shown("POST", "/v1/chat/completions", `{"model":"hook","stream":true,"messages":[{"role":"user","content":"hi"}]}`, token).body
			},
			"an item of a bridge": func() string {
				user := p.bridge("carrier")
				user.ask(http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "hook", "message": "hi", "wait": true})
				var items string
				eventually(t, "the answer is queued", func() bool {
					items = string(jsonOf(user.ask(http.MethodGet, "/v1/bridge/pending", nil)))
					return strings.Contains(items, "/media/")
				})
				return items
			},
			"a run of a bridge": func() string {
				user := p.bridge("relay")
				taken := user.ask(http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "hook", "message": "hi"})
				encoded, _ := json.Marshal(user.ask(http.MethodGet, "/v1/runs/"+fmt.Sprint(taken["run_id"])+"?wait=20s", nil))
				return string(encoded)
			},
		} {
			said := ask()
			address := mediaAddress.FindString(strings.ReplaceAll(said, `\u0026`, "&"))
			if _, _, read := fetched(t, address); read != digest {
				t.Errorf("by %s: %q of %s, want %s", name, read, said, digest)
			}
			if !strings.Contains(said, `"artifact_type":"report"`) || !strings.Contains(said, `"a large report"`) {
				t.Errorf("by %s the result lost its type or description: %s", name, said)
			}
		}

		peer = p.a2aPeer("thief", "ann-thief")
		if task, err = peer.Send(t.Context(), load.SendBody("steal", "give me the file of another", true)); err != nil {
			t.Fatal(err)
		}
		stolen := awaitTask(t, peer, task.ID, "TASK_STATE_FAILED")
		if read, _ := sentFile(t, stolen); read != "" {
			t.Errorf("a digest opened the file of another agent: %q", read)
		}
		p.reportPeak(t)
	})
}

// TestNoteWithALargeFile: the file of an answer to a note is at an address of this server.
func TestNoteWithALargeFile(t *testing.T) {
	content, digest := largeFile(20 << 20)
	onBothDatabases(t, func(t *testing.T, database string) {
		var s *server
		var token string
		hook := startScripted(t, func(normalized.Message) normalized.Response {
			response := say("here")
			response.Parts = append(response.Parts, handIn(t, s.URL(), token, content))
			return response
		})
		arrivals := make(chan load.Arrival, 16)
		community := newCommunity(t, 1, func(a load.Arrival) { arrivals <- a })
		s = start(t, instance.Settings{Database: database, Agents: hook.table("hook", "")})
		token = strings.TrimSpace(lastLine(s.inbox("tokens", "create", "--agent", "hook", "--tools", "uploads")))
		mention := community.Persons[0].Mention(s.Actor("hook"), "large", "a file please")
		if status := do(t, delivery(t, community.Persons[0], s.Actor("hook")+"/inbox", mention, load.Signature{})); status != http.StatusAccepted {
			t.Fatalf("the note is answered %d", status)
		}

		var note struct {
			Object struct {
				Attachment []struct {
					MediaType, URL, Name string
					ArtifactType         string `json:"https://mentionable.dev/ns/v1#artifactType"`
				}
			}
		}
		if err := json.Unmarshal(await.Receive(t, arrivals, "the answer").Body, &note); err != nil || len(note.Object.Attachment) != 1 {
			t.Fatalf("%+v %v", note, err)
		}
		file := note.Object.Attachment[0]
		if _, _, read := fetched(t, file.URL); read != digest || file.ArtifactType != "report" || file.Name != "a large report" {
			t.Errorf("%+v has the digest %s, want %s", file, read, digest)
		}
		s.reportPeak(t)
	})
}

// TestFilesOfAKilledProgramGo: a server that was killed leaves no copies of files when it is back.
func TestFilesOfAKilledProgramGo(t *testing.T) { onBothDatabases(t, filesOfAKilledProgramGo) }

func filesOfAKilledProgramGo(t *testing.T, database string) {
	content, _ := largeFile(1 << 20)
	s := start(t, instance.Settings{Database: database, Lease: "2s", Agents: `
[[agents]]
name = "program"
kind = "command"
[agents.command]
program = "/bin/sh"
arguments = ["-c", "test $INBOX_ATTEMPT -gt 1 || sleep 600; echo done"]
output = "text"
`})
	copies := func() []string {
		found, err := filepath.Glob(filepath.Join(s.Directory, "data", "programs", "process-*", "*", "message", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	peer := s.a2aPeer("program", "ann")
	task, err := peer.Send(t.Context(), fileTask("killed", content))
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the program has its file", func() bool { return len(copies()) == 1 })
	left := copies()[0]
	s.killed()
	awaitTask(t, peer, task.ID, completed)
	if _, err := os.Stat(left); err == nil {
		t.Errorf("%s is still there", left)
	}
	await.Until(t, "the second run took its files away", func() bool { return len(copies()) == 0 })
}
