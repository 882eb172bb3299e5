package email

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
	"inbox/normalized"
)

var ofList = []string{
	"List-Id: Developers <dev.lists.sender.test>", "List-Post: <mailto:dev@lists.sender.test>", "Precedence: list",
	"List-Unsubscribe: <https://lists.sender.test/x>, <mailto:dev-leave@lists.sender.test?subject=bye>", "X-BeenThere: dev@lists.sender.test",
}

// TestMailingLists: nothing that came through a list is answered, unless it is wanted and the mail names the agent in To.
func TestMailingLists(t *testing.T) {
	for _, test := range []struct {
		name    string
		wanted  bool
		headers []string
		silent  string // part of the reason; empty = answered
	}{
		{"by default", false, append([]string{"To: echo@inbox.test, dev@lists.sender.test"}, ofList...), "Precedence: list"},
		{"named in To", true, append([]string{"To: dev@lists.sender.test, echo@inbox.test"}, ofList...), ""},
		{"named in Cc", true, append([]string{"To: dev@lists.sender.test", "Cc: echo@inbox.test"}, ofList...), "Precedence: list"},
		{"a subscriber", true, append([]string{"To: dev@lists.sender.test"}, ofList...), "Precedence: list"},
		{"only Precedence", true, []string{"Precedence: list"}, ""},
		{"only List-Id", true, []string{"List-Id: <dev.lists.sender.test>"}, ""},
		{"bulk", true, []string{"List-Id: <dev.lists.sender.test>", "Precedence: bulk"}, "Precedence: bulk"},
		{"a newsletter", true, []string{"List-Unsubscribe: <https://sender.test/x>"}, "List-Unsubscribe"},
		{"a campaign", true, append([]string{"Feedback-ID: a:b:c", "X-Auto-Response-Suppress: All"}, ofList...), "Feedback-ID"},
		{"an autoresponder on the list", true, append([]string{"Auto-Submitted: auto-replied"}, ofList...), "Auto-Submitted"},
		{"the list wrote it", true, append([]string{"From: Ann via Developers <ann@sender.test>", "List-Post: <mailto:Ann@sender.test>"}, ofList[2:3]...), "Precedence: list"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, func(o *Options) {
				if test.wanted {
					o.AnswersLists = func(agent string) bool { return agent == "echo" }
				}
			})
			w := s.greet()
			w.send("dev-bounces@lists.sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("hello", test.headers...)), "250")
			reason := s.engine.Only(t).NoReply
			if (reason == "") != (test.silent == "") || !strings.Contains(reason, test.silent) {
				t.Errorf("not answered because %q, want %q", reason, test.silent)
			}
		})
	}
}

// TestAnswersToListMailGoToTheAuthorAlone: lists write themselves into Reply-To, and agents name whom they like.
func TestAnswersToListMailGoToTheAuthorAlone(t *testing.T) {
	s := start(t, func(o *Options) { o.AnswersLists = func(string) bool { return true } })
	lines := append([]string{"To: dev@lists.sender.test, echo@inbox.test", "Cc: bob@sender.test", "Reply-To: dev@lists.sender.test"}, ofList...)
	s.greet().send("dev-bounces@lists.sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("hello", lines...)), "250")
	in := s.engine.Only(t)
	if !in.Message.Sender.Verified {
		t.Fatal("the mail is not verified")
	}
	reply := replyTo(in, normalized.Text("hi"))
	reply.Response.To = []string{"dev@lists.sender.test", "dev-leave@lists.sender.test"}
	reply.Response.Cc = []string{"bob@sender.test"}
	if _, err := s.deliver(reply); err != nil {
		t.Fatal(err)
	}
	var to []string
	for _, mail := range s.captured() {
		to = append(to, mail.To...)
	}
	slices.Sort(to)
	if diff := cmp.Diff([]string{"ann@sender.test", "bob@sender.test"}, to); diff != "" {
		t.Error(diff)
	}
}

func TestAnswerOf(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	for id, known := range map[string]bool{
		"<01936f2a-0000-7000-8000-000000000001@inbox.test>": true, "<01936F2A-0000-7000-8000-000000000001@INBOX.test>": true,
		"<01936f2a-0000-7000-8000-000000000001@other.test>": false, "<2b0f1a3e-0000-4000-8000-000000000001@inbox.test>": false, "<x@inbox.test>": false,
	} {
		w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("hello", "Message-ID: "+strings.Replace(id, "<", "<a", 1), "In-Reply-To: "+id)), "250")
		all := s.engine.All()
		if at := all[len(all)-1].AnswerOf; at.IsZero() == known || known && at.UnixMilli() != 0x01936f2a0000 {
			t.Errorf("%s: %v", id, at)
		}
	}
}

