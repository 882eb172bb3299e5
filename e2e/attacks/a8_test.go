package attacks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/load"
	"inbox/identity"
	"inbox/internal/facilitator/facilitatortest"
	"inbox/normalized"
	"inbox/policypart"
)

// shop is an agent that works for money, and the service that takes it.
type shop struct {
	money       *facilitatortest.Server
	requirement json.RawMessage

	mu     sync.Mutex
	worked int
}

func openShop(t *testing.T) *shop {
	t.Helper()
	return &shop{money: facilitatortest.New(t), requirement: facilitatortest.Requirements("0x00000000000000000000000000000000000000ff", "10000")}
}

// answer demands the same payment from everybody, and takes its time for the work.
func (s *shop) answer(message normalized.Message) normalized.Response {
	if message.PolicyResolution == nil {
		expires := identity.At(time.Now().Add(5 * time.Minute))
		demand := policypart.Part{
			Kind: policypart.PaymentRequired, Title: "A report costs something", Message: "One report is 10,000 units.",
			Accepts: []json.RawMessage{s.requirement}, Amount: "10000", Currency: "UNIT", ExpiresAt: &expires,
		}
		return normalized.Response{Status: policypart.ResponseStatus(demand.Kind), Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &demand}}}
	}
	s.mu.Lock()
	s.worked++
	s.mu.Unlock()
	const work = 300 * time.Millisecond // the nonce is spent only after it
	timer := time.NewTimer(work)
	<-timer.C
	return normalized.Response{Parts: []normalized.Part{normalized.Text("Here is your report.")}}
}

func (s *shop) agent(t *testing.T) string { return scripted(t, "writer", "", s.answer) }

func (s *shop) payments() string {
	return fmt.Sprintf("\n[payments]\nfacilitator_url = %q\n", s.money.URL.String())
}

var demandLink = regexp.MustCompile(`https://[^\s"'<>]+(/policy/[A-Za-z0-9_-]+)`)

// onePaymentForMany: a payment payload opened several demands with equal terms while its nonce was not spent yet.
func (a *watched) onePaymentForMany() {
	s := a.shop
	peer := load.A2APeer{URL: a.url("/a2a/writer"), Token: a.token("pays-once"), Client: a.client("203.0.113.111")}
	const demands = 6
	var links []string
	for i := range demands {
		task := must(peer.Send(a.t.Context(), load.SendBody(fmt.Sprintf("report-%d", i), "a report, please", false)))(a.t)
		found := demandLink.FindStringSubmatch(string(jsonOf(task)))
		if found == nil {
			a.t.Fatalf("A8: there is no demand in %s", jsonOf(task))
		}
		links = append(links, found[1])
	}
	payment := facilitatortest.NewWallet().Pay(s.requirement)
	result := a.attack("A8", "one payment for 6 demands with equal terms", func(ctx context.Context, heard *answers) {
		form := url.Values{"decision": {"pay"}, "payment": {string(payment)}}.Encode()
		a.spread(ctx, demands, demands, func(_, i int) {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url(links[i]), strings.NewReader(form))
			if err != nil {
				heard.add(err.Error())
				return
			}
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			response, err := a.client("203.0.113.111").Do(request)
			if err != nil {
				heard.add("a broken connection")
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			heard.add(fmt.Sprint(response.StatusCode))
		})
	})
	a.eventually("the paid work is paid", func() bool { return len(s.money.Settled()) > 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if settled := len(s.money.Settled()); s.worked != 1 || settled != 1 {
		a.t.Errorf("A8: one payment made the agent work %d times, and was taken %d times; the payer heard %s", s.worked, settled, result.answers)
	}
	a.cheap(result, 100*time.Millisecond, 50<<20)
}
