package attacks

import (
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"strings"
	"testing"
	"time"
)

const echo = "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n"

// TestA1ExplodingMail: a mail of 36 KiB cost 15 CPU seconds and one of 132 KiB 63, before any rule was asked.
func TestA1ExplodingMail(t *testing.T) {
	w := begin(t, settings{agents: echo})
	result := w.measure("A1", "HTML mail of 400 nested quotations, 36–132 KiB", func(ctx context.Context, heard *answers) {
		for i := range 20 {
			html := strings.Repeat("<blockquote>", 400) + strings.Repeat("x<br>", []int{6_400, 13_000, 26_000}[i%3])
			heard.add(w.forge(ctx, fmt.Sprintf("203.0.113.%d", 100+i/10), "echo", fmt.Sprintf("explodes-%d", i), "text/html", html))
		}
	})
	atMost(t, "CPU of one mail", result.each(), 500*time.Millisecond)
	atMost(t, "memory", result.memory, 200<<20)
}

// forge sends a mail that proves nothing, and gives how it was answered.
func (w *world) forge(ctx context.Context, source, agent, key, mediaType, body string) string {
	mail := fmt.Sprintf("From: eve@nowhere.example\r\nTo: %s@%s\r\nSubject: %s\r\nDate: %s\r\nMessage-ID: <%s@nowhere.example>\r\nMIME-Version: 1.0\r\n"+
		"Content-Type: %s; charset=utf-8\r\n\r\n%s\r\n", agent, domain, key, time.Now().Format(time.RFC1123Z), key, mediaType, fold(body))
	session, err := w.post(ctx, source)
	if err == nil {
		defer session.end()
		err = session.send("eve@nowhere.example", agent+"@"+domain, []byte(mail))
	}
	if refusal, is := errors.AsType[*textproto.Error](err); is {
		return fmt.Sprint(refusal.Code)
	}
	if err != nil {
		return err.Error()
	}
	return "250"
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
