package config

import (
	"strings"
	"testing"
)

func TestMailIsSentOnElsewhere(t *testing.T) {
	edge := []string{"INBOX_PUBLIC_URL=https://inbox.example", "INBOX_DOMAIN=inbox.example", "INBOX_FEDERATION_ALLOW_PRIVATE=false"}
	for setting, want := range map[string]string{
		"INBOX_OPERATOR_FORWARD_MAIL=me@example.org":           "",
		"INBOX_OPERATOR_FORWARD_MAIL=me":                       `"me" is not an address`,
		"INBOX_OPERATOR_FORWARD_MAIL=Me <me@example.org>":      "is not an address",
		"INBOX_OPERATOR_FORWARD_MAIL=postmaster@Inbox.example": "is an address of this server",
		"INBOX_LIMITS_MAILBOX_PER_SENDER=0":                    "limits.mailbox_per_sender",
		"INBOX_LIMITS_MAILBOX_MESSAGES=5":                      "limits.mailbox_messages",
	} {
		_, err := Load("", append([]string{setting}, edge...))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want %q", setting, err, want)
		}
	}
}
