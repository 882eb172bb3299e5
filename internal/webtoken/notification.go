package webtoken

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"

	"inbox/identity"
)

// notificationType is the typ of the tokens that sign notifications to webhooks (RFC 8725, section 3.11). No server of this kind
// accepts it as an assertion: the caller chose the audience, which may be the address of an agent elsewhere.
const notificationType = "a2a-notification+jwt"

// notificationLife is the life of such a token. Verifiers made from the A2A samples accept an iat of the last five minutes.
const notificationLife = 5 * time.Minute

// Notification is one request to the webhook of a task.
type Notification struct {
	URL  string // of the webhook, as it was registered
	Task string
	Body []byte
}

// SignNotification returns a JWT for one attempt to send the notification. It has no sub, so that no one takes it for the login of an
// agent. The claim request_body_sha256 is the name that the A2A samples use.
func SignNotification(key identity.SigningKey, n Notification, now time.Time) (string, error) {
	if n.URL == "" {
		return "", errors.New("sign notification: no audience")
	}

	options := (&jose.SignerOptions{}).WithType(notificationType)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key.Private, KeyID: key.Kid}}, options)
	if err != nil {
		return "", fmt.Errorf("sign notification: %w", err)
	}

	digest := sha256.Sum256(n.Body)
	claims, err := json.Marshal(map[string]any{
		"iss": "https://" + key.Issuer, "aud": n.URL, "jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(notificationLife).Unix(),
		"taskId": n.Task, "request_body_sha256": hex.EncodeToString(digest[:]),
	})
	if err != nil {
		return "", fmt.Errorf("sign notification: %w", err)
	}

	signed, err := signer.Sign(claims)
	if err != nil {
		return "", fmt.Errorf("sign notification: %w", err)
	}
	return signed.CompactSerialize()
}
