package facilitator_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"inbox/internal/facilitator"
	"inbox/internal/facilitator/facilitatortest"
	"inbox/internal/fault"
)

type client struct{}

func (client) Do(request *http.Request) (*http.Response, error) {
	return http.DefaultTransport.RoundTrip(request)
}

func TestVerifyAndSettleInBothVersions(t *testing.T) {
	server := facilitatortest.New(t)
	c := facilitator.New(facilitator.Options{URL: server.URL, HTTP: client{}})
	wallet := facilitatortest.NewWallet()
	for version, requirement := range map[int]json.RawMessage{
		1: facilitatortest.Requirements("0xshop", "100"), 2: facilitatortest.Requirements2("0xshop", "100"),
	} {
		other := facilitatortest.Requirements("0xother", "7")
		payment, read, err := facilitator.Match(wallet.Pay(requirement), []json.RawMessage{other, requirement})
		if err != nil || payment.Version != version || read.Amount() != "100" || read.PayTo != "0xshop" {
			t.Fatalf("%d: %+v %+v %v", version, payment, read, err)
		}
		verified, err := c.Verify(t.Context(), payment)
		if err != nil || !verified.Valid || verified.Payer != wallet.Address() {
			t.Fatalf("%+v %v", verified, err)
		}
		settled, err := c.Settle(t.Context(), payment)
		if err != nil || !settled.Success || settled.Transaction == "" || settled.Network != facilitatortest.Network || !json.Valid(settled.Raw) {
			t.Fatalf("%+v %v", settled, err)
		}
		if settled, err = c.Settle(t.Context(), payment); err != nil || settled.Success || settled.Reason != "invalid_transaction_state" {
			t.Fatalf("spent twice: %+v %v", settled, err)
		}
		payment.Payload = facilitatortest.Forge(wallet.Pay(requirement))
		if verified, err = c.Verify(t.Context(), payment); err != nil || verified.Valid || verified.Reason == "" {
			t.Fatalf("forged: %+v %v", verified, err)
		}
	}
}

