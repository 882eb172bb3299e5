package signature

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/go-fed/httpsig"

	"inbox/adapters/activitypub/document"
	"inbox/internal/signing"
)

// SignCavage signs an outgoing request with draft-cavage: (request-target) host date, and digest with a body. The
// Date header must be set. content-type and user-agent stay uncovered: proxies and frameworks rewrite them.
func SignCavage(request *http.Request, body []byte, keyID string, key *rsa.PrivateKey, withQuery bool) error {
	covered := []string{httpsig.RequestTarget, "host", "date"}
	if body != nil {
		covered = append(covered, "digest")
	}

	// A signer keeps the hash that it writes to, so each signature has its own.
	signer, _, err := httpsig.NewSigner([]httpsig.Algorithm{httpsig.RSA_SHA256}, httpsig.DigestSha256, covered, httpsig.Signature, 0)
	if err != nil {
		return fmt.Errorf("make signer: %w", err)
	}

	target := request.URL.EscapedPath()
	if withQuery {
		target = request.URL.RequestURI()
	}
	signed := standIn(request.Method, target, http.Header{"Host": {request.URL.Host}, "Date": request.Header["Date"]})
	if err := signing.Do(func() error { return signer.SignRequest(key, keyID, signed, body) }); err != nil {
		return fmt.Errorf("sign request: %w", err)
	}

	// The library announces hs2019 (TestLibraryAnnouncesHS2019), which older servers refuse. The parameter itself is not signed.
	request.Header.Set("Signature", strings.Replace(signed.Header.Get("Signature"), `algorithm="hs2019"`, `algorithm="rsa-sha256"`, 1))
	if body != nil {
		request.Header["Digest"] = signed.Header["Digest"]
	}
	return nil
}

// standIn returns a request for go-fed/httpsig. The library signs URL.Path, which net/url has decoded (TestLibrarySignsTheDecodedPath), so the
// path is the whole target as it is on the wire.
func standIn(method, target string, header http.Header) *http.Request {
	return &http.Request{Method: method, URL: &url.URL{Path: target}, Header: header}
}

// defaultOffer covers what Mastodon and Fedify ask for.
var defaultOffer = Offer{Label: "sig1", Components: []string{"@method", "@target-uri", "@authority", "content-digest"}}

// defaultReading is defaultOffer for a request without a body.
var defaultReading = Offer{Label: "sig1", Components: []string{"@method", "@target-uri", "@authority"}}

// SignMessage signs an outgoing request by RFC 9421 as a peer wants it that asked for nothing. A request without a body, such as
// a GET, has a nil body.
func SignMessage(request *http.Request, body []byte, keyID string, key *rsa.PrivateKey, now time.Time) error {
	if body == nil {
		return defaultReading.Sign(request, nil, keyID, key, now)
	}
	return defaultOffer.Sign(request, body, keyID, key, now)
}

// Offer is how a server asks to be signed to (Accept-Signature, RFC 9421, section 5.1).
type Offer struct {
	Label      string
	Components []string
	Nonce, Tag string
	Expires    bool
}

// offerLife is how long a signature holds where the peer wants it to end.
const offerLife = 5 * time.Minute

// offered are the components that we can cover.
var offered = map[string]bool{
	"@method": true, "@target-uri": true, "@authority": true, "@scheme": true, "@request-target": true, "@path": true, "@query": true,
	"content-digest": true, "content-type": true, "content-length": true, "date": true, "host": true,
}

// ofBody are the components that a request without a body does not have. Servers that always send the same offer name them in
// the answer to a GET, too; a digest they get, of no bytes.
var ofBody = []string{"content-type", "content-length"}

// ReadOffer takes the first offer that we can meet with a request of the method, signed by the key. What it leaves out and every
// server needs is added: a signature that does not cover the body would be good for any other body too.
func ReadOffer(header http.Header, method, keyID string) *Offer {
	if len(joined(header.Values("Accept-Signature"))) > maxSignatureBytes {
		return nil
	}
	asked, err := httpsfv.UnmarshalDictionary(header.Values("Accept-Signature"))
	if err != nil {
		return nil
	}

	for _, label := range asked.Names()[:min(len(asked.Names()), maxLabels)] {
		member, _ := asked.Get(label)
		list, isList := member.(httpsfv.InnerList)
		if !isList || len(list.Items) > maxCovered {
			continue
		}
		if offer, ok := readOneOffer(label, list, method, keyID); ok {
			return offer
		}
	}

	return nil
}

