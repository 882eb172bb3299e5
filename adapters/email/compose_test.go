package email

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
	"inbox/adapters/email/outbound"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/golden"
	"inbox/internal/markup/markuptest"
	"inbox/normalized"
	"inbox/policypart"
)

func TestAnswersQuoteWhereTheOperatorWantsIt(t *testing.T) {
	s := start(t, func(o *Options) { o.QuoteLines = 3 })
	mail := emailtest.Signed(t, emailtest.Letter("What <is> it?\n\n> an older text\nSecond line\nThird line\nFourth line"))
	s.greet().send("ann@sender.test", []string{"echo@inbox.test"}, mail, "250")
	reply := replyTo(s.engine.Only(t), normalized.Markdown("It is **this**."))
	reply.Message.ReceivedAt.Time = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	if _, err := s.deliver(reply); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, filepath.Join("reply", "quoted.golden"), unsigned(s.captured()[0].Raw))

	s.adapter.options.AllowNewRecipients = true
	reply.ID, reply.Response.Cc = "01936f2a-0000-7000-8000-000000000002", []string{"@new@sender.test"}
	if _, err := s.deliver(reply); err != nil {
		t.Fatal(err)
	}
	if text := string(s.captured()[1].Raw); strings.Contains(text, "wrote:") {
		t.Errorf("somebody new is shown the question:\n%s", text)
	}
}

// TestPlainFormOfAnAnswerHasNoMarks: who reads the plain form reads text, and a signature is no heading.
func TestPlainFormOfAnAnswerHasNoMarks(t *testing.T) {
	for _, c := range []struct{ source, plain, html string }{
		{"## Plan\n\n1. **one**\n2. [two](https://x.test/)", "Plan\n\n1. one\n2. two <https://x.test/>", "<h2>Plan</h2>"},
		{"Yours,\nthe agent\n-- \nEcho *Ltd*\nhttps://x.test", "Yours,\nthe agent\n\n-- \nEcho Ltd\nhttps://x.test", "<div>-- </div>"},
		{"Yours\n--\nEcho", "Yours\n\n-- \nEcho", "<div>-- </div>"},
		{"a\n```\n-- \n```\nx", "a\n\n    --\n\nx", "<pre><code>-- "},
		{"Heading\n---\nx", "Heading\n\nx", "<h2>Heading</h2>"},
		{"a ![cat](https://x.test/c.png)", "a cat <https://x.test/c.png>", `<a href="https://x.test/c.png">cat</a>`},
		{strings.Repeat("*a_", 20_000), strings.Repeat("*a_", 20_000), "<p>*a_*a_"},
	} {
		body := &composer{}
		body.addText(normalized.Markdown(c.source))
		if got := body.plain.String(); got != c.plain {
			t.Errorf("%.60q:\n got %.200q\nwant %.200q", c.source, got, c.plain)
		}
		if !strings.Contains(body.html.String(), c.html) || strings.Contains(body.html.String(), "<h2>Yours") {
			t.Errorf("%.60q: %.300s", c.source, body.html.String())
		}
	}
}

// TestFilesKeepTheParametersOfTheirType: without its method a calendar is no invitation (RFC 6047, section 2.4).
func TestFilesKeepTheParametersOfTheirType(t *testing.T) {
	for declared, want := range map[string]string{
		"text/calendar; method=REQUEST; component=VEVENT":                 "text/calendar; charset=utf-8; component=VEVENT; method=REQUEST; name=a.ics",
		`Text/Calendar; Method="REQUEST"; charset="UTF-8"`:                "text/calendar; charset=utf-8; method=REQUEST; name=a.ics",
		"text/plain; charset=iso-8859-1; name=b.txt":                      "text/plain; charset=utf-8; name=a.ics",
		"text/csv; header=present; x-unix-mode=0644":                      "text/csv; charset=utf-8; header=present; name=a.ics",
		"model/vnd.x; a*=utf-8''%0D%0ABcc%3A%20x%40y.test":                "model/vnd.x; a*=utf-8''%0D%0ABcc%3A%20x%40y.test; name=a.ics",
		"application/json; profile=\"" + strings.Repeat("p", 2000) + "\"": "application/json; name=a.ics",
		"multipart/mixed; boundary=x":                                     "application/octet-stream; name=a.ics",
	} {
		s := start(t, nil)
		file := normalized.Part{Kind: normalized.PartFile, Name: "a.ics", MIME: declared,
			BytesRef: &normalized.BytesRef{Kind: normalized.BytesInline, DataBase64: base64.StdEncoding.EncodeToString([]byte("a"))}}
		if _, err := s.deliver(replyTo(s.question(true), normalized.Text("Here."), file)); err != nil {
			t.Fatal(err)
		}
		fields, body, err := message.Split(s.captured()[0].Raw)
		if err != nil {
			t.Fatal(err)
		}
		root, err := (&message.Parser{}).Parse(fields, body, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(root.Children[1].Fields.Get("Content-Type")), " "); got != want {
			t.Errorf("%s leaves as %s, want %s", declared, got, want)
		}
	}
}

