package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// thread makes turns of the roles u (alice), b (bob, a user too) and a (the agent), a minute apart.
func thread(roles string) (turns []normalized.HistoricalMessage) {
	for i, role := range roles {
		h := normalized.HistoricalMessage{
			ID: fmt.Sprint(i), Role: normalized.RoleUser, Sender: normalized.Sender{Address: identity.Stated("@alice@a.test"), AuthMethod: normalized.AuthNone},
			Parts: []normalized.Part{normalized.Text(fmt.Sprintf("%c%d", role, i))}, Timestamp: identity.At(start.Add(time.Duration(i) * time.Minute)),
		}
		switch role {
		case 'a':
			h.Role, h.Sender.Address = normalized.RoleAssistant, identity.Stated("@echo@here.test")
		case 'b':
			h.Sender.Address = identity.Stated("@bob@b.test")
		}
		turns = append(turns, h)
	}
	return turns
}

// story writes kept turns briefly: their texts, joined inside a turn by +.
func story(kept []normalized.HistoricalMessage) string {
	turns := make([]string, len(kept))
	for i, h := range kept {
		texts := make([]string, len(h.Parts))
		for j, p := range h.Parts {
			texts[j] = p.Content
		}
		turns[i] = strings.Join(texts, "+")
	}
	return strings.Join(turns, " ")
}

func at(index *int) int {
	if index == nil {
		return -1
	}
	return *index
}

func TestTrim(t *testing.T) {
	small := Policy{KeepHead: 2, Window: 4, Slide: 2}
	with := func(how Alternation) Policy { p := small; p.Alternation = how; return p }
	for name, c := range map[string]struct {
		roles      string
		policy     Policy
		want       string
		breakpoint int
	}{
		"empty":                          {"", small, "", -1},
		"first answer":                   {"ua", small, "u0 a1", 1},
		"question without answer":        {"u", small, "u0", -1},
		"all fits, window moves next":    {"uauaua", small, "u0 a1 u2 a3 u4 a5", 1},
		"all fits, room for two":         {"uaua", small, "u0 a1 u2 a3", 3},
		"one block dropped":              {"uauauaua", small, "u0 a1 u4 a5 u6 a7", 1},
		"two blocks dropped":             {"uauauauaua", small, "u0 a1 u6 a7 u8 a9", 1},
		"window opens with an answer":    {"uauuauaua", small, "u0 a1 u7 a8", 1},
		"thread of the agent":            {"auauauau", small, "a0 u1 a2 u5 a6 u7", 2},
		"leading answer in agent thread": {"auau", small, "a0 u1 a2 u3", 2},
		"neighbours merge":               {"uuaauu", small, "u0+u1 a2+a3 u4+u5", 1},
		"neighbours drop":                {"uuaauu", with(AlternationDrop), "u1 a3 u5", 1},
		"off":                            {"aauu", with(AlternationOff), "a0 a1 u2 u3", 3},
		"two speakers":                   {"uba", small, "u0+b1 a2", 1},
		"speakers change twice":          {"uubua", small, "u0+u1+b2+u3 a4", 1},
		"odd head":                       {"uauauauu", Policy{KeepHead: 1, Window: 4, Slide: 2}, "u0 a1 u4 a5 u6+u7", 1},
		"odd head of three":              {"uauauauauaua", Policy{KeepHead: 3, Window: 4, Slide: 2}, "u0 a1 u2 a3 u8 a9 u10 a11", 3},
		"odd head, neighbours drop":      {"uauauauu", Policy{KeepHead: 1, Window: 4, Slide: 2, Alternation: AlternationDrop}, "u0 a1 u4 a5 u7", 1},
		"odd head, off":                  {"uauauauu", Policy{KeepHead: 1, Window: 4, Slide: 2, Alternation: AlternationOff}, "u0 a5 u6 u7", 0},
		"odd head that asks twice":       {"uuuaauauauau", Policy{KeepHead: 1, Window: 4, Slide: 2}, "u0+u1+u2 a3+a4 u9 a10 u11", 1},
		"head that nobody answered":      {"uuuuuuuuu", Policy{KeepHead: 1, Window: 4, Slide: 2}, "u0+u5+u6+u7+u8", -1},
		"no head":                        {"uauaua", Policy{Window: 2, Slide: 2}, "u4 a5", -1},
		"no window":                      {"uaua", Policy{KeepHead: 2, Slide: 1}, "u0 a1", 1},
		"no slide":                       {"uauaua", Policy{KeepHead: 2, Window: 2}, "u0 a1 u4 a5", 1},
	} {
		kept, breakpoint := Trim(thread(c.roles), c.policy, start)
		if got := story(kept); got != c.want || at(breakpoint) != c.breakpoint {
			t.Errorf("%s: %q after %d, want %q after %d", name, got, at(breakpoint), c.want, c.breakpoint)
		}
	}
}

