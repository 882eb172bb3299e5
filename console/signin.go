package console

import (
	"net/http"

	"github.com/a-h/templ"

	"inbox/console/account"
	"inbox/internal/httpserver"
)

// AccountPages draw the pages of console/account.
type AccountPages struct{}

// Login implements account.Pages.
func (AccountPages) Login(w http.ResponseWriter, r *http.Request, status int, view account.LoginView) {
	writeAccountPage(w, r, status, loginPage(view), "'self'")
}

// Confirm implements account.Pages.
func (AccountPages) Confirm(w http.ResponseWriter, r *http.Request, status int, view account.ConfirmView) {
	writeAccountPage(w, r, status, confirmPage(view), "'self'")
}

// Forbidden implements account.Pages.
func (AccountPages) Forbidden(w http.ResponseWriter, r *http.Request, status int, view account.ForbiddenView) {
	writeAccountPage(w, r, status, forbiddenPage(view), "'none'")
}

// Failed implements account.Pages.
func (AccountPages) Failed(w http.ResponseWriter, _ *http.Request, err error) {
	httpserver.WriteFault(w, err)
}

// writeAccountPage lets forms name where they come from: without that, browsers that reach the console without TLS send Origin: null.
func writeAccountPage(w http.ResponseWriter, r *http.Request, status int, content templ.Component, formAction string) {
	w.Header().Set("Referrer-Policy", "same-origin")
	writePage(w, r, status, content, formAction)
}

var failureWords = map[account.Failure]string{
	account.FailedProof:   "That is not a valid proof of an operator.",
	account.FailedRole:    "The login service knows you, but the settings of this server do not let you in.",
	account.FailedLimit:   "There were too many attempts from your network. Wait a moment.",
	account.FailedService: "The login service did not let you in, or cannot be reached now.",
	account.FailedOther:   "This is another person, or not a fresh proof.",
	account.FailedOrigin:  "The form came from another site.",
}

func refusalWords(v account.ForbiddenView) string {
	switch v.Why {
	case account.RefusedRole:
		return "This needs the role " + v.Needed.String() + "; you have the role " + v.Session.Role.String() + "."
	case account.RefusedForm:
		return "The form is not of your present session. Go back, load the page again and send it once more."
	}
	return "The form came from another site, so nothing was done."
}
