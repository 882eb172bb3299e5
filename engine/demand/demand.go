// Package demand keeps what agents ask back before they go on: consent, a login, a payment, or whether two addresses
// belong to one person (message contract, sections 8 and 9). It makes the demand of a parked turn, shows it, decides
// it after the eight checks, captures a payment once the work is done, and ends what was not answered in time. It knows no
// protocol, no SQL and no page; the turns themselves are moved by the pipeline.
package demand

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/facilitator"
	"inbox/internal/openid"
	"inbox/normalized"
	"inbox/policypart"
)

// outcome: issued, granted, paid, denied, expired, refused (a try that failed one of the eight checks)
var demands = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_demands_total",
	Help: "Demands for consent, login or payment, by kind and outcome.",
}, []string{"kind", "outcome"})

// Codes of a demand that asks whether two addresses belong to one person. An agent writes CodeLink into a
// consent_required part. The others are written by Challenge alone: CodeLinkConfirm is what the other address is asked, and CodeLinkComplete
// what the asker is asked about that address.
const (
	CodeLink         = "identity:link"
	CodeLinkConfirm  = "identity:link_confirm"
	CodeLinkComplete = "identity:link_complete"
)

// Keys that this package puts into the data of parts and resolutions.
const (
	// StateKey is the state as a string: of a presented part, for peers that answer by message, that of the server; of a part that the
	// agent issues its own, which it gets back in the resolution.
	StateKey    = "dev.mentionable.state"
	NumberKey   = "dev.mentionable.demand"   // of a resolution: {"id","number","paid"}; carries the count of demands through a turn's runs
	IdentityKey = "dev.mentionable.identity" // of a resolution: the identity that a login proved, shaped like evidence
	PaymentKey  = "dev.mentionable.payment"  // of a resolution: {"payer","network","scheme","amount","asset","pay_to"}
	LinkKey     = "dev.mentionable.link"     // of a resolution: the principal that was linked; of a part: see Challenge
)

// Keys in the metadata of the response that ends a payment, met or not; the adapter that speaks x402 writes them to the wire.
const (
	PaymentStatusKey   = "x402.payment.status"   // payment-completed, payment-failed or payment-rejected
	PaymentErrorKey    = "x402.payment.error"    // with payment-failed: a code of the x402 extension of A2A, such as INVALID_SIGNATURE
	PaymentReceiptsKey = "x402.payment.receipts" // JSON list of what the facilitator answered
)

// MethodOAuth is the method of an identity that was proven by a login at an OpenID provider.
const MethodOAuth = "urn:mentionable:auth:oauth:v0.1"

// MaxDemands bounds the demands of one turn to its asker, MaxApprovals those to others: an agent that asks back for ever
// is stopped.
const (
	MaxDemands   = 5
	MaxApprovals = 25
)

// Store is what this package needs of the database. Demands are inserted and settled by the pipeline inside its own
// transactions; here they are only found and noted.
type Store interface {
	// Demand returns one demand; fault.NotFound when there is none.
	Demand(ctx context.Context, id string) (policypart.Issuance, error)
	// DemandByState finds a demand by the hash of its state.
	DemandByState(ctx context.Context, hash string) (policypart.Issuance, bool, error)
	// DemandByCode finds the newest open demand of a link whose code word has the hash.
	DemandByCode(ctx context.Context, codeHash string) (policypart.Issuance, bool, error)
	// DemandOfTurn returns the newest demand of a turn.
	DemandOfTurn(ctx context.Context, turnID string) (policypart.Issuance, bool, error)
	// Approvals lists demands that an approver decides and not their asker, newest first.
	Approvals(ctx context.Context, filter exchange.ApprovalFilter) ([]policypart.Issuance, error)
	// DueDemands returns at most limit demands that are issued and past their time, or claimed and two minutes past it: the longest overdue
	// first, and only those after the given one in this order.
	DueDemands(ctx context.Context, now time.Time, after policypart.Issuance, limit int) ([]policypart.Issuance, error)
	// WaitingDemands lists demands of an agent that wait for their asker, in the order of their ends and ids: at most limit that end after an instant,
	// or at it with a larger id than after.
	WaitingDemands(ctx context.Context, agent string, ends time.Time, after string, limit int) ([]policypart.Issuance, error)
	// ClaimDemand moves a demand from issued to claimed with one conditional update; false = it was not issued any more,
	// or it is past its time. The same transaction remembers the payment, named by facilitator.Payment.Key (empty = none),
	// until the demand ends unmet; fault.Conflict when another demand has it, then nothing is claimed.
	ClaimDemand(ctx context.Context, id, payment string, notes json.RawMessage, now time.Time) (bool, error)
	// NoteDemand replaces the notes of a demand that is in the status; false = it is not.
	NoteDemand(ctx context.Context, id, status string, notes json.RawMessage) (bool, error)
	// EndLinks ends the links that the filter selects, and returns them.
	EndLinks(ctx context.Context, filter exchange.LinkFilter, end exchange.LinkEnd) ([]exchange.PersonLink, error)
	// Tokens returns all tokens, by whose labels people know the programs that show them.
	Tokens(ctx context.Context) ([]exchange.Token, error)
	// ReviseDemand replaces the code and the notes of an issued demand that has the code; false = it was settled, or it has
	// another code by now.
	ReviseDemand(ctx context.Context, id, codeHash, newHash string, notes json.RawMessage) (bool, error)
	// Audit stores one audit row.
	Audit(ctx context.Context, record exchange.AuditRecord) error
}

