package config

import "time"

// Trust is one issuer whose evidence about other people's identities the server accepts (message contract, section 10). An
// empty list accepts none. One table per issuer; [trust.md](trust.md) explains who should be in it.
type Trust struct {
	// Who vouches: a host such as `chat.example`, its `https://` origin, or `did:web:…`. A host and its `did:web`
	// are two issuers.
	Issuer string `toml:"issuer" default:"none; required"`
	// Methods of proof that are accepted, such as `urn:mentionable:auth:slack-workspace-member:v0.1`.
	Methods []string `toml:"methods" default:"none; required"`
	// Kinds of assurance that are accepted: `platform`, `domain`, `address`, `agent`, `oauth`, `wallet`, `delegated`.
	Assurance []string `toml:"assurance" default:"none; required"`
	// Beginnings of the subjects that the issuer may speak about, compared letter by letter; each ends at a separator:
	// `slack:T123/`, `acct:`, `https://social.example/`.
	SubjectPrefixes []string `toml:"subject_prefixes" default:"none; required"`
	// Whether the issuer may state for whom a sender acts.
	AllowDelegated bool `toml:"allow_delegated"`
	// Until when the issuer is trusted: a TOML date or time, in UTC where it names no zone.
	Expires time.Time `toml:"expires" default:"never"`
}

// Peer is another server whose agents yours call. One table per server.
type Peer struct {
	// The part of its agents' addresses after the last @.
	Domain string `toml:"domain" default:"none; required"`
	// Bearer token that its operator made for you (`inbox tokens create` there).
	Token Secret `toml:"token"`
	// File with that token instead; a line end after it is cut off.
	TokenFile string `toml:"token_file"`
}

// Login is a service at which people log in to prove who they are, when an agent demands it (OpenID Connect). Register
// `<public_url>/policy/login/callback` there. One table per service.
type Login struct {
	// Short name: lower-case letters, digits and hyphens. Agents name it in their demand.
	Name string `toml:"name" default:"none; required"`
	// Issuer URL of the service, below which it publishes `/.well-known/openid-configuration`.
	Issuer string `toml:"issuer" default:"none; required"`
	// Client id that the service gave you.
	ClientID string `toml:"client_id" default:"none; required"`
	// Client secret that the service gave you; empty for a public client.
	ClientSecret Secret `toml:"client_secret"`
	// File with that secret instead; a line end after it is cut off.
	ClientSecretFile string `toml:"client_secret_file"`
	// Scopes that the server asks for; `openid` must be among them.
	Scopes []string `toml:"scopes"`
}

// Payments is how payments are checked and taken (x402).
type Payments struct {
	// Facilitator that verifies and settles payments, `https://…`; empty = agents cannot demand payments.
	FacilitatorURL string `toml:"facilitator_url"`
}

// Rule lets senders in or keeps them out. Rules are asked in the order of the file, and the first that matches decides. If a
// rule has several keys, all must match; a key that is missing matches everyone.
type Rule struct {
	// `allow` or `deny`.
	Effect string `toml:"effect" default:"none; required"`
	// What the rule is about: `message`, `tool:<name>`, `skill:<id>`, each with its whole name, without `*`. Tools and skills need
	// a rule that allows them.
	Purposes []string `toml:"purposes" default:"[\"message\"]"`
	// Who vouches, as in `[[trust]]`; your own domain for what this server verified itself.
	Issuer string `toml:"issuer"`
	// Method of the proof, such as `urn:mentionable:auth:email-dmarc:v0.1`.
	Method string `toml:"method"`
	// The subject of the proof: the whole, or its beginning up to a separator (`/ : # ? = @`) and `*`, such as
	// `slack:T123/*`.
	Subject string `toml:"subject"`
	// Kinds of assurance, of which the evidence has one.
	Assurance []string `toml:"assurance"`
	// Pattern over the sender's address: `@alice@example.org`, `@*@example.org`; `*.` before the domain is one label,
	// `**.` one or more. To allow, evidence must prove the address; to deny, the address as stated is enough.
	Address string `toml:"address"`
	// Instead of the agent's `approve_replies` for the senders whom the rule lets in: `never`, `always` or `unverified`. The
	// first rule with this key that matches a sender counts.
	ApproveReplies string `toml:"approve_replies" default:"that of the agent"`
}

// setDefaults fills a table [[logins]] before its keys are read.
func (l *Login) setDefaults() { *l = Login{Scopes: []string{"openid"}} }

// Issuer is one trusted issuer of bearer tokens. One table per issuer; [a2a.md](a2a.md) explains them. Tokens of `inbox tokens
// create` and peers that sign for themselves need none.
type Issuer struct {
	// Value of the `iss` claim, compared letter by letter.
	Issuer string `toml:"issuer" default:"none; required"`
	// Where the issuer publishes its keys. Either this or `discovery`.
	JWKSURL string `toml:"jwks_url"`
	// Where the issuer publishes its metadata (RFC 8414 or OpenID Connect Discovery), which must name this very issuer.
	Discovery string `toml:"discovery"`
	// Values of the `aud` claim that are accepted beside the agent's own address `<public_url>/a2a/<agent>`. One that names an
	// agent opens that agent only; any other opens all agents of this server.
	Audiences []string `toml:"audiences"`
	// Signature algorithms that are accepted: `EdDSA`, `ES256`, `ES384`, `ES512`, `RS256` … `RS512`, `PS256` … `PS512`.
	Algs []string `toml:"algs" default:"ES256, EdDSA, RS256, PS256"`
	// `a2a-oauth`: access tokens (RFC 9068), valid until they expire. `a2a-jwt`: tokens for one request, of at most five
	// minutes and with a `jti`. A whole method URN counts as the first, and the evidence carries it unchanged.
	Method string `toml:"method" default:"a2a-oauth"`
	// Whether access tokens without `typ` `at+jwt`, `client_id` and `jti` are accepted, as some older services issue them.
	Untyped bool `toml:"untyped"`
	// Whether access tokens without a `scope` claim open every method.
	Unscoped bool `toml:"unscoped"`
}
