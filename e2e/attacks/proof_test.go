package attacks

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gowebpki/jcs"
)

// capturedDeed: what an object proof alone vouches for had no age, while what was done is forgotten after 30 days.
func (a *watched) capturedDeed() {
	const actor, keyID = "https://proofs.example/users/ana", "https://proofs.example/users/ana#proof"
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	host := a.fediverse("proofs.example", nil)
	document := host.person("ana").Document()
	document["@context"] = []string{"https://www.w3.org/ns/activitystreams", "https://w3id.org/security/v1", "https://w3id.org/security/multikey/v1"}
	document["assertionMethod"] = []map[string]string{{"id": keyID, "type": "Multikey", "controller": actor, "publicKeyMultibase": multibase(append([]byte{0xed, 0x01}, public...))}}
	host.server.Handler = http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/users/ana" {
			host.write(writer, "application/activity+json", document)
			return
		}
		host.serve(writer, request)
	})
	send := func(ctx context.Context, age time.Duration, n string) string {
		context := []string{"https://www.w3.org/ns/activitystreams", "https://w3id.org/security/data-integrity/v1"}
		activity := map[string]any{"@context": context, "id": "https://proofs.example/follows/" + n, "type": "Follow", "actor": actor, "object": a.url("/agents/echo")}
		proof := map[string]any{
			"@context": context, "type": "DataIntegrityProof", "cryptosuite": "eddsa-jcs-2022", "verificationMethod": keyID, "proofPurpose": "assertionMethod",
			"created": time.Now().Add(-age).UTC().Format(time.RFC3339),
		}
		digest := append(canonicalHash(proof), canonicalHash(activity)...)
		proof["proofValue"] = multibase(ed25519.Sign(private, digest))
		activity["proof"] = proof
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url("/agents/echo/inbox"), bytes.NewReader(jsonOf(activity)))
		if err != nil {
			return err.Error()
		}
		request.Header.Set("Content-Type", "application/activity+json")
		response, err := a.client("62.16.1.7").Do(request)
		if err != nil {
			return "a broken connection"
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return strconv.Itoa(response.StatusCode)
	}
	if status := send(a.t.Context(), 28*24*time.Hour, "fresh"); status != "202" {
		a.t.Errorf("A9: a proof of four weeks is answered %s, want 202", status)
	}
	result := a.attack("A9", "20 captured activities whose proofs are 30 days old", func(ctx context.Context, heard *answers) {
		a.spread(ctx, 20, 2, func(_, i int) { heard.add(send(ctx, 30*24*time.Hour, fmt.Sprint("captured-", i))) })
	})
	a.heardOnly(result, "401")
	a.cheap(result, 20*time.Millisecond, 50<<20)
}

func canonicalHash(value any) []byte {
	canonical, err := jcs.Transform(jsonOf(value))
	if err != nil {
		panic(err) // it was JSON a moment ago
	}
	sum := sha256.Sum256(canonical)
	return sum[:]
}

// multibase is base58btc with its letter z (draft-multiformats-multibase).
func multibase(content []byte) string {
	const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	var text string
	digit := new(big.Int)
	for rest := new(big.Int).SetBytes(content); rest.Sign() > 0; {
		rest.DivMod(rest, big.NewInt(int64(len(alphabet))), digit)
		text = alphabet[digit.Int64():digit.Int64()+1] + text
	}
	zeros := len(content) - len(bytes.TrimLeft(content, "\x00"))
	return "z" + strings.Repeat(alphabet[:1], zeros) + text
}
