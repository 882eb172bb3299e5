package email

import (
	"fmt"
	"strings"
	"testing"

	"inbox/adapters/email/emailtest"
)

// TestChainsOfReplies: mails from new addresses are counted with what led to them.
func TestChainsOfReplies(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	count := 0
	send := func(from string, lines ...string) (chain, thread string, astray bool) {
		count++
		lines = append(lines, "From: "+from, fmt.Sprintf("Message-ID: <c%d@sender.test>", count))
		w.send(from, []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter(fmt.Sprint("words ", count), lines...)), "250")
		in := s.engine.All()[count-1]
		return in.Chain, in.Message.ThreadID, in.Astray
	}
	answer := func(question int) string {
		id := fmt.Sprintf("01936f2a-0000-7000-8000-%012d@inbox.test", question)
		s.engine.mu.Lock()
		s.engine.replies[id] = question
		s.engine.mu.Unlock()
		return "In-Reply-To: <" + id + ">"
	}

	chain, root, astray := send("case-1@sender.test", "Subject: A question")
	if chain != "" || astray {
		t.Errorf("a first mail has the chain %q", chain)
	}
	for round := range 4 {
		chain, thread, astray := send(fmt.Sprintf("case-%d@sender.test", round+2), answer(round), "Subject: Other words")
		if chain != root || thread == root || !astray {
			t.Errorf("round %d: chain %q in %q, astray %t; want the chain %q", round, chain, thread, astray, root)
		}
	}
	if chain, thread, _ := send("case-1@sender.test", answer(0)); chain != "" || thread != root {
		t.Errorf("the asker goes on in %q with the chain %q", thread, chain)
	}

	subject, _, astray := send("case-7@sender.test", "Subject: Re: A question")
	if !strings.HasPrefix(subject, "subject ") || astray {
		t.Errorf("a reply without ids has the chain %q, astray %t", subject, astray)
	}
	if again, _, _ := send("case-8@sender.test", "Subject: AW: a QUESTION", "In-Reply-To: <unknown@else.test>"); again != subject {
		t.Errorf("another one has the chain %q, want %q", again, subject)
	}
	if other, _, _ := send("case-9@sender.test", "Subject: Re: Lamps"); other == subject {
		t.Error("another subject is in the same chain")
	}
}

// TestUnprovenMailsUseUpNoChainOfProvenSenders: whoever states an address of a domain, or knows the ID of an answer, could otherwise silence the people
// who prove who they are.
func TestUnprovenMailsUseUpNoChainOfProvenSenders(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	const answered = "01936f2a-0000-7000-8000-000000000000@inbox.test"
	count := 0
	chain := func(proven bool, lines ...string) string {
		count++
		from := fmt.Sprintf("case-%d@plain.test", count)
		mail := emailtest.Letter(fmt.Sprint("words ", count), append(lines, "From: "+from, fmt.Sprintf("Message-ID: <u%d@plain.test>", count))...)
		if proven {
			from = fmt.Sprintf("case-%d@sender.test", count)
			mail = emailtest.Signed(t, strings.ReplaceAll(mail, "@plain.test", "@sender.test"))
		}
		w.send(from, []string{"echo@inbox.test"}, mail, "250")
		in := s.engine.All()[count-1]
		if in.Message.Sender.Verified != proven {
			t.Fatalf("mail %d: proven %t", count, in.Message.Sender.Verified)
		}
		return in.Chain
	}

	if got := chain(true, "Subject: A question"); got != "" {
		t.Errorf("a first mail has the chain %q", got)
	}
	s.engine.mu.Lock()
	s.engine.replies[answered] = 0
	s.engine.mu.Unlock()
	proven := chain(true, "In-Reply-To: <"+answered+">")
	unproven := chain(false, "In-Reply-To: <"+answered+">")
	if proven == "" || unproven == "" || unproven == proven {
		t.Errorf("both answer the same mail: the proven one has the chain %q, the other one %q", proven, unproven)
	}
	if again := chain(false, "In-Reply-To: <"+answered+">"); again != unproven {
		t.Errorf("the next unproven one has the chain %q; want %q", again, unproven)
	}
}
