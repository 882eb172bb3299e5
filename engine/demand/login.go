package demand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"inbox/identity"
	"inbox/internal/capability"
	"inbox/internal/fault"
	"inbox/internal/openid"
	"inbox/policypart"
)

// loginParam names one of our logins in a challenge of a demand.
const loginParam = "login"

const loginLife = 10 * time.Minute // of the way to the provider and back

// loginState travels through the provider. It is signed for the browser's binding, so any node can finish what another one
// began and nothing is stored in between.
type loginState struct {
	Demand string `json:"d"`
	Login  string `json:"l"`
}

// loginProof is who logged in. It travels through the last page, signed like a loginState.
type loginProof struct {
	loginState

	Identity openid.Identity `json:"i"`
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

// BeginLogin starts a login for an unauthorized demand. Redirect is the provider's address for the browser. Binding is a secret for a
// cookie of that browser (HttpOnly, SameSite=Lax, ten minutes) which the attempt names, because a browser may have several of them;
// FinishLogin and ConfirmLogin want it back. Errors are those of Decide; fault.Malformed for a login that the demand does not offer,
// fault.Unavailable when the provider cannot be reached.
func (l *logins) BeginLogin(ctx context.Context, token, login string) (redirect, attempt, binding string, err error) {
	issuance, err := l.demands.open(ctx, token)
	if err != nil {
		return "", "", "", err
	}
	if !slices.Contains(l.providers.offered(issuance.Part), login) {
		return "", "", "", fault.InField("login", "is none of those that this request offers")
	}

	binding = capability.Draw(capability.Long)
	state, err := capability.Sign(l.secrets.key, purposeLoginState, binding, l.until(issuance), loginState{Demand: issuance.ID, Login: login})
	if err != nil {
		return "", "", "", err
	}

	nonce, verifier := l.once(state, binding)
	redirect, err = l.providers.named(login).AuthorizationURL(ctx, state, nonce, verifier)
	return redirect, openid.AttemptName(state), binding, err
}

// until is when an attempt that begins now is over.
func (l *logins) until(i policypart.Issuance) time.Time {
	end := l.now().Add(loginLife)
	if i.ExpiresAt.Before(end) {
		end = i.ExpiresAt
	}
	return end
}

// once returns nonce and code verifier of an attempt.
func (l *logins) once(state, binding string) (nonce, verifier string) {
	return l.secrets.mint(capability.Claim{Purpose: purposeLoginNonce, Who: binding, What: state, Form: capability.Long}),
		l.secrets.mint(capability.Claim{Purpose: purposeLoginVerifier, Who: binding, What: state, Form: capability.Long})
}

// FinishLogin is the provider's redirect back, with the binding of the attempt's cookie. The proof is verified with the provider before
// anything changes. The person who logged in may have followed the link of another sender (RFC 8628, section 5.4): only the
// sender's own proven address is taken at once, and the turn goes on with the identity in the resolution. Otherwise nothing is decided,
// and View.LoggedIn is set for a last page, whose form is ConfirmLogin. A demand that accepts the sender alone refuses anyone else.
//
// A login that did not take place is refused like a bad proof and leaves the demand open. Errors are those of Decide; the view is
// returned with them where the state is good.
func (l *logins) FinishLogin(ctx context.Context, back openid.Return, binding string) (View, error) {
	var begun loginState
	over := capability.Read(l.secrets.key, purposeLoginState, binding, back.State, l.now(), &begun)
	if errors.Is(over, capability.ErrForeign) {
		refusal := &policypart.Refusal{Code: policypart.CodeUnknown, Reason: "login state was not made here, or for another browser"}
		return View{}, l.refuse(ctx, policypart.Issuance{}, refusal, "this browser has no such login: it was begun in another browser, or has ended; open the link of the message again")
	}

	issuance, login, err := l.begun(ctx, begun, over)
	if err != nil {
		return l.pages.view(issuance), err
	}

	nonce, verifier := l.once(back.State, binding)
	proven, err := login.Redeem(ctx, back, nonce, verifier)
	switch {
	case fault.Is(err, fault.Unauthenticated):
		public := "the login could not be verified, or its answer was used before; log in again"
		if errors.Is(err, openid.ErrTurnedBack) {
			public = "the login was not completed at its service; log in again, or decline"
		}
		return l.pages.view(issuance), l.refuse(ctx, issuance, &policypart.Refusal{Code: policypart.CodeProof, Reason: "login " + begun.Login + ": " + err.Error()}, public)
	case err != nil:
		return l.pages.view(issuance), err
	}

	kept := notesOf(issuance)
	switch {
	case kept.proves(proven.Email):
		return l.grant(ctx, issuance, proven, true)
	case issuance.Part.SamePerson:
		refusal := &policypart.Refusal{Code: policypart.CodePrincipal, Reason: "login " + begun.Login + ": " + proven.Subject + " is not proven to be the sender"}
		return l.pages.view(issuance), l.refuse(ctx, issuance, refusal, "this is not a login of "+kept.Address.String()+", whose message is waiting; the agent accepts no other one")
	}

	proven.Groups = nil
	view := l.pages.view(issuance)
	view.Question = kept.Question
	view.LoggedIn = &LoggedIn{Login: begun.Login, Address: proven.Email, Name: proven.Name, Subject: proven.Subject, Attempt: openid.AttemptName(back.State)}
	view.LoggedIn.Proof, err = capability.Sign(l.secrets.key, purposeLoginProof, binding, l.until(issuance), loginProof{begun, proven})
	return view, err
}

// ConfirmLogin is the form of the last page: only here does someone else's login count for the sender. Proof is that of the page, and
// binding that of the attempt's cookie, so that no other browser and no other site can decide. Not grant denies the demand. Errors are
// those of Decide.
func (l *logins) ConfirmLogin(ctx context.Context, token, proof, binding string, grant bool) (View, error) {
	issuance, err := l.demands.open(ctx, token)
	if err != nil {
		return l.pages.view(issuance), err
	}

	var shown loginProof
	over := capability.Read(l.secrets.key, purposeLoginProof, binding, proof, l.now(), &shown)
	if errors.Is(over, capability.ErrForeign) || shown.Demand != issuance.ID {
		refusal := &policypart.Refusal{Code: policypart.CodeProof, Reason: "the page of a login was not made here, or for another browser or demand"}
		return l.pages.view(issuance), l.refuse(ctx, issuance, refusal, "this page belongs to another browser or has ended; log in again")
	}
	if _, _, err := l.begun(ctx, shown.loginState, over); err != nil {
		return l.pages.view(issuance), err
	}

	if grant {
		return l.grant(ctx, issuance, shown.Identity, false)
	}
	by := resolver(l.evidence(issuance, shown.Identity))
	err = l.demands.settle(ctx, denied(issuance, &by, policypart.StatusIssued, "The login was not confirmed, so nothing was done: "+quoted(issuance), l.now()))
	return l.pages.refreshed(ctx, issuance), err
}

// begun finds the demand and the provider of an attempt. Over is capability.ErrEnded when its time is.
func (l *logins) begun(ctx context.Context, state loginState, over error) (policypart.Issuance, Login, error) {
	issuance, err := l.demands.open(ctx, l.secrets.token(state.Demand))
	if err != nil {
		return issuance, nil, err
	}
	if over != nil {
		return issuance, nil, l.refuse(ctx, issuance, &policypart.Refusal{Code: policypart.CodeExpired, Reason: "the login took too long"}, "the login took longer than ten minutes; log in again")
	}

	login := l.providers.named(state.Login)
	if login == nil {
		return issuance, nil, fault.New(fault.Unavailable, "this login is not offered any more; choose another one")
	}
	return issuance, login, nil
}

// refuse records a refused attempt and says to the person at the page what to do.
func (l *logins) refuse(ctx context.Context, i policypart.Issuance, refusal *policypart.Refusal, public string) error {
	return fault.Wrap(fault.Of(l.audit.refuse(ctx, i, refusal)).Kind, public, refusal)
}

// grant lets the turn go on with the identity that was proven.
func (l *logins) grant(ctx context.Context, i policypart.Issuance, proven openid.Identity, same bool) (View, error) {
	evidence := l.evidence(i, proven)
	by := resolver(evidence)
	what := deed{outcome: policypart.OutcomeGranted, by: &by, data: withData(nil, IdentityKey, evidence), same: &same}
	err := l.demands.settle(ctx, granted(i, what, policypart.StatusIssued, l.now()))
	return l.pages.refreshed(ctx, i), err
}

// proves reports whether an address is one that the asker's evidence proves. Local parts are compared exactly, because only their own
// host knows which of them are one; domains as addresses compare them (message contract, section 2).
func (n notes) proves(address string) bool {
	parsed, err := identity.ParseAddress(address)
	return err == nil && slices.Contains(n.Personal, identity.ProvenAddress(parsed.String()))
}

// evidence states what a login proved.
func (l *logins) evidence(i policypart.Issuance, proven openid.Identity) identity.Evidence {
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

	return evidence
}
