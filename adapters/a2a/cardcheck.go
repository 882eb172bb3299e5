package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/internal/webtoken"
)

var checkedCards = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_a2a_card_signatures_total",
	Help: "Cards of agents elsewhere that our agents call, by outcome of their signatures (valid, unsigned, unknown, forged).",
}, []string{"outcome"})

const maxKeySetBytes = 256 << 10

// checkSignature refuses a card whose signature names a key of the card's own origin and does not fit: somebody changed it
// on the way. A card without a signature, or with a key from elsewhere, is what TLS says that it is and no more: who signs
// chooses the place of the key, so that a signature by it proves nothing. Keys that cannot be had now are asked for again.
func (c *Caller) checkSignature(ctx context.Context, card []byte, at *url.URL) error {
	var signed struct {
		Signatures []json.RawMessage `json:"signatures"`
	}
	_ = json.Unmarshal(card, &signed) // what cannot be read has no signature; readCard says so
	if len(signed.Signatures) == 0 {
		checkedCards.WithLabelValues("unsigned").Inc()
		return nil
	}
	keys, err := c.keysOf(ctx, at)
	if err != nil {
		return err
	}
	switch err := webtoken.VerifyWhole(card, keys); {
	case errors.Is(err, webtoken.ErrCardForged):
		checkedCards.WithLabelValues("forged").Inc()
		return fault.GiveUp("the card of the other agent was changed after it was signed", err)
	case err != nil:
		checkedCards.WithLabelValues("unknown").Inc()
	default:
		checkedCards.WithLabelValues("valid").Inc()
	}
	return nil
}

// keysOf reads the key set of an origin; none where it publishes none.
func (c *Caller) keysOf(ctx context.Context, card *url.URL) ([]byte, error) {
	at := url.URL{Scheme: card.Scheme, Host: card.Host, Path: "/.well-known/jwks.json"}
	options := safehttp.GetOptions{Accept: "application/jwk-set+json, application/json", MaxBytes: maxKeySetBytes, MaxRedirects: -1}
	response, err := c.options.Client.Get(ctx, at.String(), options)
	switch {
	case errors.Is(err, safehttp.ErrRedirects):
		return nil, nil
	case err != nil:
		return nil, unreachable(err)
	}
	defer func() { _ = response.Body.Close() }()
	switch status := response.StatusCode; {
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return nil, fault.RetryIn(retryAfter(response.Header), "the server of the other agent does not answer right now", nil)
	case status != http.StatusOK:
		return nil, nil
	}
	keys, err := io.ReadAll(io.LimitReader(response.Body, maxKeySetBytes+1))
	if err != nil {
		return nil, unreachable(err)
	}
	return keys, nil
}
