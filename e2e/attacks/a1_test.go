package attacks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"inbox/e2e/load"
)

// explodingMail: a mail of 36 KiB cost 15 CPU seconds and one of 132 KiB 63, before any rule was asked.
func (a *watched) explodingMail() {
	result := a.attack("A1", "mails of 400 nested quotations, 36 to 132 KiB", func(ctx context.Context, heard *answers) {
		eve := forger{w: a.world, source: "203.0.113.100", heard: heard}
		defer eve.end()
		a.spread(ctx, 20, 1, func(_, i int) {
			html := strings.Repeat("<blockquote>", 400) + strings.Repeat("x<br>", []int{6_400, 13_000, 26_000}[i%3])
			eve.bring(ctx, forged{agent: "echo", key: fmt.Sprintf("explodes-%d", i), mediaType: "text/html", body: html})
		})
	})
	a.cheap(result, 200*time.Millisecond, 100<<20)
}

// explodingPart: the same as a part of a task, where nothing bounded its size.
func (a *watched) explodingPart() {
	token := a.token("mallory")
	result := a.attack("A1", "text/html parts of 400 nested lists, 400 KiB", func(ctx context.Context, heard *answers) {
		peer := load.A2APeer{URL: a.url("/a2a/echo"), Token: token, Client: a.client("203.0.113.101")}
		a.spread(ctx, 3, 1, func(_, i int) {
			html := strings.Repeat("<ul><li>", 400) + strings.Repeat("x<br>", 80_000)
			_, err := peer.Send(ctx, sendBody(fmt.Sprintf("explodes-%d", i), map[string]string{"text": html, "mediaType": "text/html"}))
			heard.add(outcome(err))
		})
	})
	a.cheap(result, time.Second, 250<<20)
}

// explodingMarkdown: 64 KiB of Markdown cost 2 seconds and 128 KiB 9, at each read of the session.
func (a *watched) explodingMarkdown() {
	result := a.attack("A1", "64 KiB of *a_ in a chat session, read 100 times", func(ctx context.Context, heard *answers) {
		client := a.client("203.0.113.102")
		status, answer := a.call(ctx, client, http.MethodPost, "/v1/chat", nil, jsonOf(map[string]string{"agent": "parrot", "message": strings.Repeat("*a_", 64<<10/3)}))
		heard.add(status)
		var said struct{ Session string }
		if err := json.Unmarshal(answer, &said); err != nil {
			a.t.Errorf("chat answered %s %s", status, answer)
		}
		a.spread(ctx, 100, 1, func(int, int) {
			status, answer := a.call(ctx, client, http.MethodGet, "/v1/chat?agent=parrot", http.Header{"Chat-Session": {said.Session}}, nil)
			if !strings.Contains(string(answer), "*a_*a_") {
				status += " without the message"
			}
			heard.add(status)
		})
	})
	a.cheap(result, 50*time.Millisecond, 100<<20)
}

// deepJSON: 7.9 MB of nested JSON cost 9.2 seconds before they were refused (D5 of the same list).
func (a *watched) deepJSON() {
	token := a.token("deep")
	result := a.attack("D5", "requests of 7.9 MB of nested JSON", func(ctx context.Context, heard *answers) {
		const depth, parts = 9_900, 398
		data := `{"data":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `},`
		body := []byte(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"deep","role":"ROLE_USER","parts":[` +
			strings.Repeat(data, parts) + `{"text":"hello"}]}}}`)
		a.spread(ctx, 4, 1, func(int, int) {
			status, answer := a.call(ctx, a.client("203.0.113.103"), http.MethodPost, "/a2a/echo", http.Header{"Authorization": {"Bearer " + token}}, body)
			if strings.Contains(string(answer), `"error"`) {
				status += " with an error"
			}
			heard.add(status)
		})
	})
	a.cheap(result, 500*time.Millisecond, 100<<20)
}

// cheap bounds what an attack may cost: the processor time of one request, and the memory of the server.
func (*watched) cheap(r *row, each time.Duration, memory int64) {
	r.most = cost{each: each, memory: memory}
}

// costly says what of the attack cost more than it may; empty = nothing.
func (r row) costly() string {
	switch {
	case r.most.each > 0 && r.each() > r.most.each:
		return fmt.Sprintf("a request costs %s of a processor, want at most %s", r.each(), r.most.each)
	case r.most.memory > 0 && r.memory > r.most.memory:
		return fmt.Sprintf("the server takes %s more memory, want at most %s", mebibytes(r.memory), mebibytes(r.most.memory))
	}
	return ""
}

// heardOnly demands that all answers are among these.
func (a *watched) heardOnly(r *row, allowed ...string) {
	a.t.Helper()
	known := 0
	for _, one := range allowed {
		known += r.answers.get(one)
	}
	if total := r.answers.total(); known != total || total == 0 {
		a.t.Errorf("%s %s: the attacker heard %s; want only %v", r.point, r.name, r.answers, allowed)
	}
}

// forged is a mail that proves nothing.
type forged struct {
	from, agent, key, mediaType, body string

	text []byte // nil = bytes makes it
}

func (f forged) bytes() []byte {
	return fmt.Appendf(nil, "From: %s@nowhere.example\r\nTo: %s@%s\r\nSubject: %s\r\nDate: %s\r\nMessage-ID: <%s@nowhere.example>\r\nMIME-Version: 1.0\r\n"+
		"Content-Type: %s; charset=utf-8\r\n\r\n%s\r\n", cmp.Or(f.from, "eve"), f.agent, domain, f.key, time.Now().Format(time.RFC1123Z), f.key, f.mediaType, fold(f.body))
}

// forger brings mails that prove nothing from one address, over one connection or over another one when it was cut.
type forger struct {
	w       *world
	source  string
	heard   *answers
	session *session
}

func (f *forger) bring(ctx context.Context, mail forged) {
	var err error
	if f.session == nil {
		f.session, err = f.w.post(ctx, f.source)
	}
	if err == nil {
		text := mail.text
		if text == nil {
			text = mail.bytes()
		}
		err = f.session.send("eve@nowhere.example", mail.agent+"@"+domain, text)
	}
	refusal, is := errors.AsType[*textproto.Error](err)
	switch {
	case err == nil:
		f.heard.add("250")
		return
	case is:
		f.heard.add(fmt.Sprint(refusal.Code))
	default:
		f.heard.add("a broken connection")
	}
	if !is || refusal.Code == 421 {
		f.end()
	}
}

func (f *forger) end() {
	if f.session != nil {
		f.session.end()
		f.session = nil
	}
}

// fold keeps lines below the longest that mail has (RFC 5322, section 2.1.1).
func fold(text string) string {
	var folded strings.Builder
	for len(text) > 900 {
		folded.WriteString(text[:900] + "\r\n")
		text = text[900:]
	}
	return folded.String() + text
}
