package policypart

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestGrantCoversOneUse(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	granted := Grant{Purpose: PurposeApproval, Subject: "peer.test mailto:ann@peer.test", Agent: "shop", Digest: Digest("refund", "17"), Until: now.Add(time.Hour)}
	use := Use{Purpose: PurposeApproval, Subject: granted.Subject, Agent: "shop", Digest: Digest("refund", "17"), At: now}
	if refusal := granted.Check(use); refusal != nil {
		t.Fatal(refusal)
	}

	for name, test := range map[string]struct {
		grant func(*Grant)
		use   func(*Use)
		code  string
	}{
		"another purpose":        {use: func(u *Use) { u.Purpose = PurposeLink }, code: CodeTerms},
		"another agent":          {use: func(u *Use) { u.Agent = "doctor" }, code: CodeAgent},
		"agent in another case":  {use: func(u *Use) { u.Agent = "Shop" }, code: CodeAgent},
		"another party":          {use: func(u *Use) { u.Subject = "peer.test mailto:eve@peer.test" }, code: CodePrincipal},
		"another thing":          {use: func(u *Use) { u.Digest = Digest("refund", "99") }, code: CodeTerms},
		"nothing shown":          {use: func(u *Use) { u.Digest = "" }, code: CodeTerms},
		"at its end":             {use: func(u *Use) { u.At = now.Add(time.Hour) }, code: CodeExpired},
		"after it was ended":     {grant: func(g *Grant) { g.Ended, g.EndedBy = now, "ann" }, code: CodeExpired},
		"no grant":               {grant: func(g *Grant) { *g = Grant{} }, use: func(u *Use) { *u = Use{} }, code: CodeTerms},
		"a grant of anything":    {grant: func(g *Grant) { g.Digest = "" }, use: func(u *Use) { u.Digest = "" }, code: CodeTerms},
		"a grant for any agent":  {grant: func(g *Grant) { g.Agent = "" }, use: func(u *Use) { u.Agent = "" }, code: CodeAgent},
		"a grant for every body": {grant: func(g *Grant) { g.Subject = "" }, use: func(u *Use) { u.Subject = "" }, code: CodePrincipal},
	} {
		g, u := granted, use
		if test.grant != nil {
			test.grant(&g)
		}
		if test.use != nil {
			test.use(&u)
		}
		if refusal := g.Check(u); refusal == nil || refusal.Code != test.code {
			t.Errorf("%s: %v; want %s", name, refusal, test.code)
		}
	}

	ended := granted
	ended.Until, ended.Ended = time.Time{}, now.Add(time.Minute)
	if refusal := ended.Check(use); refusal != nil {
		t.Errorf("before it is ended: %v", refusal)
	}
}

func TestDigestKeepsTextsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringMatching(`[1:a]{0,3}`), 0, 4)
		one, two := texts.Draw(t, "one"), texts.Draw(t, "two")
		same := len(one) == len(two)
		for i := range one {
			same = same && one[i] == two[i]
		}
		if (Digest(one...) == Digest(two...)) != same {
			t.Fatalf("%q and %q", one, two)
		}
	})
}
