package email

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/email/message"
	"inbox/normalized"
)

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
				fields, _, _ := message.Split(kept.Data)
				if got := fields.Get(chainField); got != c.want || fields.Has(chainField) != (c.want != "") {
					t.Errorf("%s %q, want %q", chainField, got, c.want)
				}
				s.verifyOurs(kept.Data)
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