func TestAnswersWithoutAVerdictAreUnknown(t *testing.T) {
	server := facilitatortest.New(t)
	c := facilitator.New(facilitator.Options{URL: server.URL, HTTP: client{}})
	for name, answer := range map[string]func(http.ResponseWriter){
		"500":   func(w http.ResponseWriter) { w.WriteHeader(500) },
		"html":  func(w http.ResponseWriter) { w.Write([]byte("<html>")) },
		"empty": func(w http.ResponseWriter) { w.Write([]byte("{}")) },
		"long": func(w http.ResponseWriter) {
			w.Write([]byte(`{"isValid":true,"x":"` + strings.Repeat("x", 70<<10) + `"}`))
		},
		"yes, 500": func(w http.ResponseWriter) { w.WriteHeader(500); w.Write([]byte(`{"isValid":true,"success":true}`)) },
		"redirect": func(w http.ResponseWriter) { w.Header().Set("Location", "http://evil.test"); w.WriteHeader(302) },
	} {
		server.Trouble(func(_ string, w http.ResponseWriter) bool { answer(w); return true })
		if got, err := c.Verify(t.Context(), facilitator.Payment{Payload: []byte("{}"), Requirements: []byte("{}")}); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		if got, err := c.Settle(t.Context(), facilitator.Payment{Payload: []byte("{}"), Requirements: []byte("{}")}); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	server.Trouble(func(_ string, w http.ResponseWriter) bool {
		w.WriteHeader(http.StatusBadRequest)
		w.Write([]byte(`{"isValid":false,"invalidReason":"insufficient_funds","success":false,"errorReason":"settlement_pending"}`))
		return true
	})
	payment := facilitator.Payment{Payload: []byte("{}"), Requirements: []byte("{}")}
	if got, err := c.Verify(t.Context(), payment); err != nil || got.Valid || got.Reason != "insufficient_funds" {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := c.Settle(t.Context(), payment); err != nil || got.Success || !got.Pending {
		t.Errorf("%+v %v", got, err)
	}
	payment.Payload = json.RawMessage(`"` + strings.Repeat("x", 70<<10) + `"`)
	if _, err := c.Verify(t.Context(), payment); !fault.Is(err, fault.Unavailable) {
		t.Errorf("too long: %v", err)
	}
}

func TestMatchComparesTheFrozenTerms(t *testing.T) {
	wallet := facilitatortest.NewWallet()
	one, two := facilitatortest.Requirements("0xshop", "100"), facilitatortest.Requirements2("0xshop", "100")
	for name, payment := range map[string]json.RawMessage{
		"other amount, 1": wallet.Pay(facilitatortest.Requirements("0xshop", "1")),
		"other payee, 1":  wallet.Pay(facilitatortest.Requirements("0xthief", "100")),
		"other amount, 2": wallet.Pay(facilitatortest.Requirements2("0xshop", "1")),
		"other payee, 2":  wallet.Pay(facilitatortest.Requirements2("0xthief", "100")),
		"other network":   []byte(strings.ReplaceAll(string(wallet.Pay(one)), facilitatortest.Network, "eip155:1")),
		"nothing chosen":  []byte(`{"x402Version":2,"payload":{}}`),
	} {
		if _, _, err := facilitator.Match(payment, []json.RawMessage{one, two, []byte(`{`)}); !errors.Is(err, facilitator.ErrTerms) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, payment := range map[string]string{
		"empty": "", "text": "hello!", "no object": "[]", "version": `{"x402Version":3}`, "long": strings.Repeat("x", 70<<10),
	} {
		if _, _, err := facilitator.Match([]byte(payment), []json.RawMessage{one}); err == nil || errors.Is(err, facilitator.ErrTerms) {
			t.Errorf("%s: %v", name, err)
		}
	}
	payment := wallet.Pay(one)
	encoded := base64.StdEncoding.EncodeToString(payment)
	for _, form := range []string{encoded, `"` + encoded + `"`, " " + string(payment) + "\n"} {
		if got, _, err := facilitator.Match([]byte(form), []json.RawMessage{one}); err != nil || string(got.Payload) != string(payment) {
			t.Errorf("%.20s: %v", form, err)
		}
	}
}

func TestRequirementsThatNobodyCouldPay(t *testing.T) {
	for _, raw := range []string{
		`[]`, `{}`, `{"scheme":"exact","network":"n","asset":"a","payTo":"p"}`,
		`{"scheme":"exact","network":"n","asset":"a","payTo":"p","amount":"1.5"}`, `{"scheme":"exact","network":"n","asset":"a","payTo":"p","amount":"-1"}`,
		`{"scheme":"exact","network":"n","asset":"a","payTo":" ","amount":"1"}`, `{"scheme":"exact","network":"n","asset":"a","payTo":"p","amount":1}`,
	} {
		if got, err := facilitator.ReadRequirements([]byte(raw)); err == nil {
			t.Errorf("%s: %+v", raw, got)
		}
	}
}

func FuzzMatch(f *testing.F) {
	wallet := facilitatortest.NewWallet()
	one, two := facilitatortest.Requirements("0xshop", "100"), facilitatortest.Requirements2("0xshop", "100")
	f.Add([]byte(wallet.Pay(one)))
	f.Add([]byte(wallet.Pay(two)))
	f.Add([]byte(`{"x402Version":2,"accepted":{"amount":1e400}}`))
	f.Add([]byte(`"e30="`))
	f.Fuzz(func(t *testing.T, data []byte) {
		payment, _, err := facilitator.Match(data, []json.RawMessage{one, two})
		if err == nil && !json.Valid(payment.Payload) {
			t.Fatal("matched what is not JSON")
		}
	})
}

func TestVersionOfRequirements(t *testing.T) {
	for want, lists := range map[int][][]json.RawMessage{
		1: {nil, {json.RawMessage(`{"maxAmountRequired":"1"}`)}, {json.RawMessage(`7`)}, {facilitatortest.Requirements("0x1", "5")}},
		2: {{facilitatortest.Requirements2("0x1", "5")}},
	} {
		for _, accepts := range lists {
			if got := facilitator.VersionOf(accepts); got != want {
				t.Errorf("%s: version %d, want %d", accepts, got, want)
			}
		}
	}
}
