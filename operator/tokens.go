package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/bridge/contract"
	"inbox/adapters/discovery"
	"inbox/adapters/email"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bearer"
	"inbox/internal/config"
	"inbox/internal/disk"
	"inbox/internal/fault"
)

// Tokens are bearer tokens. Only their hashes are kept; a revoked one opens nothing any more at all nodes.
type Tokens struct {
	Rows   TokenRows
	Agents func() []string // names of the agents that a token may open, which no peer may have
	Shown  exchange.Tokens // finds the tokens that callers show; nil = Rows

	end time.Time // of tokens that are created; zero = never
}

// TokenRows keeps tokens.
type TokenRows interface {
	CreateToken(ctx context.Context, token exchange.Token) error
	Tokens(ctx context.Context) ([]exchange.Token, error)
	TokenByHash(ctx context.Context, hash string) (exchange.Token, bool, error)
	RevokeToken(ctx context.Context, id string) error
	// DeleteToken ends a token like RevokeToken and leaves no row of it.
	DeleteToken(ctx context.Context, id string) error
}

// List lists the tokens, newest first; never the secrets.
func (t Tokens) List(ctx context.Context) ([]exchange.Token, error) {
	tokens, err := t.Rows.Tokens(ctx)
	return listed(tokens), err
}

// TokenFilter selects tokens. Empty fields do not restrict.
type TokenFilter struct {
	Agent  string // the only agent that it opens
	Name   string
	Scope  string // exchange.TokenPeer is written "peer"; those of bridges "bridge"
	Status string // valid, revoked or expired
	Before string // id of the last row of the page before
	Limit  int    // 0 = all
}

// Statuses of a token for TokenFilter.
const (
	TokenValid   = "valid"
	TokenRevoked = "revoked"
	TokenExpired = "expired"
)

// ScopePeer is how a TokenFilter calls the scope of peers, which has no word of its own.
const ScopePeer = "peer"

// Select lists tokens, newest first; never the secrets. fault.Malformed for a status that there is not.
func (t Tokens) Select(ctx context.Context, filter TokenFilter) ([]exchange.Token, error) {
	if filter.Status != "" && !slices.Contains([]string{TokenValid, TokenRevoked, TokenExpired}, filter.Status) {
		return nil, fault.InField("status", "must be one of valid, revoked, expired")
	}

	tokens, err := t.List(ctx)
	if err != nil {
		return nil, err
	}
	tokens = slices.DeleteFunc(tokens, func(token exchange.Token) bool { return !filter.selects(token) })
	if filter.Limit > 0 {
		tokens = tokens[:min(filter.Limit, len(tokens))]
	}
	return tokens, nil
}

func (f TokenFilter) selects(token exchange.Token) bool {
	scope := token.Scope
	if scope == exchange.TokenPeer {
		scope = ScopePeer
	} else if _, bridge := token.BridgeScopes(); bridge {
		scope = exchange.TokenBridge
	}
	return (f.Agent == "" || f.Agent == token.Agent) && (f.Name == "" || f.Name == token.Name) && (f.Scope == "" || f.Scope == scope) &&
		(f.Status == "" || f.Status == StatusOf(token)) && (f.Before == "" || token.ID < f.Before)
}

// StatusOf returns whether a token is valid now, revoked, or expired.
func StatusOf(token exchange.Token) string {
	switch {
	case !token.RevokedAt.IsZero():
		return TokenRevoked
	case !token.Valid(now()):
		return TokenExpired
	}
	return TokenValid
}

// Until makes the tokens that are created from now on end at a time; zero = never.
func (t Tokens) Until(end time.Time) Tokens {
	t.end = end
	return t
}

// Ahead reads when something ends: an age such as "90d" or "12h" from now on, or a time (RFC 3339) that is not past; empty = never, which
// is the zero time. fault.Malformed otherwise.
func Ahead(field, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}

	const mostDays = 36_500
	if days, is := strings.CutSuffix(text, "d"); is {
		if count, err := strconv.Atoi(days); err == nil && count > 0 && count <= mostDays {
			return now.AddDate(0, 0, count), nil
		}
	}
	if age, err := time.ParseDuration(text); err == nil && age > 0 {
		return now.Add(age), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil && at.After(now) {
		return at, nil
	}
	return time.Time{}, fault.InField(field, `must be a time ahead such as "90d", "12h" or "2027-01-01T00:00:00Z"`)
}

// Create mints a token for a peer; agent limits it to one agent. The name becomes the peer's address, so it must not be the
// name of an agent.
func (t Tokens) Create(ctx context.Context, name, agent string) (string, exchange.Token, error) {
	return t.create(ctx, name, agent, exchange.TokenPeer)
}

// CreatePull mints a token for the program behind an agent of kind pull: it reads every message to the agent and answers in
// its name. It opens nothing to callers.
func (t Tokens) CreatePull(ctx context.Context, name, agent string) (string, exchange.Token, error) {
	if agent == "" {
		return "", exchange.Token{}, fault.InField("agent", "is required: the token is for one agent")
	}
	return t.create(ctx, name, agent, exchange.TokenPull)
}

