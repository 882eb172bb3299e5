package demand

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// refundWith is a demand for an approval with these arguments.
func refundWith(preview string) policypart.Part {
	part := refund()
	part.Data = map[string]json.RawMessage{policypart.ApprovalKey: json.RawMessage(`{"action_id":"act-1","tool":"send_mail","summary":"Send a mail","preview":` + preview + `}`)}
	return part
}

// TestMessagesShowTheWholeCallOrTakeNoApproval: a long member hides no short one, and where a message has no room for all, only the page grants.
func TestMessagesShowTheWholeCallOrTakeNoApproval(t *testing.T) {
	owner := Decider{Name: "agents.test mailto:owner@home.test", Address: "owner@home.test", Resolver: &policypart.Resolver{Issuer: "agents.test", Subject: "mailto:owner@home.test", Method: "m"}}
	for _, size := range []int{100, 5_000} {
		b := offline(t)
		body := strings.Repeat("all is well. ", size/13)
		issuance := b.await(t, "t1", refundWith(fmt.Sprintf(`{"body":%q,"to":"attacker@evil.example","transfer_all":true}`, body)))
		told := b.Told(issuance)
		message := told.Policy().Message
		for _, want := range []string{"attacker@evil.example", `"transfer_all": true`, `"body": "all is well.`} {
			if !strings.Contains(message, want) {
				t.Errorf("%d bytes: the approver is not told %q:\n%s", size, want, message)
			}
		}

		whole := strings.Contains(message, body)
		asked := &Asked{Approval: issuance.ID, Shown: shownOf(issuance)}
		for _, text := range []string{"approve", "yes", "approve " + codeOf(issuance)} {
			said, ok := ReadDecision(saying(text))
			if !ok {
				t.Fatalf("%q is no decision", text)
			}
			verdict, err := b.Answer(t.Context(), exchange.TurnRecord{ID: "owner-turn", Agent: "a"}, asked, said, owner)
			if err != nil || (verdict.Ending != nil) != whole || !verdict.Answers {
				t.Errorf("%d bytes, %q: %+v, %v; shown whole: %v", size, text, verdict, err, whole)
			}
			if !whole && !strings.Contains(verdict.Sentence, "on its page") {
				t.Errorf("%d bytes, %q: %q", size, text, verdict.Sentence)
			}
		}
		if !whole && strings.Contains(message, "approve or deny") {
			t.Errorf("the message asks for the word:\n%s", message)
		}

		said, _ := ReadDecision(saying("deny"))
		if verdict, err := b.Answer(t.Context(), exchange.TurnRecord{ID: "owner-turn", Agent: "a"}, asked, said, owner); err != nil || verdict.Ending == nil {
			t.Errorf("%d bytes: a denial counts everywhere: %+v, %v", size, verdict, err)
		}

		view, err := b.Show(t.Context(), tokenOf(t, b.Present(*told.Policy())))
		if err != nil || !strings.Contains(string(view.Preview), body) || !bytes.HasPrefix(view.Preview, []byte(`{"transfer_all":true,"to":"attacker@evil.example",`)) {
			t.Errorf("the page: %s, %v", view.Preview, err)
		}
		list, err := b.Approvals(t.Context(), exchange.ApprovalFilter{Limit: 10})
		if err != nil || len(list) != 1 || !bytes.Equal(list[0].Preview, view.Preview) {
			t.Errorf("operators see %+v, %v", list, err)
		}
	}
}

// TestLongAnswersAreReleasedOnThePage: what stands behind the part of an answer that a message shows is read before it is let pass.
func TestLongAnswersAreReleasedOnThePage(t *testing.T) {
	b := offline(t)
	issuance := b.hold(t, "t1", normalized.Text(strings.Repeat("polite words ", 1000)+"and one lie"))
	said, _ := ReadDecision(saying("approve"))
	verdict, err := b.Answer(t.Context(), exchange.TurnRecord{ID: "owner-turn", Agent: "a"}, &Asked{Approval: issuance.ID, Shown: shownOf(issuance)}, said, Decider{Name: "owner"})
	if err != nil || verdict.Ending != nil {
		t.Errorf("%+v, %v", verdict, err)
	}
	view, err := b.Show(t.Context(), tokenOf(t, b.Present(*b.toldPart(issuance))))
	if err != nil || !strings.Contains(view.Draft, "and one lie") {
		t.Errorf("the page does not have all of it: %v", err)
	}
}

func (b *bench) toldPart(issuance policypart.Issuance) *policypart.Part {
	told := b.Told(issuance)
	return told.Policy()
}

// TestPreviewDoesNotHideTheInput: an agent that shows one thing and does another shows both.
func TestPreviewDoesNotHideTheInput(t *testing.T) {
	b := offline(t)
	issuance := b.await(t, "t1", refund())
	for name, text := range map[string]string{"message": b.toldPart(issuance).Message, "page": func() string {
		view, err := b.Show(t.Context(), tokenOf(t, b.Present(*b.toldPart(issuance))))
		if err != nil {
			t.Fatal(err)
		}
		return string(view.Preview)
	}()} {
		for _, want := range []string{`"amount"`, `"order"`} {
			if !strings.Contains(text, want) {
				t.Errorf("the %s lacks %s: %s", name, want, text)
			}
		}
	}
}

