package channel_test

import (
	"encoding/hex"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/agents/channel"
	"inbox/internal/await"
)

func TestMessageForm(t *testing.T) {
	message, err := channel.NormalizeMessage(map[string]any{
		"text": " hi\n", "connector_id": " My_Conn ", "external_provider": "SLACK", "external_conversation_id": 42,
		"external_message_id": " ", "sender_id": true, "from_self": "0", "room_kind": nil,
		"attachments": map[string]any{"b": 2, "a": 1}, "raw": []any{1},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := channel.Message{
		Text: "hi", ConnectorID: "my-conn", Provider: "slack", ConversationID: "42", SenderID: "1",
		Attachments: []any{1, 2}, Raw: map[string]any{},
	}
	if difference := cmp.Diff(want, message); difference != "" {
		t.Error(difference)
	}
}

func TestRefusedMessages(t *testing.T) {
	for want, changes := range map[string]map[string]any{
		"connector_id must be a non-empty slug.":         {"connector_id": "-a"},
		"external_provider must be a non-empty slug.":    {"external_provider": "\u212aik"},
		"room_kind must be dm, group, channel, or null.": {"room_kind": "DM"},
	} {
		value := map[string]any{"connector_id": "a", "external_provider": "b"}
		maps.Copy(value, changes)
		_, err := channel.NormalizeMessage(value)
		var refused *channel.Error
		if !errors.As(err, &refused) || refused.Code != channel.CodeInvalid || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	for _, text := range []string{"", "[]x", "[1]", `{"connector_id":"a"}`, strings.Repeat("[", 100), `{"raw":"` + strings.Repeat("x", channel.MaxMessageBytes) + `"}`} {
		if _, err := channel.ReadMessage([]byte(text)); err == nil {
			t.Errorf("%.20q was read", text)
		}
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add([]byte(`{"connector_id":"a","external_provider":"b"}`))
	f.Add([]byte(`{"text":" t ","connector_id":"My_Conn","external_provider":"slack","external_conversation_id":1.5,"room_kind":" dm ","attachments":[{}],"raw":{"a":null},"from_self":1e-9}`))
	f.Add([]byte(`{"connector_id":"\u212a","external_provider":"b","attachments":{"2":1,"10":2}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		message, err := channel.ReadMessage(data)
		if err != nil {
			return
		}
		again, err := channel.NormalizeMessage(message.Value())
		if err != nil {
			t.Fatal(err)
		}
		if difference := cmp.Diff(message, again); difference != "" {
			t.Fatal(difference)
		}
		if message.ClientContext("")["source"] != channel.SourceChannel {
			t.Fatal("no source")
		}
	})
}

func TestSignatures(t *testing.T) {
	body, ours := []byte("body"), channel.Sign("s", []byte("body"))
	digest := strings.TrimPrefix(ours, channel.SignaturePrefix)
	for name, test := range map[string]struct {
		secret, header string
		form           channel.SignatureForm
		verdict        bool
	}{
		"ours":                            {"s", ours, channel.SignatureForm{}, true},
		"spaces around":                   {"s", " sha256= " + digest + "\n", channel.SignatureForm{}, true},
		"capital digits":                  {"s", "sha256=" + strings.ToUpper(digest), channel.SignatureForm{}, true},
		"capital prefix":                  {"s", "SHA256=" + digest, channel.SignatureForm{}, false},
		"another secret":                  {"t", ours, channel.SignatureForm{}, false},
		"empty secret":                    {"", channel.Sign("", body), channel.SignatureForm{}, false},
		"nothing":                         {"s", "", channel.SignatureForm{AllowRawHex: true}, false},
		"raw":                             {"s", digest, channel.SignatureForm{}, false},
		"raw where allowed":               {"s", digest, channel.SignatureForm{AllowRawHex: true}, true},
		"other prefix":                    {"s", "v0=" + digest, channel.SignatureForm{Prefix: "v0="}, true},
		"our prefix where raw is allowed": {"s", ours, channel.SignatureForm{Prefix: "v0=", AllowRawHex: true}, false},
		"no prefix":                       {"s", digest, channel.SignatureForm{NoPrefix: true}, false},
		"no prefix and raw":               {"s", digest, channel.SignatureForm{NoPrefix: true, AllowRawHex: true}, true},
		"no prefix but ours there":        {"s", ours, channel.SignatureForm{NoPrefix: true, AllowRawHex: true}, false},
		"too long":                        {"s", ours + "00", channel.SignatureForm{}, false},
		"no digits":                       {"s", "sha256=" + strings.Repeat("x", 64), channel.SignatureForm{}, false},
		"a list":                          {"s", ours + ", " + ours, channel.SignatureForm{}, false},
	} {
		if got := channel.VerifySignature(test.secret, body, test.header, test.form); got != test.verdict {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestRotatingSignatures(t *testing.T) {
	body := []byte("body")
	sign := func(secrets ...string) string {
		var list []string
		for _, secret := range secrets {
			list = append(list, channel.Sign(secret, body))
		}
		return strings.Join(list, ", ")
	}
	for name, test := range map[string]struct {
		secrets []string
		header  string
		verdict bool
	}{
		"a receiver with the old one":      {[]string{"old"}, sign("new", "old"), true},
		"a receiver with the new one":      {[]string{"new"}, sign("new", "old"), true},
		"a receiver with both, old sender": {[]string{"new", "old"}, sign("old"), true},
		"neither":                          {[]string{"other", ""}, sign("new", "old", ""), false},
		"nobody":                           {nil, sign("new"), false},
		"empty elements":                   {[]string{"new"}, ", ," + sign("new"), true},
		"the fourth":                       {[]string{"d"}, sign("a", "b", "c", "d"), true},
		"the fifth is not read":            {[]string{"e"}, sign("a", "b", "c", "d", "e"), false},
	} {
		if got := channel.VerifyRotating(test.secrets, body, test.header, channel.SignatureForm{}); got != test.verdict {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzVerifySignature(f *testing.F) {
	f.Add("s", []byte("b"), channel.Sign("s", []byte("b")), "", false)
	f.Add("s", []byte{}, "sha256=,sha256=\xff", "v0=", true)
	f.Add("", []byte("b"), channel.Sign("", []byte("b")), "sha256=", true)
	f.Fuzz(func(t *testing.T, secret string, body []byte, header, prefix string, raw bool) {
		form := channel.SignatureForm{Prefix: prefix, NoPrefix: prefix == "", AllowRawHex: raw}
		verified := channel.VerifySignature(secret, body, header, form)
		digest, err := hex.DecodeString(strings.TrimPrefix(channel.Sign(secret, body), channel.SignaturePrefix))
		if err != nil || verified && !strings.Contains(strings.ToLower(header), hex.EncodeToString(digest)) {
			t.Fatal("verified without the digest", err)
		}
		if one := !strings.Contains(header, ",") && !strings.Contains(prefix, ","); one && verified != channel.VerifyRotating([]string{secret}, body, header, form) {
			t.Fatal("one signature is another than a list of one")
		}
		if verified && secret == "" {
			t.Fatal("an empty secret verified")
		}
	})
}

func TestOwnSignaturesVerify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret, body := rapid.StringN(1, 40, -1).Draw(t, "secret"), rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		if !channel.VerifySignature(secret, body, channel.Sign(secret, body), channel.SignatureForm{}) {
			t.Fatal("ours does not verify")
		}
		if channel.VerifySignature(secret, append(body, 0), channel.Sign(secret, body), channel.SignatureForm{}) {
			t.Fatal("another body verifies")
		}
	})
}

func TestDuplicates(t *testing.T) {
	duplicates, ctx := channel.Duplicates{Marks: channel.NewMemoryMarks(0)}, t.Context()
	claim := func(provider, id string, ttl time.Duration, want bool) {
		t.Helper()
		if first, err := duplicates.Claim(ctx, provider, id, ttl); err != nil || first != want {
			t.Errorf("claim %q %q: %v, %v", provider, id, first, err)
		}
	}
	claim("Slack_Bot", " m1 ", time.Hour, true)
	claim("slack-bot", "m1", time.Hour, false)
	claim("slack-bot", "M1", time.Hour, true)
	claim("slack-bot", "m1", 0, false)
	claim("slack-bot", "m9", 0, true)
	claim("slack-bot", "m9", 0, true)
	claim("", "m1", time.Hour, true)
	claim("", "m1", time.Hour, true)
	if err := duplicates.Forget(ctx, "SLACK-bot", "m1"); err != nil {
		t.Fatal(err)
	}
	claim("slack-bot", "m1", time.Hour, true)
}

// TestReplayedTwentyTimes is what a connector does that gets no answer in time: all at once, one wins.
func TestReplayedTwentyTimes(t *testing.T) {
	duplicates := channel.Duplicates{Marks: channel.NewMemoryMarks(0)}
	var group sync.WaitGroup
	firsts := make([]bool, 20)
	for i := range firsts {
		group.Go(func() { firsts[i], _ = duplicates.Claim(t.Context(), "slack", "m1", time.Hour) })
	}
	await.Done(t, group.Wait, "all claims")
	taken := 0
	for _, first := range firsts {
		if first {
			taken++
		}
	}
	if taken != 1 {
		t.Errorf("the message was taken %d times", taken)
	}
}