func readOneOffer(label string, list httpsfv.InnerList, method, keyID string) (*Offer, bool) {
	offer, hasBody := &Offer{Label: label}, method != http.MethodGet
	for _, item := range list.Items {
		name, isText := item.Value.(string)
		if !hasBody && slices.Contains(ofBody, name) {
			continue
		}
		if !isText || !offered[name] || item.Params != nil && len(item.Params.Names()) > 0 || slices.Contains(offer.Components, name) {
			return nil, false
		}
		offer.Components = append(offer.Components, name)
	}

	if list.Params != nil {
		for _, name := range list.Params.Names() {
			value, _ := list.Params.Get(name)
			text, _ := value.(string)
			switch name {
			case "created":
			case "expires":
				offer.Expires = true
			case "nonce":
				offer.Nonce = text
			case "tag":
				offer.Tag = text
			case "alg":
				if text != "" && text != "rsa-v1_5-sha256" {
					return nil, false
				}
			case "keyid":
				if text != "" && text != keyID {
					return nil, false
				}
			default:
				return nil, false
			}
		}
	}

	for _, needed := range []string{"@method", "content-digest"} {
		if (hasBody || needed == "@method") && !slices.Contains(offer.Components, needed) {
			offer.Components = append(offer.Components, needed)
		}
	}

	if !slices.Contains(offer.Components, "@target-uri") && !slices.Contains(offer.Components, "@authority") {
		offer.Components = append(offer.Components, "@target-uri")
	}
	return offer, len(offer.Components) <= maxCovered
}

// Sign signs a request as the offer wants it.
func (o *Offer) Sign(request *http.Request, body []byte, keyID string, key *rsa.PrivateKey, now time.Time) error {
	if body != nil || slices.Contains(o.Components, "content-digest") {
		sum := sha256.Sum256(body)
		request.Header.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
	}

	parameters := httpsfv.NewParams()
	parameters.Add("created", now.Unix())
	if o.Expires {
		parameters.Add("expires", now.Add(offerLife).Unix())
	}

	parameters.Add("keyid", keyID)
	parameters.Add("alg", "rsa-v1_5-sha256")
	for name, value := range map[string]string{"nonce": o.Nonce, "tag": o.Tag} {
		if value != "" {
			parameters.Add(name, value)
		}
	}

	covered := httpsfv.InnerList{Params: parameters}
	var base strings.Builder
	for _, name := range o.Components {
		value, err := componentOf(request, body, name)
		if err != nil {
			return err
		}
		covered.Items = append(covered.Items, httpsfv.NewItem(name))
		fmt.Fprintf(&base, "%q: %s\n", name, value)
	}

	serialized, err := httpsfv.Marshal(covered)
	if err != nil {
		return fmt.Errorf("serialize components: %w", err)
	}

	hash := sha256.Sum256([]byte(base.String() + `"@signature-params": ` + serialized))
	var signature []byte
	if err := signing.Do(func() (err error) {
		signature, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, hash[:])
		return err
	}); err != nil {
		return fmt.Errorf("sign request: %w", err)
	}

	request.Header.Set("Signature-Input", o.Label+"="+serialized)
	request.Header.Set("Signature", o.Label+"=:"+base64.StdEncoding.EncodeToString(signature)+":")
	return nil
}

// componentOf returns the value of a component of our own request (RFC 9421, sections 2.1 and 2.2).
func componentOf(request *http.Request, body []byte, name string) (string, error) {
	target := request.URL
	switch name {
	case "@method":
		return request.Method, nil
	case "@target-uri":
		return target.Scheme + "://" + target.Host + target.RequestURI(), nil
	case "@authority", "host":
		if name == "host" {
			return target.Host, nil
		}
		return document.HostOf(target.Scheme + "://" + target.Host), nil
	case "@scheme":
		return target.Scheme, nil
	case "@request-target":
		return target.RequestURI(), nil
	case "@path":
		if path := target.EscapedPath(); path != "" {
			return path, nil
		}
		return "/", nil
	case "@query":
		return "?" + target.RawQuery, nil
	case "content-length":
		return strconv.Itoa(len(body)), nil
	}

	if value := request.Header.Get(name); value != "" {
		return value, nil
	}
	return "", errors.New("the request has no " + name)
}
