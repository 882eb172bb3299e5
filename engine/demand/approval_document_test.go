package demand

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/internal/lookalike"
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
			if !whole && (!strings.Contains(verdict.Sentence, "on its page") || verdict.Told.Policy().URL == "") {
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

func TestDocumentsAreWrittenAsTheyWillRun(t *testing.T) {
	for value, want := range map[string]string{
		`{"a":"long long long","b":1}`:                           `{"b":1,"a":"long long long"}`,
		`{"x":{"long":"aaaaaaaaaa","s":1},"y":[{"c":22,"d":3}]}`: `{"y":[{"d":3,"c":22}],"x":{"s":1,"long":"aaaaaaaaaa"}}`,
		`{"to":"a","to":"b"}`:                                    `{"to":"a","to":"b"}`,
		`{"n":1e400,"m":10000000000000000001}`:                   `{"n":1e400,"m":10000000000000000001}`,
		`"<b>&"`:                                                 `"<b>&"`,
		`[3,1,2,null,true]`:                                      `[3,1,2,null,true]`,
		`{"body":"long long","deep":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `,"to":"a"}`: `{"to":"a","body":"long long","deep":` + strings.Repeat("[", maxDepth) +
			lookalike.JSON(strings.Repeat("[", 500-maxDepth)+strings.Repeat("]", 500-maxDepth)) + strings.Repeat("]", maxDepth) + `}`,
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

// TestMessagesDecideByWhatTheyShowed: what a message of this demand showed is stored with it. Another version or setting that would show more or less
// changes nothing about the word, and a message of a version that stored nothing takes none.
func TestMessagesDecideByWhatTheyShowed(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*notes)
		want   bool
	}{
		"shown whole":                 {func(*notes) {}, true},
		"not shown whole then":        {func(kept *notes) { kept.Whole = false }, false},
		"by a version without a note": {func(kept *notes) { kept.Told, kept.Whole = "", false }, false},
		"longer than messages are now": {func(kept *notes) {
			kept.Told = strings.Repeat("The whole call, as it was sent. ", 1000)
		}, true},
	} {
		b := offline(t)
		issuance := b.await(t, "t1", refundWith(`{"to":"ann@home.test"}`))
		kept := notesOf(issuance)
		test.change(&kept)
		issuance.Notes = kept.raw()
		b.keep(issuance)
		b.restart()

		message := b.toldPart(issuance).Message
		if kept.Told != "" && message != kept.Told {
			t.Errorf("%s: a later message is another one:\n%s", name, message)
		}
		if asks := strings.Contains(message, "one word approve or deny"); kept.Told == "" && asks {
			t.Errorf("%s: the message asks for the word", name)
		}
		for _, text := range []string{"approve", "approve " + codeOf(issuance)} {
			said, _ := ReadDecision(saying(text))
			verdict, err := b.Answer(t.Context(), exchange.TurnRecord{ID: "owner-turn", Agent: "a"}, &Asked{Approval: issuance.ID, Shown: shownOf(issuance)}, said, Decider{Name: "owner"})
			if err != nil || (verdict.Ending != nil) != test.want {
				t.Errorf("%s, %q: %+v, %v", name, text, verdict, err)
			}
		}
	}
}

// TestHostsWithoutRoomAreCounted: neither the page nor a message leaves hosts out without a word.
func TestHostsWithoutRoomAreCounted(t *testing.T) {
	b := offline(t)
	var text strings.Builder
	for i := range maxHosts + 23 {
		fmt.Fprintf(&text, "https://\u00e4%d.example/ ", i)
	}
	answer := b.hold(t, "t1", normalized.Text(text.String()))
	told := b.toldPart(answer)
	view, err := b.Show(t.Context(), tokenOf(t, b.Present(*told)))
	if err != nil || len(view.Hosts) != maxHosts+1 || view.Hosts[maxHosts] != "and 23 more, which have no room here" {
		t.Errorf("the page has %q, %v", view.Hosts, err)
	}
	if !strings.Contains(told.Message, "and others, which the page lists") {
		t.Errorf("the message is\n%s", told.Message)
	}
}

// TestHostsInOtherLettersAreNamed: a host in one foreign alphabet stands with the name that is looked up.
func TestHostsInOtherLettersAreNamed(t *testing.T) {
	const imitation, ascii = "\u0430\u0440\u0440\u04cf\u0435.\u0440\u0444", "xn--80ak6aa92e.xn--p1ai"
	b := offline(t)
	action := b.await(t, "t1", refundWith(`{"to":"ann@`+imitation+`"}`))
	answer := b.hold(t, "t2", normalized.Text("Log in at https://"+imitation+"/x"))
	for _, issuance := range []policypart.Issuance{action, answer} {
		told := b.toldPart(issuance)
		view, err := b.Show(t.Context(), tokenOf(t, b.Present(*told)))
		if err != nil || !strings.Contains(told.Message, ascii) || !strings.Contains(strings.Join(view.Hosts, "\n"), ascii) {
			t.Errorf("the page has %q, %v, and the message\n%s", view.Hosts, err, told.Message)
		}
		if read, err := b.Approval(t.Context(), issuance.ID); err != nil || !strings.Contains(strings.Join(read.Hosts, "\n"), ascii) {
			t.Errorf("operators read %q, %v", read.Hosts, err)
		}
	}
}

// TestHeldAnswersShowAllThatLeaves: files with their facts, data, and parts that have no words of their own.
func TestHeldAnswersShowAllThatLeaves(t *testing.T) {
	b := offline(t)
	const digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of hello
	issuance := b.hold(t, "t1", normalized.Text("See the files."),
		normalized.Part{Kind: normalized.PartFile, Name: "in\u202etxt.exe", MIME: "text/plain", Size: 1, BytesRef: &normalized.BytesRef{Kind: normalized.BytesInline, DataBase64: "aGVsbG8="}},
		normalized.Part{Kind: normalized.PartFile, Name: "kept.pdf", MIME: "application/pdf", Size: 7, BytesRef: normalized.Stored(strings.Repeat("ab", 32))},
		normalized.Part{Kind: normalized.PartFile, Name: "far.pdf", Alt: "a far file", BytesRef: normalized.At("https://peer.test/far.pdf")},
		normalized.Part{Kind: normalized.PartToolCall, Name: "wire", ID: "c1", Args: json.RawMessage(`{"amount":9000}`)},
	)
	view, err := b.Show(t.Context(), tokenOf(t, b.Present(*b.toldPart(issuance))))
	if err != nil {
		t.Fatal(err)
	}
	read, err := b.Approval(t.Context(), issuance.ID)
	if err != nil {
		t.Fatal(err)
	}
	for surface, text := range map[string]string{"message": strings.ReplaceAll(b.toldPart(issuance).Message, "\n| ", "\n"), "page": view.Draft, "operators": read.DraftText} {
		for _, want := range []string{
			`in\u202etxt.exe (text/plain, 5 bytes, SHA-256 ` + digest + ")", "kept.pdf (application/pdf, 7 bytes, SHA-256 abab", "far.pdf (unknown type)\na far file\nhttps://peer.test/far.pdf", `"amount": 9000`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the %s lacks %q:\n%s", surface, want, text)
			}
		}
	}
	want := []exchange.HeldFile{
		{Name: "in\u202etxt.exe", MIME: "text/plain", Size: 5, SHA256: digest}, {Name: "kept.pdf", MIME: "application/pdf", Size: 7, SHA256: strings.Repeat("ab", 32)},
		{Name: "far.pdf", URL: "https://peer.test/far.pdf"},
	}
	if !slices.Equal(read.Files, want) {
		t.Errorf("files %+v, want %+v", read.Files, want)
	}
}

// TestHeldDataIsShownWhole: nothing that leaves with a part of data stands behind what the approver reads, or beside it.
func TestHeldDataIsShownWhole(t *testing.T) {
	for content, want := range map[string]string{
		`{"a":1} {"to":"attacker"}`: "attacker",
		`"fine" "attacker"`:         "attacker",
		`null`:                      "null",
		`{"a":1}` + "\n":            `"a": 1`,
	} {
		b := offline(t)
		issuance := b.hold(t, "t1", normalized.Text("See the data."), normalized.Part{
			Kind: normalized.PartArtifact, ArtifactType: normalized.ArtifactData, MIME: "application/json", Name: "prices.json", Description: "Send it to Bob.",
			BytesRef: &normalized.BytesRef{Kind: normalized.BytesInline, DataBase64: base64.StdEncoding.EncodeToString([]byte(content))},
		})
		view, err := b.Show(t.Context(), tokenOf(t, b.Present(*b.toldPart(issuance))))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{view.Draft, strings.ReplaceAll(b.toldPart(issuance).Message, "\n| ", "\n")} {
			for _, want := range []string{want, "prices.json", "Send it to Bob."} {
				if !strings.Contains(text, want) {
					t.Errorf("%q: the approver does not read %q:\n%s", content, want, text)
				}
			}
		}
	}
}
