package operator

import (
	"strings"
	"testing"

	"inbox/internal/recording"
	"inbox/internal/simulation"
	"inbox/normalized"
)

func TestRecordedMessageIsSentAgain(t *testing.T) {
	t.Parallel()
	text := []recording.Part{{Kind: normalized.PartText, Text: "Subject: Order\n\nhello"}, {Kind: normalized.PartFile, MIME: "image/png", Name: "a.png", Size: 3000}}
	tests := []struct {
		name     string
		recorded recording.Message
		way      string
		fault    string
		skipped  string
	}{
		{"proven mail", recording.Message{Channel: "email", Subject: "Order", Language: "de", Sender: recording.Sender{Address: "person1@simulated.test", Verified: true}, Parts: text}, simulation.Mail, "", ""},
		{"mail that proves nothing", recording.Message{Channel: "email", Subject: "Order", Sender: recording.Sender{Address: "@person1@simulated.test"}, Parts: text}, simulation.Mail, "unsigned", ""},
		{"guest", recording.Message{Channel: "chat", Subject: "Order", Sender: recording.Sender{Address: "person1"}, Parts: text}, simulation.Chat, "no-token", ""},
		{"bridge", recording.Message{Channel: "bridge", Parts: text}, "", "", "cannot be simulated"},
		{"nothing", recording.Message{Channel: "a2a"}, simulation.Task, "", "neither text nor files"},
	}
	for _, test := range tests {
		message, skipped := again(&test.recorded)
		if message.Way != test.way || message.Fault != test.fault || skipped == "" != (test.skipped == "") || !strings.Contains(skipped, test.skipped) {
			t.Errorf("%s: %+v, skipped %q", test.name, message, skipped)
		}
		if skipped == "" && (message.Text != "hello" || message.From != "person1" || len(message.Files) != 1 || len(message.Files[0].Content) != 3000) {
			t.Errorf("%s: %+v", test.name, message)
		}
		if (message.Language != "") != (test.recorded.Language != "") {
			t.Errorf("%s: the language is %q", test.name, message.Language)
		}
	}
}

func TestSenderNameIsOneThatPeersHave(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"@simulated-alice@inbox.test": "alice", "ann.lee+x@corp.example": "ann-lee-x", "": "", "müller@x.test": "m-ller", strings.Repeat("a", 90) + "@x": strings.Repeat("a", 40),
	} {
		if got := senderName(address); got != want {
			t.Errorf("%q is sent by %q, want %q", address, got, want)
		}
	}
}
