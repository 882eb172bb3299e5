package simulation

import (
	"strings"
	"testing"

	"inbox/internal/fault"
	"inbox/internal/peer"
)

func TestWrongMessagesAreNotSent(t *testing.T) {
	t.Parallel()
	n := New(Server{PublicURL: "http://127.0.0.1:1", Domain: "inbox.test"}, Options{})
	tests := map[string]struct {
		message Message
		kind    fault.Kind
	}{
		"no way":             {Message{Way: "pigeon", Agent: "echo", Text: "hello"}, fault.Malformed},
		"fault of others":    {Message{Way: Task, Agent: "echo", Text: "hello", Fault: peer.FaultUnsigned}, fault.Malformed},
		"no name":            {Message{Way: Task, Agent: "echo", From: "a b", Text: "hello"}, fault.Malformed},
		"nothing said":       {Message{Way: Task, Agent: "echo"}, fault.Malformed},
		"too long":           {Message{Way: Task, Agent: "echo", Text: strings.Repeat("a", MaxTextBytes+1)}, fault.Malformed},
		"too many files":     {Message{Way: Task, Agent: "echo", Files: make([]peer.File, MaxFiles+1)}, fault.Malformed},
		"language of a task": {Message{Way: Task, Agent: "echo", Text: "hello", Language: "de"}, fault.Malformed},
		"no mail":            {Message{Way: Mail, Agent: "echo", Text: "hello"}, fault.Conflict},
		"no server":          {Message{Way: Task, Agent: "echo", Text: "hello"}, fault.Unavailable},
	}
	for name, test := range tests {
		if sent, err := n.Send(t.Context(), test.message); !fault.Is(err, test.kind) {
			t.Errorf("%s: %+v, %v; want %s", name, sent, err, test.kind)
		}
	}
	n.server.SMTPAddr = "127.0.0.1:1"
	if _, err := n.Send(t.Context(), Message{Way: Mail, Agent: "echo", Text: "hello"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("mail is simulated where answers leave: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// Every way has faults, and each of them a peer that commits it.
func TestFaultsOfWays(t *testing.T) {
	t.Parallel()
	for _, way := range Ways() {
		if len(Faults(way)) == 0 {
			t.Errorf("%s has no faults", way)
		}
	}
	if Faults("pigeon") != nil {
		t.Error("a pigeon has faults")
	}
}
