// Package facilitatortest is a small x402 facilitator on loopback with a ledger in memory, and wallets that pay through
// it. Payments of the scheme "exact" are signed with Ed25519 over their authorization; a nonce is spent once. It is for
// tests: no blockchain, no money.
package facilitatortest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
)

// Network and Asset are the only ones that the facilitator knows.
const (
	Network = "eip155:31337"
	Asset   = "0x0000000000000000000000000000000000000001"
)

// Server is one running facilitator.
type Server struct {
	URL *url.URL

	mutex   sync.Mutex
	spent   map[string]bool // nonces
	settled []Transfer
	trouble func(call string, w http.ResponseWriter) bool
}

// Transfer is one payment that was carried out.
type Transfer struct{ From, To, Value string }

// New starts a facilitator; it stops with the test.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{spent: map[string]bool{}}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /x402/verify", s.verify)
	routes.HandleFunc("POST /x402/settle", s.settle)
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	s.URL, _ = url.Parse(server.URL + "/x402")
	return s
}

// Trouble is asked before every call ("verify", "settle"); true = it wrote the answer itself. Nil ends it.
func (s *Server) Trouble(trouble func(call string, w http.ResponseWriter) bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.trouble = trouble
}

// Settled returns the payments that were carried out.
func (s *Server) Settled() []Transfer {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]Transfer(nil), s.settled...)
}

// Requirements returns one entry of accepts in version 1 of x402.
func Requirements(payTo, amount string) json.RawMessage {
	return marshal(map[string]any{
		"scheme": "exact", "network": Network, "maxAmountRequired": amount, "asset": Asset, "payTo": payTo,
		"resource": "https://agents.test/agents/a", "description": "work", "mimeType": "text/plain", "maxTimeoutSeconds": 60,
	})
}

// Requirements2 returns one entry of accepts in version 2 of x402.
func Requirements2(payTo, amount string) json.RawMessage {
	return marshal(map[string]any{"scheme": "exact", "network": Network, "amount": amount, "asset": Asset, "payTo": payTo, "maxTimeoutSeconds": 60})
}

// Wallet signs payments.
type Wallet struct{ key ed25519.PrivateKey }

// NewWallet makes a wallet that is never empty.
func NewWallet() Wallet {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return Wallet{key}
}

// Address returns the wallet's address.
func (w Wallet) Address() string {
	return "0x" + hex.EncodeToString(w.key.Public().(ed25519.PublicKey))
}

type authorization struct {
	From        string `json:"from"`
	To          string `json:"to"`
	Value       string `json:"value"`
	ValidAfter  string `json:"validAfter"`
	ValidBefore string `json:"validBefore"`
	Nonce       string `json:"nonce"`
}

type signed struct {
	Signature     string        `json:"signature"`
	Authorization authorization `json:"authorization"`
}

// Pay signs a payment payload for a requirement of either version.
func (w Wallet) Pay(requirement json.RawMessage) json.RawMessage {
	var r struct {
		PayTo             string `json:"payTo"`
		MaxAmountRequired string `json:"maxAmountRequired"`
		Amount            string `json:"amount"`
		Network           string `json:"network"`
	}

	if err := json.Unmarshal(requirement, &r); err != nil {
		panic(err)
	}

	a := authorization{w.Address(), r.PayTo, r.MaxAmountRequired + r.Amount, "0", "99999999999", "0x" + rand.Text()}
	proof := signed{hex.EncodeToString(ed25519.Sign(w.key, marshal(a))), a}
	if r.Amount != "" {
		return marshal(map[string]any{"x402Version": 2, "accepted": requirement, "payload": proof})
	}

	return marshal(map[string]any{"x402Version": 1, "scheme": "exact", "network": r.Network, "payload": proof})
}

// Forge returns the payment with a broken signature.
func Forge(payment json.RawMessage) json.RawMessage {
	var p map[string]json.RawMessage
	var proof signed
	if json.Unmarshal(payment, &p) != nil || json.Unmarshal(p["payload"], &proof) != nil {
		panic("no payment")
	}
	proof.Authorization.Nonce += "x"
	p["payload"] = marshal(proof)
	return marshal(p)
}

type call struct {
	Payload struct {
		Payload signed `json:"payload"`
	} `json:"paymentPayload"`
	Requirements struct {
		PayTo             string `json:"payTo"`
		MaxAmountRequired string `json:"maxAmountRequired"`
		Amount            string `json:"amount"`
		Network           string `json:"network"`
	} `json:"paymentRequirements"`
}

// judge returns the reason why a payment is bad; empty when it is good.
func (s *Server) judge(c call) string {
	a, r := c.Payload.Payload.Authorization, c.Requirements
	key, err := hex.DecodeString(trim(a.From))
	signature, signatureErr := hex.DecodeString(c.Payload.Payload.Signature)
	switch {
	case r.Network != Network:
		return "invalid_network"
	case err != nil || signatureErr != nil || len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, marshal(a), signature):
		return "invalid_exact_evm_payload_signature"
	case a.To != r.PayTo:
		return "invalid_exact_evm_payload_recipient_mismatch"
	case a.Value != r.MaxAmountRequired+r.Amount:
		return "invalid_exact_evm_payload_authorization_value"
	case s.spent[a.Nonce]:
		return "invalid_transaction_state"
	}

	return ""
}

func (s *Server) verify(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, "verify", func(c call, reason string) any {
		answer := map[string]any{"isValid": reason == "", "payer": c.Payload.Payload.Authorization.From}
		if reason != "" {
			answer["invalidReason"] = reason
		}
		return answer
	})
}

func (s *Server) settle(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, "settle", func(c call, reason string) any {
		a := c.Payload.Payload.Authorization
		if reason != "" {
			return map[string]any{"success": false, "errorReason": reason, "payer": a.From, "transaction": "", "network": Network}
		}
		s.spent[a.Nonce] = true
		s.settled = append(s.settled, Transfer{a.From, a.To, a.Value})
		return map[string]any{"success": true, "payer": a.From, "transaction": "0xfeed" + a.Nonce, "network": Network}
	})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, name string, answer func(call, string) any) {
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, `{"error":"invalid_payload"}`, http.StatusBadRequest)
		return
	}

	s.mutex.Lock()
	trouble := s.trouble
	s.mutex.Unlock()

	if trouble != nil && trouble(name, w) {
		return
	}

	s.mutex.Lock()
	defer s.mutex.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Write(marshal(answer(c, s.judge(c))))
}

func trim(address string) string { return address[min(2, len(address)):] }

func marshal(value any) json.RawMessage {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return body
}