// TestDefaultWindow is the example of the contract: head 2, window 20, slide 10.
func TestDefaultWindow(t *testing.T) {
	for count, want := range map[int]struct{ kept, first, breakpoint int }{
		20: {20, 2, 19}, 22: {22, 2, 1}, 24: {14, 12, 13}, 30: {20, 12, 19}, 32: {22, 12, 1}, 34: {14, 22, 13}, 100: {20, 82, 19},
	} {
		kept, breakpoint := Trim(thread(strings.Repeat("ua", count/2)), DefaultPolicy(), start)
		if len(kept) != want.kept || kept[2].ID != fmt.Sprint(want.first) || at(breakpoint) != want.breakpoint {
			t.Errorf("%d turns: %d kept, window from %s, breakpoint %d; want %+v", count, len(kept), kept[2].ID, at(breakpoint), want)
		}
	}
}

func TestMaxAge(t *testing.T) {
	policy := DefaultPolicy()
	policy.MaxAge = 10 * time.Minute
	kept, _ := Trim(thread("uauauauaua"), policy, start.Add(13*time.Minute))
	if got := story(kept); got != "u4 a5 u6 a7 u8 a9" {
		t.Errorf("%q", got)
	}
	if kept, breakpoint := Trim(thread("ua"), policy, start.Add(time.Hour)); len(kept) > 0 || breakpoint != nil {
		t.Errorf("%q", story(kept))
	}
}

func result(size int) normalized.Part {
	return normalized.Part{
		Kind: normalized.PartToolCall, ID: "1", Name: "n", Result: json.RawMessage(`"` + strings.Repeat("ä", size/2-1) + `"`),
	}
}

func TestMaxBytes(t *testing.T) {
	policy := Policy{KeepHead: 2, Window: 20, Slide: 4, MaxBytes: 1000}
	turns := thread("uauauauaua")
	for i := range turns {
		turns[i].Parts = []normalized.Part{normalized.Text(fmt.Sprint(turns[i].Parts[0].Content, strings.Repeat(".", 200)))}
	}
	kept, breakpoint := Trim(turns, policy, start)
	if len(kept) != 4 || kept[2].ID != "8" || at(breakpoint) != 1 {
		t.Errorf("%d kept from %s, breakpoint %d: a block of 4 was not enough, so 8 and 9 remain", len(kept), kept[2].ID, at(breakpoint))
	}
	policy.MaxBytes = 1300
	if kept, _ := Trim(turns, policy, start); len(kept) != 6 || kept[2].ID != "6" {
		t.Errorf("%d kept: one block of 4 is enough", len(kept))
	}
	policy.MaxBytes = 1
	if kept, _ := Trim(turns, policy, start); len(kept) != 4 {
		t.Errorf("%d kept: head and the last two stay", len(kept))
	}
}

func TestLongToolResultsBecomeShort(t *testing.T) {
	policy := Policy{KeepHead: 2, Window: 20, Slide: 20, MaxBytes: 20_000}
	turns := thread("uauauauauaua")
	for i := 1; i < len(turns); i += 2 {
		turns[i].Parts = append(turns[i].Parts, result(4900))
	}
	before, _ := json.Marshal(turns)
	kept, breakpoint := Trim(turns, policy, start)
	for i, short := range map[int]bool{1: false, 3: true, 5: true, 7: true, 9: false, 11: false} {
		if size := len(kept[i].Parts[1].Result); short && (size > 1<<10 || size < 900) || !short && size != 4900 {
			t.Errorf("turn %d has a result of %d bytes: head and the last two turns stay, the oldest others become short", i, size)
		}
	}
	if !json.Valid(kept[3].Parts[1].Result) || at(breakpoint) != 11 {
		t.Errorf("%d %s", at(breakpoint), kept[3].Parts[1].Result)
	}
	if after, _ := json.Marshal(turns); !bytes.Equal(before, after) {
		t.Error("the stored turns were changed")
	}
}

func TestTurnsAreStripped(t *testing.T) {
	turns := thread("ua")
	turns[0].Sender.Identities = []identity.Evidence{identity.Transport(identity.TransportProof{
		Addressed: identity.AddressedRequest,
		Domain:    "here.test", Subject: "s", Method: "m", Assurance: "address", Recipient: "@echo@here.test", IssuedAt: start,
	})}
	content := []byte("picture")
	turns[0].Parts = append(turns[0].Parts, normalized.Part{Kind: normalized.PartFile, MIME: "image/png", BytesRef: normalized.Inline(content)})
	turns[1].Parts = []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{
		Kind: policypart.ConsentRequired, Title: "Consent", Message: "May I?", URL: "https://here.test/policy/secret-state",
	}}}
	kept, _ := Trim(turns, DefaultPolicy(), start)
	if d := cmp.Diff([]identity.Evidence{{Issuer: "here.test", Subject: "s", Method: "m"}}, kept[0].Sender.Identities); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(normalized.Stored(normalized.Digest(content)), kept[0].Parts[1].BytesRef); d != "" {
		t.Error(d)
	}
	if !kept[1].Parts[0].Equal(normalized.Text("Consent\n\nMay I?")) {
		t.Errorf("%+v", kept[1].Parts[0])
	}
}