func TestWhatCannotBeSeenIsWritten(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                                            "plain",
		"gro\u00df & caf\u00e9 \u6771":                     "gro\u00df & caf\u00e9 \u6771",
		"evil\u202egpj.exe":                                `evil\u202egpj.exe`,
		"a\u2066b\u2069\u200e\u061c":                       `a\u2066b\u2069\u200e\u061c`,
		"zero\u200bwidth\u2060\ufeff":                      `zero\u200bwidth\u2060\ufeff`,
		"no\u00a0break":                                    `no\u00a0break`,
		"p\u0430ypal.com":                                  `p\u0430ypal.com`,
		"\u0430\u0440\u0440\u04cf\u0435.com":               `\u0430\u0440\u0440\u04cf\u0435.com`,
		"\u043f\u0440\u0438\u0432\u0435\u0442 world":       "\u043f\u0440\u0438\u0432\u0435\u0442 world",
		"\U0001f469\u200d\U0001f4bb \u2764\ufe0f":          "\U0001f469\u200d\U0001f4bb \u2764\ufe0f",
		"\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
		"\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35":             "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
		"hidden\U000e0041tag":                              `hidden\udb40\udc41tag`,
		"fill\u3164er\u115f":                               `fill\u3164er\u115f`,
		"ad\u200dmin":                                      `ad\u200dmin`,
		"\u03b1lpha \u03b1\u03b2\u03b3 x":                  `\u03b1lpha ` + "\u03b1\u03b2\u03b3 x",
	} {
		if got := seen(text); got != want {
			t.Errorf("%+q is written as %+q, want %+q", text, got, want)
		}
	}
}

func TestDocumentsAreWrittenAsTheyWillRun(t *testing.T) {
	for value, want := range map[string]string{
		`{"a":"long long long","b":1}`:                           `{"b":1,"a":"long long long"}`,
		`{"x":{"long":"aaaaaaaaaa","s":1},"y":[{"c":22,"d":3}]}`: `{"y":[{"d":3,"c":22}],"x":{"s":1,"long":"aaaaaaaaaa"}}`,
		`{"to":"a","to":"b"}`:                                    `{"to":"a","to":"b"}`,
		`{"n":1e400,"m":10000000000000000001}`:                   `{"n":1e400,"m":10000000000000000001}`,
		`"<b>&"`:                                                 `"<b>&"`,
		`[3,1,2,null,true]`:                                      `[3,1,2,null,true]`,
		`{"body":"long long","deep":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `,"to":"a"}`: `{"to":"a","body":"long long","deep":` + strings.Repeat("[", maxDepth) +
			seenString(strings.Repeat("[", 500-maxDepth)+strings.Repeat("]", 500-maxDepth)) + strings.Repeat("]", maxDepth) + `}`,
	} {
		if got := string(arranged(json.RawMessage(value))); got != want {
			t.Errorf("%.80s: %.120s, want %.120s", value, got, want)
		}
	}
}

// TestEveryMemberCanBeRead: whatever the call, its document is the same value, the shorter members first, and nothing of it is invisible.
func TestEveryMemberCanBeRead(t *testing.T) {
	value := rapid.Deferred(func() *rapid.Generator[any] {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z]{0,300}`), rapid.SampledFrom([]string{"\u202e", "\u200b", "a\u0430"}))
		return rapid.OneOf(
			rapid.Custom(func(t *rapid.T) any { return text.Draw(t, "text") }),
			rapid.Custom(func(t *rapid.T) any { return rapid.Float64Range(-1e9, 1e9).Draw(t, "number") }),
			rapid.Custom(func(t *rapid.T) any { return rapid.Bool().Draw(t, "flag") }),
			rapid.Custom(func(t *rapid.T) any { return rapid.SliceOfN(text, 0, 4).Draw(t, "list") }),
		)
	})
	rapid.Check(t, func(t *rapid.T) {
		given, err := json.Marshal(rapid.MapOfN(rapid.String(), value, 0, 8).Draw(t, "call"))
		if err != nil {
			t.Fatal(err)
		}
		got := arranged(given)
		if !bytes.Equal(got, arranged(got)) {
			t.Fatalf("%s is arranged again as %s", got, arranged(got))
		}

		var before, after any
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if err := json.Unmarshal(given, &before); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%q", before) != fmt.Sprintf("%q", after) {
			t.Fatalf("%s is not %s", got, given)
		}
		if i := bytes.IndexFunc(got, func(r rune) bool { return r == 0x202e || r == 0x200b }); i >= 0 {
			t.Fatalf("%s has what cannot be seen", got)
		}
	})
}

// TestHeldAnswersShowTheirAddresses: a link of HTML is shown with where it leads.
func TestHeldAnswersShowTheirAddresses(t *testing.T) {
	b := offline(t)
	issuance := b.hold(t, "t1", normalized.Part{Kind: normalized.PartText, MIME: normalized.MIMEHTML, Content: `<p>Log in <a href="https://evil.example/x">here</a></p>`})
	if message := b.toldPart(issuance).Message; !strings.Contains(message, "https://evil.example/x") {
		t.Errorf("the approver is not told where the link leads:\n%s", message)
	}
}

// TestSentencesOfAgentsDoNotStandForTheCall: a long summary is one line behind the document.
func TestSentencesOfAgentsDoNotStandForTheCall(t *testing.T) {
	b := offline(t)
	part := refundWith(`{"to":"attacker@evil.example"}`)
	part.Data[policypart.ApprovalKey] = json.RawMessage(strings.Replace(string(part.Data[policypart.ApprovalKey]), "Send a mail", strings.Repeat("all is well ", 1000), 1))
	message := b.toldPart(b.await(t, "t1", part)).Message
	if at := strings.Index(message, "attacker@evil.example"); at < 0 || at > strings.Index(message, "all is well") || len(message) > 2_000 {
		t.Errorf("the call is at %d of\n%s", at, message)
	}
}
