package public

import (
	"net/http"
	"time"

	"inbox/internal/catalog"
	"inbox/internal/design"
)

// FederationPath is the address of the page for administrators of other servers. The User-Agent of each request names it.
const FederationPath = "/about/federation"

// Federation is what administrators of other servers read about this one.
type Federation struct {
	Domain, Host string // of the accounts, and of the requests' signatures
	UserAgent    string
	Signer       string // actor that signs requests for documents
	Agents       string // start of the ids of the actors that sign activities
	MailHost     string // name by which this server greets mail servers; empty = it has no mail
	Postmaster   string // mail address that reaches the operator; empty = it has no mail

	Keys, Accounts            time.Duration // how long keys are used without a new request, and profiles are kept
	Ancestors, AncestorsOfOne int           // notes fetched above one question: at most, and at most from one server
	Confirmations             int           // notes that one server can cause to be fetched in a minute
	AtOnce, PerSecond         int           // deliveries to one server; 0 per second = no limit

	NoBots                         []string // words in a profile by which people ask programs not to write
	StopWord                       string   // message that silences an agent; empty = none
	AllowlistOnly, AuthorizedFetch bool

	Messages, Originals, Records, Audit time.Duration // how long they are kept; 0 = without an end
}

func (p *Pages) federation(w http.ResponseWriter, r *http.Request) {
	r = catalog.ForReader(r)
	head := p.head(r, text(r.Context(), "For administrators of other servers"), FederationPath)
	head.Description, head.OpenGraph.Type = text(r.Context(), "What this server requests from other servers, what it keeps, and how to stop it."), "website"
	send(w, r, federationPage(head, p.options.Federation(), p.options.Operator), design.Answer{Status: http.StatusOK, Keep: keep})
}

// hours returns a period in whole hours, at least one.
func hours(period time.Duration) int { return max(1, int(period/time.Hour)) }
