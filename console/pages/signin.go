package pages

import (
	"context"
	"net/http"
	"time"

	"inbox/console/account"
	"inbox/internal/catalog"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// accountPages draws what the accounts have to say.
type accountPages struct{ *Pages }

// Login is the page to sign in.
func (a accountPages) Login(w http.ResponseWriter, r *http.Request, status int, v account.LoginView) {
	r = catalog.ForReader(r)
	a.render(w, r, status, loginPage(a.Domain, v))
}

// Confirm asks an operator for a fresh proof.
func (a accountPages) Confirm(w http.ResponseWriter, r *http.Request, status int, v account.ConfirmView) {
	r = catalog.ForReader(r)
	a.write(w, r, v.Session, status, view{Title: text(r.Context(), "Confirm that it is you")}, confirmPage(v))
}

// Forbidden says why an operator who is signed in is refused.
func (a accountPages) Forbidden(w http.ResponseWriter, r *http.Request, status int, v account.ForbiddenView) {
	r = catalog.ForReader(r)
	a.render(w, r, status, forbiddenPage(a.Domain, v))
}

// Failed says that it cannot be answered now.
func (a accountPages) Failed(w http.ResponseWriter, r *http.Request, err error) {
	r = catalog.ForReader(r)
	found := fault.Of(err)
	status := httpserver.Status(found.Kind)
	if status >= http.StatusInternalServerError {
		a.Logger.ErrorContext(r.Context(), "signing in at the console failed", "error", err)
	}
	a.render(w, r, status, outsidePage(a.Domain, text(r.Context(), "That did not work"), failedWords(faultWords(r.Context(), err))))
}

// failure says in words why a sign-in or a proof did not succeed.
func failure(ctx context.Context, failed account.Failure, wait time.Duration) string {
	switch failed {
	case account.FailedProof:
		return text(ctx, "That is no token of an operator that is valid now.")
	case account.FailedRole:
		return text(ctx, "The login service knows you, but the settings of this server do not let you in.")
	case account.FailedLimit:
		seconds := int(wait.Round(time.Second) / time.Second)
		return count(ctx, max(seconds, 1), "Too many attempts came from your network. Try again in a second.", "Too many attempts came from your network. Try again in {n} seconds.")
	case account.FailedService:
		return text(ctx, "The login service cannot be reached now. Try again in a minute.")
	case account.FailedDeclined:
		return text(ctx, "The login was not completed at the login service. Start again to sign in.")
	case account.FailedRejected:
		return text(ctx, "The answer of the login service was not accepted. Start again; if it is rejected once more, the reason is in the server's log.")
	case account.FailedAttempt:
		return text(ctx, "This sign-in was started in another browser, took longer than ten minutes, or has ended already. Start again here.")
	case account.FailedOther:
		return text(ctx, "That proof belongs to another person, or is too old.")
	case account.FailedOrigin:
		return text(ctx, "The form came from another site. Use the one on this page.")
	}
	return ""
}

// refusal says in words why an act was refused.
func refusal(ctx context.Context, v account.ForbiddenView) string {
	switch v.Why {
	case account.RefusedForm:
		return text(ctx, "The form is of an earlier session. Go back, load the page again and send it once more.")
	case account.RefusedOrigin:
		return text(ctx, "The form came from another site, so nothing was done.")
	}
	return text(ctx, "This needs an operator who {role}. Nothing was done.", "role", roleName(ctx, v.Needed))
}