// Turns moves the turns that wait for a demand; the pipeline does it. All endings are stored in one transaction, or
// none of them: fault.Conflict means that a demand or a turn is not open any more.
type Turns interface {
	Settle(ctx context.Context, endings ...Ending) error
}

// Ending is one demand that ends, and what becomes of its turn.
type Ending struct {
	Issuance policypart.Issuance  // as it is to be stored: Status, Resolution, Notes and UpdatedAt are the new ones
	From     []string             // statuses from which the change may happen
	Read     json.RawMessage      // notes that the demand must still have, as the change depends on them; nil = any
	Resume   bool                 // the parked turn runs again with the resolution; otherwise it ends with Response
	Response *normalized.Response // the final notice to the asker; nil with Resume; nil and no Resume = only the row changes
	State    string               // end state of the turn with Response: exchange.StateRefused or StateAnswered
	Link     *exchange.PersonLink // that both sides agreed to, each to the other; nil = none
	Audit    []exchange.AuditRecord
}

// Login is one way to log in elsewhere; *openid.Provider is one.
type Login interface {
	Name() string
	// AuthorizationURL returns the address to which the browser is sent. Verifier is the PKCE code verifier.
	AuthorizationURL(ctx context.Context, state, nonce, verifier string) (string, error)
	// Redeem trades what the browser brought back for an identity whose proof was verified. fault.Unauthenticated when the proof is
	// bad, with openid.ErrTurnedBack where there was no login.
	Redeem(ctx context.Context, back openid.Return, nonce, verifier string) (openid.Identity, error)
}

// Facilitator verifies and settles x402 payments; *facilitator.Client is one.
type Facilitator interface {
	Verify(ctx context.Context, payment facilitator.Payment) (facilitator.Verification, error)
	Settle(ctx context.Context, payment facilitator.Payment) (facilitator.Settlement, error)
}

// Options configure a Service. Store, BaseURL and Secret are required.
type Options struct {
	Store       Store
	BaseURL     *url.URL    // where our pages are reached, such as https://agents.example
	Secret      []byte      // at least 32 bytes, the same on every node and after every restart
	Facilitator Facilitator // nil = agents cannot ask for payments
	Logins      []Login     // ways to log in that an unauthorized demand offers; may be empty

	Consent  time.Duration // life of a consent demand; 24 h
	Approval time.Duration // life of a demand that an approver decides; 24 h
	Payment  time.Duration // life of a payment demand; 10 min
	Auth     time.Duration // life of a login demand; 15 min
	Sweep    time.Duration // how often Run looks for what expired; 30 s

	Now    func() time.Time
	Logger *slog.Logger
}

// View is what the page of a demand shows. It contains no secret beside the state that its reader already has.
type View struct {
	ID           string
	Token        string          // the state, for addresses of the page
	Agent        string          // name of the agent that asks
	AgentAddress string          // @agent@domain
	Kind         string          // of the part
	Purpose      string          // "" or policypart.Purpose…
	Status       string          // policypart.Status…; StatusExpired also when the time is over and that is not stored yet
	Open         bool            // it can be decided now
	Part         policypart.Part // Part.Localized returns title and message in the reader's language; url and state are left out
	Asker        string          // subject of the asker's first identity, or the unverified address
	Address      string          // that the asker stated
	Proven       bool            // the asker's evidence proves that address
	Via          string          // network by which the message came and the answer goes: normalized.Via…
	Locale       string          // of the asker's profile, BCP 47; may be empty
	IssuedAt     time.Time
	ExpiresAt    time.Time
	Outcome      string            // policypart.Outcome… once it is settled
	Logins       []string          // names for BeginLogin, while it is open
	Accepts      []json.RawMessage // x402 requirements, while it is open and unpaid
	Word         string            // of a link that was agreed to: the word that the other address has to send to the agent

	LoggedIn *LoggedIn // of the last page of a login; nil on every other

	// Of an approval, whose reader is an approver and not the asker.
	Summary  string // what is to be approved; empty for an answer that is held back
	Tool     string
	Preview  json.RawMessage // what would be done
	Draft    string          // the answer that is held back, as text; it is what would be sent now
	Question string          // the start of the asker's message; on the last page of a login, too
	Reason   string          // of a denial
	Hosts    []string        // names beyond ASCII in what is decided, and how they are looked up
	Shown    string          // digest of all this: a decision brings it back
}

// LoggedIn is who logged in for a demand while it is not decided whether that counts.
type LoggedIn struct {
	Login   string // name of the login
	Address string // verified by its service; empty = it says none
	Name    string // for display
	Subject string
	Attempt string // names the cookie of the attempt; see BeginLogin
	Proof   string // for ConfirmLogin
}