// TestTextTypesInAnySpelling: an adapter's caller may write the type of a text with a charset and in capitals.
func TestTextTypesInAnySpelling(t *testing.T) {
	body := &composer{}
	body.addText(normalized.Part{Kind: normalized.PartText, MIME: "Text/Markdown; charset=x-unknown", Content: "**a**"})
	body.addText(normalized.Part{Kind: normalized.PartText, MIME: "TEXT/HTML", Content: "<i>b</i>"})
	if got := body.html.String(); !strings.Contains(got, "<strong>a</strong>") || !strings.Contains(got, "<i>b</i>") {
		t.Error(got)
	}
}

func TestLargeFilesBecomeLinks(t *testing.T) {
	s := start(t, func(o *Options) {
		o.FileLink = func(reply exchange.Reply, part normalized.Part) string {
			return "https://inbox.test/media/" + part.Name + "?reply=" + reply.ID
		}
	})
	large := normalized.Part{Kind: normalized.PartFile, Name: "film.mp4", MIME: "video/mp4", Size: maxAttachedBytes + 1,
		BytesRef: &normalized.BytesRef{Kind: normalized.BytesContentAddressed, Digest: strings.Repeat("a", 64)}}
	if _, err := s.deliver(replyTo(s.question(true), normalized.Text("Here."), large)); err != nil {
		t.Fatal(err)
	}
	if text := string(s.captured()[0].Raw); !strings.Contains(text, "film.mp4: https://inbox.test/media/film.mp4?reply=3D0193") || strings.Contains(text, "multipart") {
		t.Error(text)
	}
}

func TestThreadIndexGrows(t *testing.T) {
	begun := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var head [8]byte
	binary.BigEndian.PutUint64(head[:], fileTime(begun))
	parent := base64.StdEncoding.EncodeToString(append(head[:6:6], "0123456789abcdef"...))
	for after, want := range map[time.Duration]uint32{
		time.Minute:              2288,              // 60 s in steps of 2^18 times 100 ns
		5 * 365 * 24 * time.Hour: 1<<31 | 187969207, // beyond 2^49 in steps of 2^23
	} {
		raw, err := base64.StdEncoding.DecodeString(answerIndex(parent, begun.Add(after)))
		if err != nil || len(raw) != indexHead+indexChild {
			t.Fatalf("%v, %d bytes", err, len(raw))
		}
		if got := binary.BigEndian.Uint32(raw[indexHead:]); got-want > 1 { // the head keeps only 6 of 8 bytes of the time
			t.Errorf("after %s: %d; want %d", after, got, want)
		}
	}
	for _, bad := range []string{"", "x", "AAAA", base64.StdEncoding.EncodeToString(make([]byte, 24)), base64.StdEncoding.EncodeToString(make([]byte, 22+5*101))} {
		if got := answerIndex(bad, begun); got != "" {
			t.Errorf("%q: %q", bad, got)
		}
	}
	s := start(t, nil)
	in := s.question(true, "Thread-Index: "+parent, "Thread-Topic: A topic")
	if _, err := s.deliver(replyTo(in, normalized.Text("x"))); err != nil {
		t.Fatal(err)
	}
	if fields, _, err := message.Split(s.captured()[0].Raw); err != nil || !strings.HasPrefix(fields.Get("Thread-Index"), parent[:28]) || fields.Get("Thread-Topic") != "A topic" {
		t.Errorf("%q, %v", fields.Get("Thread-Index"), err)
	}
}

func TestSubjectsKeepOnePrefix(t *testing.T) {
	for subject, want := range map[string]string{
		"Plan": "Re: Plan", "RE: re[3]: AW: Plan": "Re: Plan", "Fwd: Plan": "Re: Fwd: Plan", "回复：计划": "Re: 计划", "": "Re:", "Re:": "Re:",
		"Note: x": "Re: Note: x", "SV: VS: Antw: x": "Re: x", "a\r\nBcc: evil@x.test": "Re: a Bcc: evil@x.test",
	} {
		if got := replySubject(route{Subject: subject}); got != want {
			t.Errorf("%q: %q; want %q", subject, got, want)
		}
	}
}

