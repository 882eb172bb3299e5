package email

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/email/emailtest"
	"inbox/normalized"
)

// TestOddListsNameTheAgent: a list of recipients that net/mail refuses names the agent all the same.
func TestOddListsNameTheAgent(t *testing.T) {
	for to, others := range map[string][]string{
		"echo@inbox.test;":                             nil,
		"root, echo@inbox.test":                        nil,
		"Smith, Bob <bob@they.test>, echo@inbox.test":  {"@bob@they.test"},
		"echo@inbox.test, not-an-address":              nil,
		"bob@they.test; Echo <echo@inbox.test>":        {"@bob@they.test"},
		`"Smith, Bob <bob@they.test>, echo@inbox.test`: {"@bob@they.test"},
	} {
		t.Run(to, func(t *testing.T) {
			s := start(t, nil)
			s.greet().send("bounces@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("hello", "To: "+to)), "250")
			in := s.engine.Only(t)
			if in.NoReply != "" || !in.Message.Sender.Verified {
				t.Errorf("not answered because %q, verified %t", in.NoReply, in.Message.Sender.Verified)
			}
			var named []string
			for _, one := range in.Message.Surface.To {
				named = append(named, one.Address)
			}
			want := append(slices.Clone(others), "@echo@inbox.test")
			if slices.Sort(named); !slices.Equal(named, want) && !slices.Equal(named, append([]string{"@echo@inbox.test"}, others...)) {
				t.Errorf("To has %q, want %q", named, want)
			}
		})
	}
}

// TestOddAuthors: people whose programs write From fields beyond the grammar are accepted, as the mailbox that each program reads.
func TestOddAuthors(t *testing.T) {
	for from, want := range map[string]string{
		"Kock, Arne <a@sender.test>":          "@a@sender.test",
		"[List] My List <a@sender.test>":      "@a@sender.test",
		"a@sender.test <a@sender.test>":       "@a@sender.test",
		"ann..b.@sender.test":                 "@ann..b.@sender.test",
		"ann@bank.test, Arne <a@sender.test>": "",
		"ann@bank.test <a@sender.test>":       "",
	} {
		t.Run(from, func(t *testing.T) {
			s := start(t, nil)
			mail := emailtest.Signed(t, emailtest.Letter("hello", "From: "+from))
			if want == "" {
				s.greet().send("a@sender.test", []string{"echo@inbox.test"}, mail, "554 5.6.0")
				return
			}
			s.greet().send("a@sender.test", []string{"echo@inbox.test"}, mail, "250")
			if in := s.engine.Only(t); in.Message.Sender.Address.String() != want || !in.Message.Sender.Verified || in.NoReply != "" {
				t.Errorf("%+v, not answered because %q", in.Message.Sender, in.NoReply)
			}
		})
	}
}

// TestDotsOfOldAddresses: a provider gave out addresses with dots where RFC 5321 has none. They are answered, in quotes.
func TestDotsOfOldAddresses(t *testing.T) {
	var mu sync.Mutex
	var rcpt []string
	k := emailtest.StartSink(t, false, nil, "")
	k.Set(func(step, argument string) error {
		mu.Lock()
		defer mu.Unlock()
		if step == "rcpt" {
			rcpt = append(rcpt, argument)
		}
		return nil
	})
	s := start(t, func(o *Options) { o.Mode, o.Smarthost = ModeSmarthost, "smtp://"+k.Address })
	w := s.greet()
	for i, from := range []string{"ann..b.@sender.test", `"ann..b."@sender.test`} {
		mail := emailtest.Signed(t, emailtest.Letter("hello", "From: "+from, "Message-ID: <dots"+strings.Repeat("x", i)+"@sender.test>"))
		w.send(from, []string{"echo@inbox.test"}, mail, "250")
		in := s.engine.All()[i]
		if in.Message.Sender.Address.String() != "@ann..b.@sender.test" || !in.Message.Sender.Verified || in.NoReply != "" {
			t.Fatalf("%+v, not answered because %q", in.Message.Sender, in.NoReply)
		}
		if _, err := s.deliver(replyTo(in, normalized.Text("an answer"))); err != nil {
			t.Fatal(err)
		}
	}

	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"ann..b.@sender.test", "ann..b.@sender.test"}, rcpt); diff != "" {
		t.Error(diff)
	}
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for _, mail := range k.Mails {
		if !strings.Contains(mail, "To: <\"ann..b.\"@sender.test>\r\n") {
			t.Errorf("the answer:\n%s", mail)
		}
	}
}