func drawThread(t *rapid.T, least int) []normalized.HistoricalMessage {
	turns := thread(rapid.StringOfN(rapid.RuneFrom([]rune("uuuaaab")), least, 60, -1).Draw(t, "roles"))
	for i := range turns {
		if rapid.IntRange(0, 9).Draw(t, "tool") == 0 {
			turns[i].Parts = append(turns[i].Parts, result(2*rapid.IntRange(2, 3000).Draw(t, "size")))
		}
	}
	return turns
}

func drawPolicy(t *rapid.T) Policy {
	return Policy{
		KeepHead: rapid.IntRange(0, 4).Draw(t, "head"), Window: rapid.IntRange(1, 12).Draw(t, "window"), Slide: rapid.IntRange(0, 6).Draw(t, "slide"),
		MaxBytes:    rapid.SampledFrom([]int{0, 0, 100, 5000, 20_000}).Draw(t, "bytes"),
		Alternation: rapid.SampledFrom([]Alternation{"", AlternationDrop, AlternationOff}).Draw(t, "alternation"),
	}
}

func written(t rapid.TB, turns []normalized.HistoricalMessage) (lines []string) {
	for _, h := range turns {
		body, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(body))
	}
	return lines
}

func TestSameThreadGivesSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns, policy := drawThread(t, 0), drawPolicy(t)
		before := written(t, turns)
		first, one := Trim(turns, policy, start)
		second, two := Trim(turns, policy, start.Add(time.Hour))
		if d := cmp.Diff(written(t, first), written(t, second)); d != "" || at(one) != at(two) {
			t.Fatal(d, at(one), at(two))
		}
		if d := cmp.Diff(before, written(t, turns)); d != "" {
			t.Fatal("the input was changed: ", d)
		}
	})
}

// TestPrefixStaysUpToTheBreakpoint is the promise of the breakpoint: the next run has the message that is answered now,
// and usually its answer, and begins with the same bytes.
func TestPrefixStaysUpToTheBreakpoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns, policy := drawThread(t, 3), drawPolicy(t)
		policy.MaxBytes = 0 // with a budget the size of what comes decides, and no one knows it
		added := 1
		if n := len(turns); turns[n-2].Role == normalized.RoleUser && turns[n-1].Role == normalized.RoleAssistant {
			added = 2
		} else if turns[n-1].Role != normalized.RoleUser {
			return // only an answer cannot be all that was added
		}
		if rapid.Bool().Draw(t, "no answer") && turns[len(turns)-1].Role == normalized.RoleUser {
			added = 1
		}
		now, breakpoint := Trim(turns[:len(turns)-added], policy, start)
		next, _ := Trim(turns, policy, start)
		if breakpoint == nil {
			return
		}
		before, after := written(t, now), written(t, next)
		if len(after) <= *breakpoint {
			t.Fatalf("breakpoint %d, but only %d turns next time", *breakpoint, len(after))
		}
		if d := cmp.Diff(before[:*breakpoint+1], after[:*breakpoint+1]); d != "" {
			t.Fatal(d)
		}
	})
}

func TestAlternationAndBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns, policy := drawThread(t, 1), drawPolicy(t)
		kept, breakpoint := Trim(turns, policy, start)
		policy = policy.normal()
		if len(kept) > policy.KeepHead+answerWithin+policy.Window {
			t.Fatalf("%d turns kept", len(kept))
		}
		if breakpoint != nil && (*breakpoint < 0 || *breakpoint >= len(kept)) {
			t.Fatalf("breakpoint %d of %d", *breakpoint, len(kept))
		}
		if policy.Alternation == AlternationOff || len(kept) == 0 {
			return
		}
		if kept[0].Role != normalized.RoleUser && turns[0].Role == normalized.RoleUser {
			t.Fatal("begins with an answer")
		}
		for i := 1; i < len(kept); i++ {
			if kept[i].Role == kept[i-1].Role {
				t.Fatalf("turns %d and %d have the same role", i-1, i)
			}
		}
	})
}

func BenchmarkTrimLongThread(b *testing.B) {
	turns := thread(strings.Repeat("ua", 500))
	b.ReportAllocs()
	for b.Loop() {
		Trim(turns, DefaultPolicy(), start)
	}
}
