package email

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"inbox/internal/httpserver"
)

// PolicyPath is where the policy of MTA-STS is found, on the host mta-sts.<domain> (RFC 8461, section 3.3).
const PolicyPath = "/.well-known/mta-sts.txt"

// ownPolicyAge is how long others keep our policy: long enough to protect, short enough to move a server.
const ownPolicyAge = 7 * 24 * time.Hour

// PolicyFile gives the MTA-STS policy of a domain whose only mail server is hostname, and the id that its TXT record
// announces: it follows from the text, so that it changes whenever the policy does.
func PolicyFile(mode, hostname string) (text, id string) {
	text = "version: STSv1\r\nmode: " + mode + "\r\n"
	if mode != stsNone {
		text += "mx: " + hostname + "\r\n"
	}
	text += "max_age: " + strconv.Itoa(int(ownPolicyAge.Seconds())) + "\r\n"
	sum := sha256.Sum256([]byte(text))
	return text, hex.EncodeToString(sum[:8])
}

// Routes are the adapter's web pages: the policy file, for its own host only.
func (a *Adapter) Routes() []httpserver.Route {
	return []httpserver.Route{{Method: http.MethodGet, Pattern: PolicyPath, Handler: http.HandlerFunc(a.servePolicy)}}
}

func (a *Adapter) servePolicy(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if a.options.PolicyMode == "" || !strings.EqualFold(strings.TrimSuffix(host, "."), "mta-sts."+a.domain) {
		http.NotFound(w, r)
		return
	}
	text, _ := PolicyFile(a.options.PolicyMode, a.options.Hostname)
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Cache-Control", "max-age=300")
	_, _ = w.Write([]byte(text))
}
