package demand

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
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

func (s *Service) login(name string) Login {
	for _, login := range s.options.Logins {
		if login.Name() == name {
			return login
		}
	}
	return nil
}

// BeginLogin starts a login for an unauthorized demand. Redirect is the provider's address for the browser; binding is
// a secret for a cookie of that browser (HttpOnly, SameSite=Lax, ten minutes), which FinishLogin asks for. Errors are
// those of Decide; fault.Malformed for a login that the demand does not offer, fault.Unavailable when the provider
// cannot be reached.
func (s *Service) BeginLogin(ctx context.Context, token, login string) (redirect, binding string, err error) {
	issuance, err := s.open(ctx, token)
	if err != nil {
		return "", "", err
	}
	if !slices.Contains(s.logins(issuance.Part), login) {
		return "", "", fault.InField("login", "is none of those that this request offers")
	}
	binding = rand.Text() + rand.Text()
	end := s.now().Add(loginLife)
	if issuance.ExpiresAt.Before(end) {
		end = issuance.ExpiresAt
	}
	body, err := json.Marshal(loginState{Demand: issuance.ID, Login: login, Expires: end.Unix()})
	if err != nil {
		return "", "", err
	}
	payload := base64.RawURLEncoding.EncodeToString(body)
	state := payload + "." + s.derive(labelLoginState, payload, binding)
	redirect, err = s.login(login).AuthorizationURL(ctx, state, s.derive(labelLoginNonce, payload, binding), s.derive(labelLoginVerifier, payload, binding))
	return redirect, binding, err
}

// FinishLogin is the provider's redirect back: state and code of its query, binding of the browser's cookie. The proof
// is verified with the provider before anything changes; then the demand is granted and the turn goes on, with the
// identity in the resolution. An empty code (the person turned back at the provider) is refused like a bad one and
// leaves the demand open. Errors are those of Decide; the view is given with them where the state is good.
func (s *Service) FinishLogin(ctx context.Context, state, code, binding string) (View, error) {
	begun, payload, refusal := s.readLogin(state, binding)
	if refusal != nil {
		return View{}, s.refuse(ctx, policypart.Issuance{}, refusal)
	}
	issuance, err := s.open(ctx, s.token(begun.Demand))
	if err != nil {
		return s.view(issuance), err
	}
	login := s.login(begun.Login)
	if login == nil {
		return s.view(issuance), fault.New(fault.Unavailable, "this login is not offered any more; choose another one")
	}
	proven, err := login.Redeem(ctx, code, s.derive(labelLoginNonce, payload, binding), s.derive(labelLoginVerifier, payload, binding))
	if fault.Is(err, fault.Unauthenticated) {
		return s.view(issuance), s.refuse(ctx, issuance, &policypart.Refusal{Code: policypart.CodeProof, Reason: "login " + begun.Login + ": " + err.Error()})
	}
	if err != nil {
		return s.view(issuance), err
	}
	err = s.settle(ctx, s.grant(issuance, s.loggedIn(issuance, proven), policypart.StatusIssued))
	return s.refreshed(ctx, issuance), err
}

// readLogin verifies that the state was made here, for this browser, and not long ago.
func (s *Service) readLogin(state, binding string) (begun loginState, payload string, refusal *policypart.Refusal) {
	payload, tag, _ := strings.Cut(state, ".")
	if !hmac.Equal([]byte(tag), []byte(s.derive(labelLoginState, payload, binding))) {
		return begun, "", &policypart.Refusal{Code: policypart.CodeUnknown, Reason: "login state was not made here, or for another browser"}
	}
	body, err := base64.RawURLEncoding.DecodeString(payload)
	if err == nil {
		err = json.Unmarshal(body, &begun)
	}
	if err != nil || s.now().Unix() > begun.Expires {
		return begun, "", &policypart.Refusal{Code: policypart.CodeExpired, Reason: "the login took too long"}
	}
	return begun, payload, nil
}

func (s *Service) loggedIn(i policypart.Issuance, proven openid.Identity) deed {
	evidence := identity.Evidence{
		Subject: proven.Subject, Issuer: proven.Issuer, Method: MethodOAuth, Assurance: identity.AssuranceOAuth,
		Audience: identity.Audience{notesOf(i).AgentAddress}, IssuedAt: identity.At(s.now()),
		Proof: identity.Proof{Type: identity.ProofBearerToken, VerifiedBy: s.options.BaseURL.Host, TokenID: "sha256:" + proven.TokenHash},
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
