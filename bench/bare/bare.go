// Package bare is the least program that accepts signed deliveries honestly: it checks digest and signature, parses the
// activity, and answers after two rows were synced to SQLite. It is the yardstick beside which the server is measured
// and has no policy, no limits and no agents; no one should run it for anything else.
package bare

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
)

// maxBody bounds an activity, in bytes.
const maxBody = 1 << 20

// Serve accepts deliveries at address until ctx ends and keeps them in a database in the directory.
func Serve(ctx context.Context, address, directory string) error {
	kept, err := open(ctx, directory)
	if err != nil {
		return err
	}
	defer func() { _ = kept.close() }()

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}

	server := &http.Server{Handler: &inbox{kept: kept}}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()

	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}

	return nil
}

// inbox answers 202 to what is signed and stored.
type inbox struct {
	kept *database
	keys sync.Map // key id → *rsa.PublicKey
}

type activity struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Actor  string `json:"actor"`
	Object struct {
		ID      string `json:"id"`
		Content string `json:"content"`
	} `json:"object"`
}

func (i *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost { // someone asks whether it runs
		w.WriteHeader(http.StatusNoContent)
		return
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = i.verify(r, body)
	}

	var a activity
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	if err == nil {
		err = i.kept.insert(r.Context(), a, body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}

	w.WriteHeader(http.StatusAccepted)
}

var parameter = regexp.MustCompile(`(\w+)="([^"]*)"`)

// verify checks digest and signature (draft-cavage-http-signatures-12, rsa-sha256).
func (i *inbox) verify(r *http.Request, body []byte) error {
	sum := sha256.Sum256(body)
	if r.Header.Get("Digest") != "SHA-256="+base64.StdEncoding.EncodeToString(sum[:]) {
		return errors.New("the digest is another one")
	}

	given := make(map[string]string)
	for _, match := range parameter.FindAllStringSubmatch(r.Header.Get("Signature"), -1) {
		given[match[1]] = match[2]
	}

	signature, err := base64.StdEncoding.DecodeString(given["signature"])
	if err != nil {
		return fmt.Errorf("decode signature: %w", err)
	}

	key, err := i.key(r.Context(), given["keyId"])
	if err != nil {
		return err
	}

	signed := sha256.Sum256([]byte(signingString(r, strings.Fields(given["headers"]))))
	return rsa.VerifyPKCS1v15(key, crypto.SHA256, signed[:], signature)
}

func signingString(r *http.Request, names []string) string {
	lines := make([]string, len(names))
	for i, name := range names {
		value := r.Header.Get(name)
		switch name {
		case "(request-target)":
			value = strings.ToLower(r.Method) + " " + r.URL.RequestURI()
		case "host":
			value = r.Host
		}
		lines[i] = name + ": " + value
	}
	return strings.Join(lines, "\n")
}

// key fetches a key when it is seen for the first time.
func (i *inbox) key(ctx context.Context, id string) (*rsa.PublicKey, error) {
	if known, found := i.keys.Load(id); found {
		return known.(*rsa.PublicKey), nil
	}

	document, _, _ := strings.Cut(id, "#")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, document, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch key: %w", err)
	}

	request.Header.Set("Accept", "application/activity+json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("fetch key: %w", err)
	}
	defer func() { _ = response.Body.Close() }()

	var actor struct {
		PublicKey struct{ PublicKeyPem string }
	}

	if err := json.NewDecoder(io.LimitReader(response.Body, maxBody)).Decode(&actor); err != nil {
		return nil, fmt.Errorf("read actor: %w", err)
	}

	block, _ := pem.Decode([]byte(actor.PublicKey.PublicKeyPem))
	if block == nil {
		return nil, errors.New("the actor has no key")
	}

	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	key, isRSA := parsed.(*rsa.PublicKey)
	if err != nil || !isRSA {
		return nil, errors.New("the actor's key is no RSA key")
	}

	i.keys.Store(id, key)
	return key, nil
}
