package console

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"inbox/internal/catalog/catalogtest"
	"inbox/internal/markup/markuptest"
	"inbox/policypart"
)

func TestTranslations(t *testing.T) { catalogtest.Check(t, ".", texts) }

// TestTextsNeverBecomeMarkup fills every text of every page with one that tries to leave its place: the elements and attributes stay
// those of a page of harmless texts, and no address runs anything.
func TestTextsNeverBecomeMarkup(t *testing.T) {
	full := policyPage{
		Site: "x", Name: "x", Title: "x", Message: "x", Lang: "x", State: "x", Detail: "x", Notice: "x", Requirements: []string{"x"}, Mailto: "x",
		Demand: Demand{
			Part: policypart.Part{Scopes: []string{"x", "x"}, Amount: "x", Currency: "x"}, Logins: []string{"x"}, Asker: "x", AgentAddress: "x", Token: "x",
			Summary: "x", Tool: "x", Question: "x", IssuedAt: time.Unix(0, 0), ExpiresAt: time.Unix(9, 0),
		},
	}
	with := func(change func(*policyPage)) func(string) templ.Component {
		return func(text string) templ.Component {
			page := markuptest.Fill(full, text)
			page.Open = true
			page.Preview, _ = json.Marshal(text)
			change(&page)
			if page.Word != "" {
				page.Word = text
			}
			if page.Draft != "" {
				page.Draft = text
			}
			return page.component()
		}
	}

	for name, page := range map[string]func(text string) templ.Component{
		"failed":   func(text string) templ.Component { return failedPage(text, text, text) },
		"consent":  with(func(p *policyPage) { p.Kind = policypart.ConsentRequired }),
		"login":    with(func(p *policyPage) { p.Kind = policypart.Unauthorized }),
		"no login": with(func(p *policyPage) { p.Kind, p.Logins = policypart.Unauthorized, nil }),
		"payment":  with(func(p *policyPage) { p.Kind, p.Payable = policypart.PaymentRequired, true }),
		"no pay":   with(func(p *policyPage) { p.Kind = policypart.PaymentRequired }),
		"link":     with(func(p *policyPage) { p.Purpose = policypart.PurposeLink }),
		"confirm":  with(func(p *policyPage) { p.Purpose = policypart.PurposeLinkConfirm }),
		"complete": with(func(p *policyPage) { p.Purpose = policypart.PurposeLinkComplete }),
		"word":     with(func(p *policyPage) { p.Word = "x" }),
		"settled":  with(func(p *policyPage) { p.Open = false }),
		"approval": with(func(p *policyPage) { p.Purpose = policypart.PurposeApproval }),
		"draft":    with(func(p *policyPage) { p.Purpose, p.Draft = policypart.PurposeApproval, "x" }),
		"approved": with(func(p *policyPage) { p.Purpose, p.Open = policypart.PurposeApproval, false }),
	} {
		rendered := func(text string) []string {
			t.Helper()
			var html strings.Builder
			if err := page(text).Render(t.Context(), &html); err != nil {
				t.Fatal(err)
			}
			skeleton, err := markuptest.Skeleton(html.String())
			if err != nil {
				t.Errorf("%s, %q: %v", name, text, err)
			}
			return skeleton
		}
		harmless := rendered("harmless")
		for _, text := range markuptest.Hostile {
			if got := rendered(text); !slices.Equal(got, harmless) {
				t.Errorf("%s, %q:\n%v, want\n%v", name, text, got, harmless)
			}
		}
	}
}
