package facilitator

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/gowebpki/jcs"
)

// Requirements are the fields of an x402 payment requirement that both versions share, and the amount under either
// name: maxAmountRequired in version 1, amount in version 2.
type Requirements struct {
	Scheme            string `json:"scheme"`
	Network           string `json:"network"`
	MaxAmountRequired string `json:"maxAmountRequired"`
	AmountRequired    string `json:"amount"`
	Asset             string `json:"asset"`
	PayTo             string `json:"payTo"`
}

// Amount returns the amount in atomic units of the asset.
func (r Requirements) Amount() string {
	if r.AmountRequired != "" {
		return r.AmountRequired
	}
	return r.MaxAmountRequired
}

// Version returns the version of x402 in which the requirement is written.
func (r Requirements) Version() int {
	if r.AmountRequired != "" {
		return 2
	}
	return 1
}

// VersionOf returns the version of x402 in which a list of requirements is written; 1 where nothing says otherwise.
func VersionOf(accepts []json.RawMessage) int {
	var first Requirements
	if len(accepts) == 0 || json.Unmarshal(accepts[0], &first) != nil {
		return 1
	}
	return first.Version()
}

// ReadRequirements reads one entry of accepts and refuses one that cannot be paid.
func ReadRequirements(raw json.RawMessage) (Requirements, error) {
	var r Requirements
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, errors.New("must be an object with the fields of x402")
	}

	for name, value := range map[string]string{"scheme": r.Scheme, "network": r.Network, "asset": r.Asset, "payTo": r.PayTo} {
		if strings.TrimSpace(value) == "" {
			return r, fmt.Errorf("%s is required", name)
		}
	}

	if amount, ok := new(big.Int).SetString(r.Amount(), 10); !ok || amount.Sign() < 0 {
		return r, errors.New("amount (maxAmountRequired in version 1) must be a whole number in atomic units, as a string")
	}
	return r, nil
}

// payload is what is read of a payment payload of either version.
type payload struct {
	Version  int             `json:"x402Version"`
	Scheme   string          `json:"scheme"`   // version 1
	Network  string          `json:"network"`  // version 1
	Accepted json.RawMessage `json:"accepted"` // version 2: the requirement that was chosen
	Payload  struct {
		Authorization *struct {
			To    string `json:"to"`
			Value string `json:"value"`
		} `json:"authorization"` // of the exact scheme with EIP-3009
	} `json:"payload"`
}

// ErrTerms reports that a payment is well-formed and for other terms than those that were asked for.
var ErrTerms = errors.New("the payment is for other terms than those that were asked for")

// Match reads a payment payload (JSON, or base64 of it as in a header) and finds the requirement among accepts that it
// is for. Errors wrap ErrTerms when it is for none of them. What the signature covers is verified by the facilitator;
// payee and amount are compared here already where the scheme shows them.
func Match(raw json.RawMessage, accepts []json.RawMessage) (Payment, Requirements, error) {
	body, read, err := readPayload(raw)
	if err != nil {
		return Payment{}, Requirements{}, err
	}

	for _, accept := range accepts {
		requirements, err := ReadRequirements(accept)
		if err == nil && read.meets(requirements, accept) {
			return Payment{Version: read.Version, Payload: body, Requirements: accept}, requirements, nil
		}
	}
	return Payment{}, Requirements{}, ErrTerms
}

func readPayload(raw json.RawMessage) (json.RawMessage, payload, error) {
	body := bytes.TrimSpace(raw)
	if len(body) > maxRequestBytes {
		return nil, payload{}, errors.New("the payment is over 64 KiB")
	}

	if len(body) > 0 && body[0] == '"' {
		var text string
		if json.Unmarshal(body, &text) == nil {
			body = []byte(text)
		}
	}
	if len(body) > 0 && body[0] != '{' {
		decoded, err := base64.StdEncoding.DecodeString(string(body))
		if err != nil {
			return nil, payload{}, errors.New("the payment is neither a JSON object nor base64 of one")
		}
		body = decoded
	}

	var read payload
	if err := json.Unmarshal(body, &read); err != nil {
		return nil, payload{}, errors.New("the payment is no x402 payment payload")
	}
	if read.Version != 1 && read.Version != 2 {
		return nil, payload{}, errors.New("x402Version must be 1 or 2")
	}

	return body, read, nil
}

func (p payload) meets(r Requirements, accept json.RawMessage) bool {
	switch {
	case p.Version != r.Version():
		return false
	case p.Version == 1 && (p.Scheme != r.Scheme || p.Network != r.Network):
		return false
	case p.Version == 2 && !sameJSON(p.Accepted, accept):
		return false
	}

	authorization := p.Payload.Authorization
	return authorization == nil || r.Scheme != "exact" ||
		strings.EqualFold(authorization.To, r.PayTo) && authorization.Value == r.Amount()
}

// sameJSON compares two documents by their RFC 8785 form.
func sameJSON(a, b json.RawMessage) bool {
	if !json.Valid(a) || !json.Valid(b) {
		return false
	}
	one, err := jcs.Transform(a)
	if err != nil {
		return false
	}
	two, err := jcs.Transform(b)
	return err == nil && bytes.Equal(one, two)
}