// CreateTools mints a token for a program that executes the client tools of an agent: it reads their calls and hands in the
// results. It opens nothing to callers.
func (t Tokens) CreateTools(ctx context.Context, name, agent string) (string, exchange.Token, error) {
	if agent == "" {
		return "", exchange.Token{}, fault.InField("agent", "is required: the token is for one agent")
	}
	return t.create(ctx, name, agent, exchange.TokenTools)
}

// CreateTasks mints a token for a program that runs tasks; agent limits it to the targets of one agent. With results it also reads
// what its runs brought. It opens no agent otherwise.
func (t Tokens) CreateTasks(ctx context.Context, name, agent string, results bool) (string, exchange.Token, error) {
	scope := exchange.TokenTasks
	if results {
		scope = exchange.TokenTaskResults
	}
	return t.create(ctx, name, agent, scope)
}

// CreateBridge mints a token for a bridge, whose client has the name; agent limits it to one agent, scopes to some of
// exchange.AllBridgeScopes. Tokens of one name share one queue.
func (t Tokens) CreateBridge(ctx context.Context, name, agent string, scopes []string) (string, exchange.Token, error) {
	if contract.Slug(name) != name || name == "" {
		return "", exchange.Token{}, fault.New(fault.Malformed, "a bridge's name must be small letters, digits and hyphens between them")
	}
	if len(scopes) == 0 {
		return "", exchange.Token{}, fault.New(fault.Malformed, "a bridge's token needs a scope: send, pending or ack")
	}

	for _, scope := range scopes {
		if !slices.Contains(exchange.AllBridgeScopes(), scope) {
			return "", exchange.Token{}, fault.Newf(fault.Malformed, "there is no scope %q: write some of send, pending, ack", scope)
		}
	}
	return t.create(ctx, name, agent, exchange.BridgeScope(scopes))
}

func (t Tokens) create(ctx context.Context, name, agent, scope string) (string, exchange.Token, error) {
	if err := validTokenName(name); err != nil {
		return "", exchange.Token{}, err
	}

	known := agent == ""
	for _, own := range t.Agents() {
		if strings.EqualFold(own, name) {
			return "", exchange.Token{}, fault.Newf(fault.Conflict, "%s is an agent of this server; choose another name for the peer", name)
		}
		known = known || strings.EqualFold(own, agent)
	}

	if !known {
		return "", exchange.Token{}, fault.Newf(fault.NotFound, "there is no agent %q; see: inbox agents list", agent)
	}

	return t.mint(ctx, name, agent, scope)
}

// CreateAdmin mints a token that opens all of the operator API and of the console. It opens no agent.
func (t Tokens) CreateAdmin(ctx context.Context, name string) (string, exchange.Token, error) {
	return t.CreateOperator(ctx, name, exchange.RoleAdmin)
}

// CreateOperator mints a token of an operator with a role. It opens no agent.
func (t Tokens) CreateOperator(ctx context.Context, name string, role exchange.Role) (string, exchange.Token, error) {
	if err := validTokenName(name); err != nil {
		return "", exchange.Token{}, err
	}
	if role < exchange.RoleRead || role > exchange.RoleAdmin {
		return "", exchange.Token{}, fault.InField("role", "must be one of read, work, admin")
	}
	return t.mint(ctx, name, "", role.String())
}

// NewToken is a token that an operator wants.
type NewToken struct {
	Name    string `json:"name"`
	Scope   string `json:"scope"`             // ScopePeer, or the role of an operator: read, work or admin
	Agent   string `json:"agent,omitempty"`   // the only agent that a peer's token opens; empty = all
	Expires string `json:"expires,omitempty"` // see Ahead
}

// New mints a token of a peer or of an operator, and returns its secret. Errors are fault.Malformed, fault.Conflict for the name of an
// agent, and fault.NotFound for an agent that there is not.
func (t Tokens) New(ctx context.Context, wanted NewToken) (secret string, token exchange.Token, err error) {
	if t.end, err = Ahead("expires", wanted.Expires, now()); err != nil {
		return "", token, err
	}

	roles := map[string]exchange.Role{exchange.TokenRead: exchange.RoleRead, exchange.TokenWork: exchange.RoleWork, exchange.TokenAdmin: exchange.RoleAdmin}
	role, operates := roles[wanted.Scope]
	switch {
	case wanted.Scope == ScopePeer:
		return t.Create(ctx, wanted.Name, wanted.Agent)
	case !operates:
		return "", token, fault.InField("scope", "must be one of peer, read, work, admin")
	case wanted.Agent != "":
		return "", token, fault.InField("agent", "belongs to tokens of peers: an operator's opens no agent")
	}
	return t.CreateOperator(ctx, wanted.Name, role)
}

