package email

import (
	"path/filepath"
	"testing"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// opening is a conversation that our agent begins, as the engine keeps it.
func (s *setup) opening(address string) exchange.Inbound {
	s.t.Helper()
	notes, err := s.adapter.Open(s.t.Context(), "ECHO", address, "")
	if err != nil {
		s.t.Fatal(err)
	}
	in := exchange.Inbound{Route: notes, Message: normalized.Message{
		ID: "opening-1", ThreadID: "urn:opened", Recipient: "@echo@inbox.test", ReceivedVia: normalized.ViaEmail,
		Sender: normalized.Sender{Address: "@echo@inbox.test", Verified: true},
	}}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.engine.received = append(s.engine.received, in)
	return in
}

func TestOpenBeginsAConversation(t *testing.T) {
	s := start(t, nil)
	reply := replyTo(s.opening("ann@sender.test"), consent())
	golden(t, filepath.Join("reply", "opened.golden"), s.presented(reply))
	if mails := s.captured(); len(mails) != 1 || len(mails[0].To) != 1 || mails[0].To[0] != "ann@sender.test" || mails[0].From != "echo@inbox.test" {
		t.Errorf("sent %+v", mails)
	}

	s.engine.mu.Lock()
	s.engine.replies[reply.ID+"@inbox.test"] = 0
	s.engine.mu.Unlock()
	header := []string{"In-Reply-To: <" + reply.ID + "@inbox.test>", "Subject: Re: Echo, the agent needs a decision"}
	answer := s.question(true, header...)
	if answer.Message.ThreadID != "urn:opened" || answer.Message.Parts[0].Content != "What is it?" {
		t.Errorf("the answer is in %s and says %q", answer.Message.ThreadID, answer.Message.Parts[0].Content)
	}
	if stranger := s.question(false, append(header, "From: ann@plain.test", "Message-ID: <other@plain.test>")...); stranger.Message.ThreadID == "urn:opened" {
		t.Error("a stranger joins the conversation")
	}
}

func TestOpenSaysWhatCannotBe(t *testing.T) {
	s := start(t, nil)
	for agent, address := range map[string]string{"echo": "echo@inbox.test", "nobody": "ann@sender.test", "helper": "ann"} {
		if _, err := s.adapter.Open(t.Context(), agent, address, ""); err == nil || !fault.Of(err).Permanent {
			t.Errorf("%s to %s: %v", agent, address, err)
		}
	}
}
