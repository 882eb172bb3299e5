package attacks

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"inbox/e2e/load"
)

func jsonOf(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err) // maps of texts and numbers can be written
	}
	return encoded
}

// call makes a request and returns the status as text, and the answer. What went wrong on the way is a status of its own.
func (w *world) call(ctx context.Context, client *http.Client, method, path string, header http.Header, body []byte) (string, []byte) {
	request, err := http.NewRequestWithContext(ctx, method, w.url(path), bytes.NewReader(body))
	if err != nil {
		return err.Error(), nil
	}
	if len(body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodPost {
		request.Header.Set("A2A-Version", "1.0")
	}
	maps.Copy(request.Header, header)
	response, err := client.Do(request)
	if err != nil {
		return "a broken connection", nil
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return "a broken connection", nil
	}
	return fmt.Sprint(response.StatusCode), answer
}

// outcome names how a task was answered.
func outcome(err error) string {
	if status, is := errors.AsType[*load.StatusError](err); is {
		return fmt.Sprint(status.Status)
	}
	if rpc, is := errors.AsType[*load.RPCError](err); is {
		return fmt.Sprint("error ", rpc.Code)
	}
	if err != nil {
		return "a broken connection"
	}
	return "200"
}

// sendBody is a blocking SendMessage with one part.
func sendBody(id string, part any) []byte {
	return jsonOf(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{
		"message": map[string]any{"messageId": id, "role": "ROLE_USER", "parts": []any{part}},
	}})
}

// peerKey signs for the agents of a server elsewhere.
type peerKey struct {
	kid     string
	private ed25519.PrivateKey
}

func newPeerKey(kid string) peerKey {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return peerKey{kid, private}
}

func base64url(content []byte) string { return base64.RawURLEncoding.EncodeToString(content) }

// set is what the server publishes at /.well-known/jwks.json.
func (k peerKey) set() []byte {
	public, _ := k.private.Public().(ed25519.PublicKey)
	return jsonOf(map[string]any{"keys": []map[string]string{{"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": k.kid, "x": base64url(public)}}})
}

// assertion says that the agent @name@host calls an agent here, good for one request.
func (k peerKey) assertion(host, name, agent string) string {
	now := time.Now()
	text := base64url(jsonOf(map[string]string{"alg": "EdDSA", "typ": "JWT", "kid": k.kid})) + "." + base64url(jsonOf(map[string]any{
		"iss": "https://" + host, "sub": "@" + name + "@" + host, "aud": "https://" + domain + "/a2a/" + agent, "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
	}))
	return text + "." + base64url(ed25519.Sign(k.private, []byte(text)))
}
