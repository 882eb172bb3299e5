package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"inbox/internal/safehttp"
	"inbox/internal/webtoken"
)

const maxKeyBytes = 256 << 10

// checkSignature refuses a card whose signature names a key of the card's own origin and does not fit. A card without a
// signature, or with keys from elsewhere, is taken as it came over TLS: who signs chooses the place of the key, so that
// such a signature proves nothing.
func (a *Agent) checkSignature(ctx context.Context, card []byte) error {
	if !bytes.Contains(card, []byte(`"signatures"`)) {
		return nil
	}
	origin := *a.card
	origin.Path, origin.RawPath, origin.RawQuery = "/.well-known/jwks.json", "", ""
	options := safehttp.GetOptions{Accept: "application/jwk-set+json, application/json", MaxBytes: maxKeyBytes, MaxRedirects: -1}
	response, err := a.cards.Get(ctx, origin.String(), options)
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	keys, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil
	}
	if err := webtoken.VerifyCard(card, keys); errors.Is(err, webtoken.ErrCardForged) {
		cardSignatures.WithLabelValues("forged").Inc()
		return err
	} else if err != nil {
		cardSignatures.WithLabelValues("unknown").Inc()
		return nil
	}
	cardSignatures.WithLabelValues("valid").Inc()
	return nil
}