func validTokenName(name string) error {
	if !identity.ValidAgentName(name) {
		return fault.New(fault.Malformed, "a token's name must be 1 to 64 of A-Z a-z 0-9 . _ - without a dot at either end")
	}
	return nil
}

func (t Tokens) mint(ctx context.Context, name, agent, scope string) (string, exchange.Token, error) {
	token, hash := bearer.Mint()
	record := tokenOf(name, agent, scope, hash)
	record.ExpiresAt = t.end.UTC()
	return token, record, t.Rows.CreateToken(ctx, record)
}

func tokenOf(name, agent, scope, hash string) exchange.Token {
	return exchange.Token{ID: uuid.Must(uuid.NewV7()).String(), Name: name, Agent: agent, Scope: scope, Hash: hash, CreatedAt: now()}
}

// Revoke makes a token useless.
func (t Tokens) Revoke(ctx context.Context, id string) error {
	return t.Rows.RevokeToken(ctx, id)
}

// remove ends a token of the operator's own tests and leaves no row of it. It may be gone already.
func (t Tokens) remove(ctx context.Context, id string) error {
	if err := t.Rows.DeleteToken(ctx, id); !fault.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

// ByHash finds a token that a caller showed by the lower-case hex SHA-256 of its text; revoked and expired ones too.
func (t Tokens) ByHash(ctx context.Context, hash string) (exchange.Token, bool, error) {
	if t.Shown != nil {
		return t.Shown.TokenByHash(ctx, hash)
	}
	return t.Rows.TokenByHash(ctx, hash)
}

// AdminTokenFile is the file in the data directory with the first token of the operator API.
const AdminTokenFile = "admin-token"

// EnsureAdmin mints the first operator token of a new server: it writes the token to a file of the directory that only this
// user may read, then its hash to the database. A crash in between is mended by the next start, which finds the file. An
// operator who took the file away, or revoked the token, gets no new one.
func (t Tokens) EnsureAdmin(ctx context.Context, directory string) error {
	path := filepath.Join(directory, AdminTokenFile)
	content, err := os.ReadFile(path)
	if err == nil {
		return t.registerAdmin(ctx, strings.TrimSpace(string(content)))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data_dir: cannot read %s: %w", path, disk.Cause(err))
	}

	tokens, err := t.Rows.Tokens(ctx)
	if err != nil {
		return err
	}

	for _, token := range tokens {
		if token.Scope == exchange.TokenAdmin {
			return nil
		}
	}

	token, _ := bearer.Mint()
	if err := disk.WritePrivate(path, token+"\n"); err != nil {
		return fmt.Errorf("data_dir: cannot write %s: %w", path, disk.Cause(err))
	}

	slog.InfoContext(ctx, "the first token of the operator API was written", "file", path)
	return t.registerAdmin(ctx, token)
}

const minAdminToken = 40

// registerAdmin stores the hash of the file's token unless it is known; a revoked one stays revoked.
func (t Tokens) registerAdmin(ctx context.Context, token string) error {
	if len(token) < minAdminToken {
		return nil // emptied by the operator: nothing that could be guessed becomes a key
	}

	hash := bearer.Hash(token)
	if _, found, err := t.Rows.TokenByHash(ctx, hash); found || err != nil {
		return err
	}
	if err := t.Rows.CreateToken(ctx, tokenOf("first", "", exchange.TokenAdmin, hash)); err != nil && !fault.Is(err, fault.Conflict) {
		return err
	}
	return nil
}

// Vault keeps the documents with private keys.
type Vault interface {
	discovery.State
	email.KeyState
}

// Keys are the public keys with which this server vouches for its agents.
type Keys struct {
	config *config.Config
	vault  func(ctx context.Context) (Vault, error)
}

// PublishedKey is one of them.
type PublishedKey struct {
	ID       string    `json:"kid"`
	NotAfter time.Time `json:"not_after,omitzero"` // zero = it is in use
}

// List lists the published keys, the one in use first.
func (k Keys) List(ctx context.Context) ([]PublishedKey, error) {
	keyring, err := k.keyring(ctx)
	if err != nil {
		return nil, err
	}

	active, previous, err := keyring.Public(ctx)
	keys := []PublishedKey{}
	for _, list := range [][]identity.PublicKey{active, previous} {
		for _, key := range list {
			keys = append(keys, PublishedKey{ID: key.Kid, NotAfter: key.NotAfter})
		}
	}
	return keys, err
}

// Rotate makes a new key; servers that run notice within a minute.
func (k Keys) Rotate(ctx context.Context) error {
	keyring, err := k.keyring(ctx)
	if err != nil {
		return err
	}
	return keyring.Rotate(ctx)
}

func (k Keys) keyring(ctx context.Context) (*discovery.Keyring, error) {
	documents, err := k.vault(ctx)
	if err != nil {
		return nil, err
	}
	return discovery.NewKeyring(documents, k.config.Domain, time.Now), nil
}