func TestChainOfAMail(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxConnectionsPerIP = 100 })
	for i, c := range []struct {
		written []string
		want    *normalized.AgentChain
		refused bool
	}{
		{nil, nil, false},
		{[]string{"hop=2; max=4"}, &normalized.AgentChain{Hop: 2, MaxHops: 4}, false},
		{[]string{"hop=4; max=4"}, &normalized.AgentChain{Hop: 4, MaxHops: 4, IsFinal: true}, false},
		{[]string{"hop=1;max=1"}, &normalized.AgentChain{Hop: 1, MaxHops: 1, IsFinal: true}, false},
		{[]string{"hop=2;\r\n max=4"}, &normalized.AgentChain{Hop: 2, MaxHops: 4}, false},
		{[]string{"hop=5; max=4"}, nil, true},
		{[]string{"hop=0; max=4"}, nil, true},
		{[]string{"hop=-1; max=4"}, nil, true},
		{[]string{"hop=1.5; max=4"}, nil, true},
		{[]string{"hop=99; max=4"}, nil, true},
		{[]string{"hop=+1; max=4"}, nil, true},
		{[]string{"hop=01; max=4"}, nil, true},
		{[]string{"hop=1; max=9999999999999999999999"}, nil, true},
		{[]string{"hop=1"}, nil, true},
		{[]string{"max=4; hop=1"}, nil, true},
		{[]string{"hop=1; max=4; x=y"}, nil, true},
		{[]string{""}, nil, true},
		{[]string{"hop=1; max=4", "hop=1; max=4"}, nil, true},
	} {
		id := "chain" + strings.Repeat("x", i)
		lines := []string{"Message-ID: <" + id + "@sender.test>"}
		for _, value := range c.written {
			lines = append(lines, chainField+": "+value)
		}
		in := s.question(true, lines...)
		if diff := cmp.Diff(c.want, in.Message.RecipientCapabilities.AgentChain); diff != "" {
			t.Errorf("%q: %s", c.written, diff)
		}
		if (len(in.Rejected) == 1 && in.Rejected[0].Code == codeChain) != c.refused || strings.HasPrefix(in.NoReply, codeChain) != c.refused {
			t.Errorf("%q: no reply because %q, rejected %+v", c.written, in.NoReply, in.Rejected)
		}
		if in.FromAgent != (c.written != nil) {
			t.Errorf("%q: from an agent %v", c.written, in.FromAgent)
		}
	}
	if in := s.question(true, "Message-ID: <auto@sender.test>", "Auto-Submitted: auto-generated"); !in.FromAgent || in.NoReply == "" {
		t.Errorf("automatic mail: from an agent %v, no reply because %q", in.FromAgent, in.NoReply)
	}
	if in := s.question(true, "Message-ID: <person@sender.test>", "Auto-Submitted: no"); in.FromAgent {
		t.Error("a person is taken for an agent")
	}
}

func TestChainOfAReply(t *testing.T) {
	for name, c := range map[string]struct {
		question []string
		cc       []string
		known    *normalized.AgentChain // what the engine knows of the thread
		want     string
	}{
		"of a person":                {nil, nil, nil, ""},
		"of a chained mail":          {[]string{chainField + ": hop=2; max=3"}, nil, nil, "hop=3; max=3"},
		"of the last hop":            {[]string{chainField + ": hop=3; max=3"}, nil, nil, "hop=4; max=3"},
		"known by the thread":        {nil, nil, &normalized.AgentChain{Hop: 1, MaxHops: 4}, "hop=2; max=4"},
		"to others":                  {nil, []string{"@helper@agents.test"}, nil, "hop=1; max=7"},
		"chained and to others":      {[]string{chainField + ": hop=1; max=4"}, []string{"@helper@agents.test"}, nil, "hop=2; max=4"},
		"to others who are left out": {nil, []string{"@helper@inbox.test"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(o *Options) { o.AllowNewRecipients, o.MaxHops = true, func(string) int { return 7 } })
			reply := replyTo(s.question(true, c.question...), normalized.Text("x"))
			if c.known != nil {
				reply.Message.RecipientCapabilities.AgentChain = c.known
			}
			reply.Response.Cc = c.cc
			if _, err := s.deliver(reply); err != nil {
				t.Fatal(err)
			}
			for _, kept := range s.captured() {
				fields, _, _ := message.Split(kept.Raw)
				if got := fields.Get(chainField); got != c.want || fields.Has(chainField) != (c.want != "") {
					t.Errorf("%s %q, want %q", chainField, got, c.want)
				}
				s.verifyOurs(kept.Raw)
			}
		})
	}
}

func FuzzReadChain(f *testing.F) {
	f.Add("hop=2; max=4")
	f.Add("hop=1;\r\n max=99")
	f.Add("hop=+1; max=4;")
	f.Fuzz(func(t *testing.T, value string) {
		fields, _, err := message.Split([]byte(chainField + ": " + value + "\r\n\r\n"))
		if err != nil {
			return
		}
		chain, err := readChain(fields)
		if err != nil || chain == nil {
			return
		}
		if chain.Hop < 1 || chain.Hop > chain.MaxHops || chain.IsFinal != (chain.Hop == chain.MaxHops) {
			t.Errorf("%q: %+v", value, chain)
		}
	})
}

// TestSubjectsOfPrograms: the same words begin subjects of people who write about automatic answers.
func TestSubjectsOfPrograms(t *testing.T) {
	for subject, want := range map[string]string{
		"Automatische Antwort: Lampe":             "strong",
		"Automatische Antwort":                    "strong",
		"Réponse automatique\u00a0: lampe":        "strong",
		"Abwesenheitsnotiz (Re: Lampe)":           "strong",
		"自動応答: ランプ":                               "strong",
		"自动答复：灯":                                  "strong",
		"Automatic reply: lamp":                   "strong",
		"Undelivered Mail Returned to Sender":     "strong",
		"Undelivered mail returned to me, why?":   "weak",
		"Automatische Antwort einrichten":         "weak",
		"Abwesenheitsnotiz für Outlook schreiben": "weak",
		"Réponse automatique sous Outlook ?":      "weak",
		"Respuesta automática de mi cuenta":       "weak",
		"自動応答の設定について":                             "weak",
		"Автоматический ответ не работает":        "weak",
		"Re: Automatische Antwort: Lampe":         "",
		"Lampe":                                   "",
	} {
		fields, _, err := message.Split([]byte("Subject: " + subject + "\r\n\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if one, is := subjectMark(fields); is {
			got = map[bool]string{true: "weak", false: "strong"}[one.weak]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", subject, got, want)
		}
	}
}
