package mailtable

import (
	"strings"
	"testing"

	"inbox/adapters/email"
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/operator"
)

// before brings another mail first, so that a row can refer to it. It waits for the reply.
func before(from, id, subject string, refer ...string) func(*testing.T, *world, string, string) string {
	return func(t *testing.T, w *world, domain, mail string) string {
		t.Helper()
		first := row{head: append([]string{"From: " + from, "Message-ID: <" + id + ">", "Subject: " + subject}, refer...)}
		text := librarySignature(t, w.key, domain, strings.ReplaceAll(first.write(), "{d}", domain))
		if answer := w.dial(t).bring("mail."+domain, "ann@"+domain, []string{"echo@inbox.test"}, text); !strings.HasPrefix(answer, "250") {
			t.Fatalf("the first mail: %s", answer)
		}
		w.reply(t, domain, "echo")
		return mail
	}
}

// inThread compares the conversation with the one of the sender that begins with a root, and what the reply refers to.
func inThread(root string, references ...string) func(*testing.T, operator.Shown, load.Received) {
	return func(t *testing.T, shown operator.Shown, reply load.Received) {
		t.Helper()
		_, domain, _ := strings.Cut(shown.Turn.Message.ID, "@")
		root := strings.ReplaceAll(root, "{d}", domain)
		if want := exchange.ConversationID(email.ChannelName, "echo", shown.Turn.Principal, root); shown.Turn.ThreadID != want {
			t.Errorf("the thread is not that of %s", root)
		}
		if got, want := strings.Join(strings.Fields(reply.Header.Get("References")), " "), strings.ReplaceAll(strings.Join(references, " "), "{d}", domain); references != nil && got != want {
			t.Errorf("references of the reply %q; want %q", got, want)
		}
	}
}

// threads is which conversation a mail belongs to, and what the reply refers to.
func threads() []row {
	first := before("ann@{d}", "first@{d}", "A question")
	return []row{
		{name: "a new conversation", check: inThread("m@{d}", "<m@{d}>")},
		{name: "In-Reply-To of a known mail", alter: first, head: []string{"In-Reply-To: <first@{d}>"}, check: inThread("first@{d}", "<first@{d}>", "<m@{d}>")},
		{name: "References alone", alter: first, head: []string{"References: <nothing@{d}> <first@{d}>"}, check: inThread("first@{d}")},
		{name: "References from the last to the first", alter: first, head: []string{"References: <first@{d}> <nothing@{d}>", "In-Reply-To: <nothing@{d}>"}, check: inThread("first@{d}")},
		{name: "an equal subject does not join", alter: first, check: inThread("m@{d}")},
		{name: "an unknown root makes a thread of the sender", head: []string{"References: <root@else.test> <last@else.test>"}, check: inThread("root@else.test", "<root@else.test>", "<last@else.test>", "<m@{d}>")},
		{name: "a stranger does not join", alter: first, head: []string{"From: eve@{d}", "In-Reply-To: <first@{d}>"}, check: inThread("m@{d}")},
		{name: "In-Reply-To of two ids is none", alter: first, head: []string{"In-Reply-To: <first@{d}> <x@{d}>"}, check: inThread("m@{d}")},
		{name: "In-Reply-To with words around", alter: first, head: []string{"In-Reply-To: Your message of Saturday <first@{d}>"}, check: inThread("first@{d}")},
		{name: "ids that are none are left out", head: []string{"References: <a b@x> nonsense <ok@else.test>"}, check: inThread("ok@else.test", "<ok@else.test>", "<m@{d}>")},
		{name: "long references are cut in the reply", head: []string{"References: " + repeatedIDs(60)}, check: func(t *testing.T, _ operator.Shown, reply load.Received) {
			if n := len(strings.Fields(reply.Header.Get("References"))); n > 21 {
				t.Errorf("%d references", n)
			}
		}},
		{name: "the subject is not stacked", head: []string{"Subject: RE: Re: AW: Lunch", "In-Reply-To: <x@{d}>"}, check: subject("Re: Lunch")},
		{name: "the subject of a list keeps its mark", head: []string{"Subject: [team] Lunch"}, check: subject("Re: [team] Lunch")},
		{name: "Thread-Topic is kept", head: []string{"Thread-Topic: Lunch", "Thread-Index: AQHVxPTbNFvsFbxRxkG+7gkYlJ3Xcw=="}, check: func(t *testing.T, _ operator.Shown, reply load.Received) {
			if reply.Header.Get("Thread-Topic") != "Lunch" || len(reply.Header.Get("Thread-Index")) <= 32 {
				t.Errorf("topic %q, index %q", reply.Header.Get("Thread-Topic"), reply.Header.Get("Thread-Index"))
			}
		}},
		{name: "the reply says what it is", check: func(t *testing.T, _ operator.Shown, reply load.Received) {
			for name, want := range map[string]string{"In-Reply-To": "<m@", "Auto-Submitted": "auto-replied", "X-Auto-Response-Suppress": "All", "Precedence": ""} {
				if got := reply.Header.Get(name); !strings.HasPrefix(got, want) || want == "" && got != "" {
					t.Errorf("%s: %q", name, got)
				}
			}
		}},
		{name: "the tag comes back", to: []string{"echo+notes@inbox.test"}, head: []string{"To: echo+notes@inbox.test"}, check: func(t *testing.T, _ operator.Shown, reply load.Received) {
			if !strings.Contains(reply.Header.Get("From"), "echo+notes@inbox.test") {
				t.Errorf("from %q", reply.Header.Get("From"))
			}
		}},
	}
}

func repeatedIDs(n int) string {
	var out strings.Builder
	for i := range n {
		out.WriteString("<ref" + string(rune('a'+i%26)) + strings.Repeat("x", i/26) + "@else.test>\n ")
	}
	return strings.TrimSpace(out.String())
}
