package capability

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors of Read.
var (
	ErrForeign = errors.New("the document was not signed here for this party and purpose, or was changed")
	ErrEnded   = errors.New("the time of the document is over")
)

// carried is a document that leaves with its end.
type carried struct {
	Until    int64           `json:"u"` // seconds since 1970
	Document json.RawMessage `json:"d"`
}

// Sign returns a document that a browser brings back, so that nothing is stored in between: base64url of its JSON, a dot, and the
// token of the claim about it. It counts until the second of its end. The holder can read it.
func Sign(key []byte, purpose, who string, until time.Time, document any) (string, error) {
	written, err := json.Marshal(document)
	if err != nil {
		return "", fmt.Errorf("sign document: %w", err)
	}
	body, err := json.Marshal(carried{until.Unix(), written})
	if err != nil {
		return "", fmt.Errorf("sign document: %w", err)
	}

	payload := base64.RawURLEncoding.EncodeToString(body)
	return payload + "." + Mint(key, about(purpose, who, payload)), nil
}

// Read reads a document that was signed for the purpose and the party. With ErrEnded the document is read, too.
func Read(key []byte, purpose, who, signed string, now time.Time, into any) error {
	payload, token, _ := strings.Cut(signed, ".")
	if !Valid(key, about(purpose, who, payload), token) {
		return ErrForeign
	}

	var read carried
	body, err := base64.RawURLEncoding.DecodeString(payload)
	if err == nil {
		err = json.Unmarshal(body, &read)
	}
	if err == nil {
		err = json.Unmarshal(read.Document, into)
	}
	switch {
	case err != nil:
		return ErrForeign // of another version
	case now.Unix() >= read.Until:
		return ErrEnded
	}
	return nil
}

func about(purpose, who, payload string) Claim {
	return Claim{Purpose: purpose, Who: who, What: payload, Form: Long}
}