// Whatever a question brings, the answer leaves, and its header has no line that we did not write.
func TestNoQuestionInjectsAField(t *testing.T) {
	s := start(t, nil)
	in := s.question(true)
	notes, _ := readRoute(in.Route)
	rapid.Check(t, func(t *rapid.T) {
		evil := rapid.StringOf(rapid.SampledFrom([]rune("ab \r\n\t\x00:<>@\"=?,;()ü\u202e\u2028"))).Draw
		notes := notes
		notes.Subject, notes.Topic, notes.Index = evil(t, "subject"), evil(t, "topic"), evil(t, "index")
		notes.From.Name = evil(t, "name")
		notes.MessageID, notes.References = evil(t, "id"), []string{evil(t, "reference"), "root@x.test"}
		reply := replyTo(in, normalized.Text(evil(t, "text")))
		people := s.adapter.outbox.audience(reply, notes)
		mail, err := s.adapter.outbox.renderer.render(t.Context(), reply, notes, people)
		if err != nil {
			t.Fatalf("the answer is lost: %v", err)
		}
		fields, _, err := message.Split(mail)
		if err != nil {
			t.Fatal(err)
		}
		known := "|From|To|Subject|Date|Message-ID|In-Reply-To|References|Thread-Topic|Thread-Index|Auto-Submitted|X-Auto-Response-Suppress|X-Loop|MIME-Version|Content-Type|Content-Transfer-Encoding|"
		for _, f := range fields {
			if !strings.Contains(known, "|"+f.Name+"|") {
				t.Fatalf("field %q in\n%s", f.Name, mail)
			}
		}
	})
}

func TestPolicyFileIsServedForItsHost(t *testing.T) {
	s := start(t, func(o *Options) { o.PolicyMode = outbound.PolicyEnforce })
	for host, want := range map[string]int{"mta-sts.inbox.test": 200, "MTA-STS.inbox.test:8080": 200, "inbox.test": 404, "mta-sts.evil.test": 404} {
		request := httptest.NewRequest(http.MethodGet, PolicyPath, nil)
		request.Host = host
		recorder := httptest.NewRecorder()
		s.adapter.Routes()[0].Handler.ServeHTTP(recorder, request)
		if recorder.Code != want {
			t.Errorf("%s: %d", host, recorder.Code)
		}
		if want != http.StatusOK {
			continue
		}
		if text, _ := outbound.PolicyFile(outbound.PolicyEnforce, "mx.inbox.test"); recorder.Body.String() != text || recorder.Header().Get("Content-Type") != "text/plain" {
			t.Errorf("%q", recorder.Body)
		}
	}
}

func TestHostileMarkdownOfAnswersCostsItsLength(t *testing.T) {
	markuptest.CostsItsLength(t, markuptest.Markdown, 64<<10, func(source string) { new(composer).addText(normalized.Markdown(source)) })
}

func consent(change ...func(*policypart.Part)) normalized.Part {
	expires := identity.At(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC))
	part := policypart.Part{
		Kind: policypart.ConsentRequired, Title: "Please allow", Message: "I need <your> calendar.\nOnly once.",
		URL: "https://inbox.test/policy/id?a=1&b=2", ActionLabel: "Allow", ExpiresAt: &expires,
		MessageTranslations: map[string]policypart.Translation{"de": {Title: "Bitte erlauben", Message: "Ich brauche Ihren Kalender."}, "fr": {Message: "Il me faut votre agenda."}},
	}
	for _, apply := range change {
		apply(&part)
	}
	return normalized.Part{Kind: normalized.PartPolicy, Policy: &part}
}

// presented delivers a reply and returns the only mail of it.
func (s *setup) presented(reply exchange.Reply) []byte {
	s.t.Helper()
	before := len(s.captured())
	if _, err := s.deliver(reply); err != nil {
		s.t.Fatal(err)
	}
	mails := s.captured()
	if len(mails) != before+1 || len(mails[before].To) != 1 {
		s.t.Fatalf("%d mails more, want one to one recipient", len(mails)-before)
	}
	s.verifyOurs(mails[before].Raw)
	return unsigned(mails[before].Raw)
}

