package email

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Bounces come back to bounce+<token>@domain, and the token says which delivery it is about: its id, and a signature
// under a key that all nodes share, so that nobody invents bounces.
const (
	bounceLocal  = "bounce"
	verpName     = "verp"
	verpMACBytes = 10
)

var tokenCode = base32.StdEncoding.WithPadding(base32.NoPadding)

func loadVERPKey(state KeyState) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	key, found, err := state.Get(ctx, keyNamespace, verpName)
	if err != nil {
		return nil, fmt.Errorf("load key of bounce addresses: %w", err)
	}
	if found {
		return key, nil
	}
	fresh := make([]byte, sha256.Size)
	_, _ = rand.Read(fresh)
	if key, _, err = state.PutIfAbsent(ctx, keyNamespace, verpName, fresh, time.Time{}); err != nil {
		return nil, fmt.Errorf("store key of bounce addresses: %w", err)
	}
	return key, nil
}

// returnPath gives the token and the envelope sender of a delivery. One without a proper id has none, and its bounces go
// to the agent's address.
func (a *Adapter) returnPath(deliveryID, local string) (token, from string) {
	id, err := uuid.Parse(deliveryID)
	if err != nil {
		return "", local + "@" + a.domain
	}
	token = strings.ToLower(tokenCode.EncodeToString(id[:]) + tokenCode.EncodeToString(a.tokenMAC(id)))
	return token, bounceLocal + "+" + token + "@" + a.domain
}

func (a *Adapter) tokenMAC(id uuid.UUID) []byte { return a.mac(id[:]) }

func (a *Adapter) mac(pieces ...[]byte) []byte {
	mac := hmac.New(sha256.New, a.verpKey)
	for _, piece := range pieces {
		_, _ = mac.Write(piece)
	}
	return mac.Sum(nil)[:verpMACBytes]
}

// readToken gives the delivery of a token that was issued here.
func (a *Adapter) readToken(token string) (deliveryID string, valid bool) {
	id, mac, ok := splitToken(token)
	if !ok || !hmac.Equal(mac, a.tokenMAC(id)) {
		return "", false
	}
	return id.String(), true
}

// splitToken takes a token apart, whoever issued it.
func splitToken(token string) (id uuid.UUID, mac []byte, ok bool) {
	const idLength, macLength = 26, 16 // of 16 and 10 bytes
	if len(token) != idLength+macLength {
		return id, nil, false
	}
	token = strings.ToUpper(token)
	raw, err := tokenCode.DecodeString(token[:idLength])
	if err != nil {
		return id, nil, false
	}
	mac, err = tokenCode.DecodeString(token[idLength:])
	if err != nil {
		return id, nil, false
	}
	id, err = uuid.FromBytes(raw)
	return id, mac, err == nil
}

// tokenIn reads the token of a bounce address.
func (a *Adapter) tokenIn(address string) (deliveryID string, valid bool) {
	local, _, _ := strings.Cut(strings.Trim(address, "<> "), "@")
	name, tag, _ := strings.Cut(local, "+")
	if !strings.EqualFold(name, bounceLocal) {
		return "", false
	}
	return a.readToken(tag)
}
