package exchange

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Role is what an operator may do in the console and the operator API. Each role may do what the one before it may.
type Role int

// Roles, the smallest first.
const (
	RoleNone  Role = iota // nothing
	RoleRead              // looks at everything, and changes nothing
	RoleWork              // also does the daily work: decides, answers, tries again
	RoleAdmin             // also changes who may do what, the settings, and what cannot be taken back
)

var roleNames = [...]string{"none", "read", "work", "admin"}

// String returns the name of the role.
func (r Role) String() string {
	if r < RoleNone || r > RoleAdmin {
		return fmt.Sprintf("Role(%d)", int(r))
	}
	return roleNames[r]
}

// MarshalText writes the name of the role.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the name of a role.
func (r *Role) UnmarshalText(text []byte) error {
	for role, name := range roleNames {
		if name == string(text) {
			*r = Role(role)
			return nil
		}
	}
	return fmt.Errorf("there is no role %q", text)
}

// Role is what the token opens of the operator API, while it is valid.
func (t Token) Role() Role {
	switch t.Scope {
	case TokenRead:
		return RoleRead
	case TokenWork:
		return RoleWork
	case TokenAdmin:
		return RoleAdmin
	}
	return RoleNone
}

// OperatorPrincipal is how records of the audit trail and timelines name an operator.
func OperatorPrincipal(name string) string { return "operator:" + name }

// ConsoleSession is one browser in which an operator is signed in at the console. Its secret is in a cookie there and stored nowhere.
type ConsoleSession struct {
	ID   string `json:"id"` // UUIDv7
	Hash string `json:"-"`  // lower-case hex SHA-256 of the secret
	Name string `json:"name"`

	// Token began the session, which ends with it; nil where a login service did. It is as it is now. A token that is gone is one
	// that is revoked.
	Token *Token `json:"-"`

	Subject string   `json:"-"` // at the login service, "<issuer> <sub>"; empty with a token
	Members []string `json:"-"` // verified address and groups at the last sign-in that the settings named then

	CreatedAt time.Time `json:"created_at"`
	SeenAt    time.Time `json:"seen_at"`   // about a minute late at most
	ProvenAt  time.Time `json:"proven_at"` // when the operator proved last who they are
	ExpiresAt time.Time `json:"expires_at"`

	Address string `json:"address,omitempty"` // of the browser at sign-in
	Agent   string `json:"agent,omitempty"`   // the browser, by its own words
}

// SessionOwner is who began a ConsoleSession: a token, or a person at a login service. The zero value owns none.
type SessionOwner struct {
	TokenID string
	Subject string
}

// Owner returns who began the session.
func (s ConsoleSession) Owner() SessionOwner {
	if s.Token != nil {
		return SessionOwner{TokenID: s.Token.ID}
	}
	return SessionOwner{Subject: s.Subject}
}

// ConsoleRules say how long sessions of the console last, and who of a login service may do what.
type ConsoleRules struct {
	Idle time.Duration // a session ends when its browser was not seen for so long

	// Verified mail addresses, and groups of the login service as "group:NAME".
	Admins, Workers, Readers []string
}

// MemberGroup is how ConsoleRules name a group of the login service.
func MemberGroup(name string) string { return "group:" + name }

// Named returns those of the names that the rules know.
func (c ConsoleRules) Named(names []string) []string {
	var named []string
	for _, name := range names {
		if c.RoleOf([]string{name}) > RoleNone {
			named = append(named, name)
		}
	}
	return named
}

// RoleOf is the largest role of someone with these names. Mail addresses are compared without their case, groups with it.
func (c ConsoleRules) RoleOf(names []string) Role {
	holds := func(list []string) bool {
		return slices.ContainsFunc(list, func(entry string) bool {
			return slices.ContainsFunc(names, func(name string) bool {
				return name == entry || strings.Contains(entry, "@") && !isGroup(entry) && strings.EqualFold(name, entry)
			})
		})
	}

	switch {
	case holds(c.Admins):
		return RoleAdmin
	case holds(c.Workers):
		return RoleWork
	case holds(c.Readers):
		return RoleRead
	}
	return RoleNone
}

func isGroup(name string) bool { return strings.HasPrefix(name, MemberGroup("")) }

// Role is what the session may do at a time; RoleNone when it is over.
func (c ConsoleRules) Role(s ConsoleSession, at time.Time) Role {
	switch {
	case !at.Before(s.ExpiresAt), !at.Before(s.SeenAt.Add(c.Idle)):
		return RoleNone
	case s.Token == nil:
		return c.RoleOf(s.Members)
	case !s.Token.Valid(at):
		return RoleNone
	}
	return s.Token.Role()
}

// ConsoleSessionFilter selects sessions of the console, newest first.
type ConsoleSessionFilter struct {
	Owner  SessionOwner // the zero value selects those of all
	Before string       // id of the last row of the page before
	Limit  int          // 1…500
}

// AuditOperator begins the codes of audit records about what operators did.
const AuditOperator = "operator:"

// OperatorAct is the audit record of a request by which an operator changes something. Its code says what it is about, as in
// "operator:held.release"; the detail has method and path, with ids and without what the body says.
func OperatorAct(by, method, pattern, path string) AuditRecord {
	pattern = strings.TrimPrefix(strings.TrimPrefix(pattern, "/api/v1/"), "/console/")
	var words []string
	ends := ""
	for word := range strings.SplitSeq(pattern, "/") {
		ends = word
		if word != "" && !strings.HasPrefix(word, "{") {
			words = append(words, word)
		}
	}
	if method != "POST" || strings.HasPrefix(ends, "{") {
		words = append(words, strings.ToLower(method))
	}
	return AuditRecord{Code: AuditOperator + strings.Join(words, "."), Principal: by, Detail: method + " " + path}
}
