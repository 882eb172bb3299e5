package demand

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/openid"
	"inbox/policypart"
)

// loginParam names one of our logins in a challenge of a demand.
const loginParam = "login"

const loginLife = 10 * time.Minute // of the way to the provider and back

// loginState travels through the provider. It is signed together with the browser's binding, so any node can finish
// what another one began and nothing is stored in between.
type loginState struct {
	Demand  string `json:"d"`
	Login   string `json:"l"`
	Expires int64  `json:"e"` // seconds since 1970
}

// providers are the logins elsewhere that pages offer.
type providers []Login

// named returns the login with a name; nil when there is none.
func (p providers) named(name string) Login {
	for _, login := range p {
		if login.Name() == name {
			return login
		}
	}
	return nil
}

// freeze names the logins that our page offers: those that the agent names in a challenge's "login", else all.
func (p providers) freeze(part *policypart.Part) error {
	part.AuthChallenges = slices.Clone(part.AuthChallenges)
	named := false
	for i, challenge := range part.AuthChallenges {
		login, ok := challenge.Params[loginParam]
		if !ok {
			continue
		}
		if p.named(login) == nil {
			return unmeetable(fmt.Errorf("login %q is not configured", login))
		}

		named = true
		part.AuthChallenges[i].Params = maps.Clone(challenge.Params)
		part.AuthChallenges[i].Params["realm"] = part.URL
	}

	if named {
		return nil
	}

	for _, login := range p {
		part.AuthChallenges = append(part.AuthChallenges, policypart.Challenge{
			Scheme: "Bearer", Params: map[string]string{"realm": part.URL, loginParam: login.Name()},
		})
	}

	return nil
}

// offered returns the names of the logins that a frozen demand offers and that are still configured.
func (p providers) offered(part policypart.Part) []string {
	var names []string
	for _, challenge := range part.AuthChallenges {
		if name := challenge.Params[loginParam]; name != "" && p.named(name) != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// logins meets demands for a login: it sends the browser to a provider and verifies what the provider answers.
type logins struct {
	demands   *registry
	pages     *pages
	secrets   *secrets
	audit     *auditTrail
	providers providers
	now       func() time.Time
}

// BeginLogin starts a login for an unauthorized demand. Redirect is the provider's address for the browser; binding is
// a secret for a cookie of that browser (HttpOnly, SameSite=Lax, ten minutes), which FinishLogin asks for. Errors are
// those of Decide; fault.Malformed for a login that the demand does not offer, fault.Unavailable when the provider
// cannot be reached.
func (l *logins) BeginLogin(ctx context.Context, token, login string) (redirect, binding string, err error) {
	issuance, err := l.demands.open(ctx, token)
	if err != nil {
		return "", "", err
	}
	if !slices.Contains(l.providers.offered(issuance.Part), login) {
		return "", "", fault.InField("login", "is none of those that this request offers")
	}

	binding = rand.Text() + rand.Text()
	end := l.now().Add(loginLife)
	if issuance.ExpiresAt.Before(end) {
		end = issuance.ExpiresAt
	}

	body, err := json.Marshal(loginState{Demand: issuance.ID, Login: login, Expires: end.Unix()})
	if err != nil {
		return "", "", err
	}

	payload := base64.RawURLEncoding.EncodeToString(body)
	state := payload + "." + l.secrets.derive(labelLoginState, payload, binding)
	redirect, err = l.providers.named(login).AuthorizationURL(ctx, state, l.secrets.derive(labelLoginNonce, payload, binding), l.secrets.derive(labelLoginVerifier, payload, binding))
	return redirect, binding, err
}

// FinishLogin is the provider's redirect back: state and code of its query, binding of the browser's cookie. The proof
// is verified with the provider before anything changes; then the demand is granted and the turn goes on, with the
// identity in the resolution. An empty code (the person turned back at the provider) is refused like a bad one and
// leaves the demand open. Errors are those of Decide; the view is returned with them where the state is good.
func (l *logins) FinishLogin(ctx context.Context, state, code, binding string) (View, error) {
	begun, payload, refusal := l.readLogin(state, binding)
	if refusal != nil {
		return View{}, l.audit.refuse(ctx, policypart.Issuance{}, refusal)
	}

	issuance, err := l.demands.open(ctx, l.secrets.token(begun.Demand))
	if err != nil {
		return l.pages.view(issuance), err
	}

	login := l.providers.named(begun.Login)
	if login == nil {
		return l.pages.view(issuance), fault.New(fault.Unavailable, "this login is not offered any more; choose another one")
	}

	proven, err := login.Redeem(ctx, code, l.secrets.derive(labelLoginNonce, payload, binding), l.secrets.derive(labelLoginVerifier, payload, binding))
	if fault.Is(err, fault.Unauthenticated) {
		return l.pages.view(issuance), l.audit.refuse(ctx, issuance, &policypart.Refusal{Code: policypart.CodeProof, Reason: "login " + begun.Login + ": " + err.Error()})
	}
	if err != nil {
		return l.pages.view(issuance), err
	}

	err = l.demands.settle(ctx, granted(issuance, l.loggedIn(issuance, proven), policypart.StatusIssued, l.now()))
	return l.pages.refreshed(ctx, issuance), err
}

// readLogin verifies that the state was made here, for this browser, and not long ago.
func (l *logins) readLogin(state, binding string) (begun loginState, payload string, refusal *policypart.Refusal) {
	payload, tag, _ := strings.Cut(state, ".")
	if !hmac.Equal([]byte(tag), []byte(l.secrets.derive(labelLoginState, payload, binding))) {
		return begun, "", &policypart.Refusal{Code: policypart.CodeUnknown, Reason: "login state was not made here, or for another browser"}
	}

	body, err := base64.RawURLEncoding.DecodeString(payload)
	if err == nil {
		err = json.Unmarshal(body, &begun)
	}
	if err != nil || l.now().Unix() > begun.Expires {
		return begun, "", &policypart.Refusal{Code: policypart.CodeExpired, Reason: "the login took too long"}
	}
	return begun, payload, nil
}

func (l *logins) loggedIn(i policypart.Issuance, proven openid.Identity) deed {
	evidence := identity.Evidence{
		Subject: proven.Subject, Issuer: proven.Issuer, Method: MethodOAuth, Assurance: identity.AssuranceOAuth,
		Audience: identity.Audience{notesOf(i).AgentAddress}, IssuedAt: identity.At(l.now()),
		Proof: identity.Proof{Type: identity.ProofBearerToken, VerifiedBy: l.secrets.base.Host, TokenID: "sha256:" + proven.TokenHash},
	}

	claims := map[string]string{}
	if proven.Email != "" {
		claims["email"] = proven.Email
	}
	if proven.Name != "" {
		claims["name"] = proven.Name
	}
	if len(claims) > 0 {
		evidence.Claims, _ = json.Marshal(claims) //nolint:errchkjson // a map of strings
	}

	by := resolver(evidence)
	return deed{outcome: policypart.OutcomeGranted, by: &by, data: withData(nil, IdentityKey, evidence)}
}
