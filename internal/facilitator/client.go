// Package facilitator asks an x402 facilitator whether a payment is good and has it carried out (x402 specification,
// versions 1 and 2, section 7). It knows nothing of demands and decides nothing; it never holds money or keys.
package facilitator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/fault"
)

// call: verify, settle; outcome: yes, no, error
var calls = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_facilitator_calls_total", Help: "Calls to the payment facilitator by outcome.",
}, []string{"call", "outcome"})

// Limits of a conversation.
const (
	maxRequestBytes = 64 << 10
	maxAnswerBytes  = 64 << 10
	maxReasonBytes  = 256
	defaultTimeout  = 30 * time.Second // settling waits for a blockchain
)

// Doer sends one request and follows no redirect; *safehttp.Client is one.
type Doer interface {
	Do(request *http.Request) (*http.Response, error)
}

// Options configure a Client. URL and HTTP are required.
type Options struct {
	URL     *url.URL // the facilitator's base; /verify and /settle are below it
	HTTP    Doer
	Timeout time.Duration // of one call; 30 s
}

// Client talks to one facilitator. It is safe for concurrent use.
type Client struct{ options Options }

// New makes a Client.
func New(options Options) *Client {
	options.Timeout = cmp.Or(options.Timeout, defaultTimeout)
	return &Client{options}
}

// Payment is what the payer signed and the requirements that it was asked to meet, both as they came.
type Payment struct {
	Version      int             `json:"x402Version"`         // 1 or 2
	Payload      json.RawMessage `json:"paymentPayload"`      //
	Requirements json.RawMessage `json:"paymentRequirements"` //
}

// Verification is the answer to /verify.
type Verification struct {
	Valid  bool
	Reason string // the facilitator's own code when it is not valid, such as insufficient_funds
	Payer  string
}

// Settlement is the answer to /settle.
type Settlement struct {
	Success     bool
	Pending     bool   // neither success nor failure yet: ask again with the same payment
	Reason      string // the facilitator's own code when there was no success
	Payer       string
	Transaction string
	Network     string
	Raw         json.RawMessage // the answer as it came, which payers get as their receipt
}

// reasonPending is what facilitators write that answer before the blockchain did (Circle, 2026): no failure.
const reasonPending = "settlement_pending"

// Verify asks whether the payment would succeed; no money moves. An error (fault.Unavailable) says that nothing is
// known: the facilitator cannot be reached or its answer cannot be read.
func (c *Client) Verify(ctx context.Context, payment Payment) (Verification, error) {
	var answer struct {
		Valid  *bool  `json:"isValid"`
		Reason string `json:"invalidReason"`
		Payer  string `json:"payer"`
	}
	if _, err := c.call(ctx, "verify", payment, &answer, func() *bool { return answer.Valid }); err != nil {
		return Verification{}, err
	}
	return Verification{Valid: *answer.Valid, Reason: short(answer.Reason), Payer: short(answer.Payer)}, nil
}

// Settle has the payment carried out. An error (fault.Unavailable) says that the outcome is unknown: the money may have
// moved. Asking again with the same payment is safe, because its nonce is spent once.
func (c *Client) Settle(ctx context.Context, payment Payment) (Settlement, error) {
	var answer struct {
		Success     *bool  `json:"success"`
		Reason      string `json:"errorReason"`
		Payer       string `json:"payer"`
		Transaction string `json:"transaction"`
		Network     string `json:"network"`
	}

	body, err := c.call(ctx, "settle", payment, &answer, func() *bool { return answer.Success })
	if err != nil {
		return Settlement{}, err
	}

	return Settlement{
		Success: *answer.Success, Pending: !*answer.Success && answer.Reason == reasonPending, Reason: short(answer.Reason),
		Payer: short(answer.Payer), Transaction: short(answer.Transaction), Network: short(answer.Network), Raw: body,
	}, nil
}

// call makes one POST. A body that carries the verdict is an answer under every status: facilitators say no with 200,
// 400, 402 and even 500.
func (c *Client) call(ctx context.Context, name string, payment Payment, answer any, verdict func() *bool) (json.RawMessage, error) {
	body, status, err := c.post(ctx, name, payment)
	if err == nil {
		if readErr := json.Unmarshal(body, answer); readErr != nil || verdict() == nil {
			err = errors.Join(fmt.Errorf("status %d without a verdict", status), readErr)
		} else if *verdict() && status/100 != 2 {
			err = fmt.Errorf("status %d with a yes", status)
		}
	}
	if err != nil {
		calls.WithLabelValues(name, "error").Inc()
		return nil, fault.Wrap(fault.Unavailable, "the payment service cannot be asked now", fmt.Errorf("facilitator /%s: %w", name, err))
	}

	calls.WithLabelValues(name, map[bool]string{true: "yes", false: "no"}[*verdict()]).Inc()
	return body, nil
}

func (c *Client) post(ctx context.Context, name string, payment Payment) (body []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	sent, err := json.Marshal(payment)
	if err != nil {
		return nil, 0, err
	}
	if len(sent) > maxRequestBytes {
		return nil, 0, errors.New("the payment is over 64 KiB")
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.options.URL.JoinPath(name).String(), bytes.NewReader(sent))
	if err != nil {
		return nil, 0, err
	}

	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := c.options.HTTP.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()

	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	if err == nil && len(body) > maxAnswerBytes {
		err = errors.New("the answer is over 64 KiB")
	}

	return body, response.StatusCode, err
}

func short(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxReasonBytes)], "") }