func TestPolicyMails(t *testing.T) {
	for name, c := range map[string]struct {
		question []string
		parts    []normalized.Part
	}{
		"translated":        {[]string{"Accept-Language: de-AT, en;q=0.5"}, []normalized.Part{consent()}},
		"translated partly": {[]string{"Content-Language: fr"}, []normalized.Part{consent()}},
		"after other parts": {[]string{"Accept-Language: ja"}, []normalized.Part{consent(), normalized.Markdown("Before *that*:"), normalized.Text("two things.")}},
		"foreign":           {nil, []normalized.Part{consent(func(p *policypart.Part) { p.URL, p.ExpiresAt = "https://evil.test/policy/id", nil })}},
		"one line each": {nil, []normalized.Part{normalized.Markdown("*x*"), consent(func(p *policypart.Part) {
			p.Title, p.ActionLabel, p.Message = "a\r\nb\u202e", "Yes\nhttps://evil.test", "<a href=\"https://evil.test\">x</a>"
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			mail := s.presented(replyTo(s.question(true, c.question...), c.parts...))
			golden.Compare(t, filepath.Join("reply", "policy-"+strings.ReplaceAll(name, " ", "-")+".golden"), mail)
		})
	}
}

func TestSecretIsForTheAskerAlone(t *testing.T) {
	calls := 0
	s := start(t, func(o *Options) {
		o.AllowNewRecipients = true
		o.ReplyTo = func(string) string { return ReplyToSigned }
		o.Present = func(part policypart.Part) policypart.Part {
			calls++
			part.URL = "https://inbox.test/policy/secret"
			return part
		}
	})
	for name, c := range map[string]struct {
		lines  []string
		proven bool
		to     string
	}{
		"plain":                       {nil, true, "ann@sender.test"},
		"others in the conversation":  {[]string{"To: echo@inbox.test, bob@other.test", "Cc: carl@third.test"}, true, "ann@sender.test"},
		"signed Reply-To":             {[]string{"Reply-To: desk@far.test"}, true, "desk@far.test"},
		"Reply-To of the same domain": {[]string{"From: ann@plain.test", "Reply-To: eve@plain.test"}, false, "ann@plain.test"},
		"Reply-To elsewhere":          {[]string{"From: ann@plain.test", "Reply-To: eve@far.test"}, false, "ann@plain.test"},
	} {
		t.Run(name, func(t *testing.T) {
			lines := append([]string{"Message-ID: <" + strings.ReplaceAll(name, " ", ".") + "@x.test>"}, c.lines...)
			reply := replyTo(s.question(c.proven, lines...), consent())
			reply.ID += strings.ReplaceAll(name, " ", "-")
			reply.Response.To, reply.Response.Cc = []string{"@bob@other.test", "@eve@plain.test"}, []string{"@carl@third.test"}
			calls = 0
			plan, err := s.adapter.Plan(t.Context(), reply)
			if err != nil || len(plan.Destinations) != 1 || plan.Destinations[0].Address != c.to || calls != 0 {
				t.Fatalf("plan %+v, %v, %d calls", plan, err, calls)
			}
			if _, err := s.deliver(reply); err != nil {
				t.Fatal(err)
			}
			for _, kept := range s.captured() {
				if kept.ReplyID != reply.ID {
					continue
				}
				fields, _, _ := message.Split(kept.Raw)
				if to := fields.Addresses("To"); len(to) != 1 || to[0].Address() != c.to || fields.Has("Cc") || !bytes.Contains(kept.Raw, []byte("/policy/secret")) {
					t.Errorf("to %v:\n%s", to, kept.Raw)
				}
			}
		})
	}
}

// TestDemandAndAnswerAreOneThread: one question gets a demand and later its answer, and the sender may write under
// either of them.
func TestDemandAndAnswerAreOneThread(t *testing.T) {
	s := start(t, nil)
	in := s.question(true)
	demand, answer := replyTo(in, consent()), replyTo(in, normalized.Text("It is done."))
	demand.Notice, answer.ID = 1, "01936f2a-0000-7000-8000-000000000002"
	first, second := s.presented(demand), s.presented(answer)
	for _, mail := range [][]byte{first, second} {
		fields, _, _ := message.Split(mail)
		if fields.Get("In-Reply-To") != "<m1@sender.test>" || fields.Get("References") != "<m1@sender.test>" || fields.Get("Subject") != "Re: A question" {
			t.Errorf("thread:\n%s", mail)
		}
	}
	fields, _, _ := message.Split(first)
	ids := []string{message.ID(fields)}
	if fields, _, _ = message.Split(second); message.ID(fields) == ids[0] {
		t.Error("two mails with one Message-ID")
	}
	for i, id := range append(ids, message.ID(fields)) {
		s.engine.replies[id] = 0
		next := s.question(true, "Message-ID: <next"+string(rune('0'+i))+"@sender.test>", "In-Reply-To: <"+id+">", "References: <m1@sender.test> <"+id+">")
		if next.Message.ThreadID != in.Message.ThreadID {
			t.Errorf("under %s: thread %s", id, next.Message.ThreadID)
		}
	}
}
