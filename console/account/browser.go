package account

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"

	"inbox/internal/bearer"
	"inbox/internal/capability"
	"inbox/internal/fault"
)

// Names of the cookies. The prefix makes browsers refuse them from other hosts and without TLS (RFC 6265bis, section 4.1.3.2).
const (
	sessionCookie = "inbox-console"
	bindingCookie = "inbox-console-login-" // and the name of the attempt: tabs that sign in at a time do not know each other
	hostPrefix    = "__Host-"
)

// Secrets of cookies are two drawn tokens: 256 bits.
const secretBytes = 52

func newSecret() string { return capability.Draw(capability.Plain) + capability.Draw(capability.Plain) }

func hashed(secret string) string { return bearer.Hash(secret) }

// secure reports whether the browser reaches us by TLS: here, or at a proxy in front, which passes the public host on. On this machine
// the same server may be open without TLS, by a tunnel or by admin.listen.
func (a *Accounts) secure(r *http.Request) bool {
	return r.TLS != nil || a.options.URL.Scheme == "https" && strings.EqualFold(r.Host, a.options.URL.Host)
}

// cookie makes a cookie that scripts cannot read. SameSite is Lax: links in mails and other pages open the console, and what comes from a
// login service belongs to its redirect. No GET changes anything.
func (a *Accounts) cookie(r *http.Request, name, value string, life time.Duration) *http.Cookie {
	made := &http.Cookie{Name: name, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: int(life / time.Second)}
	if a.secure(r) {
		made.Name, made.Secure = hostPrefix+name, true
	}
	if value == "" {
		made.MaxAge = -1
	}
	return made
}

// readSecret returns the secret of the session; empty without one of our form.
func (a *Accounts) readSecret(r *http.Request) string { return a.read(r, sessionCookie) }

func (a *Accounts) read(r *http.Request, name string) string {
	if a.secure(r) {
		name = hostPrefix + name
	}
	found := r.CookiesNamed(name)
	if len(found) != 1 || len(found[0].Value) != secretBytes {
		return ""
	}
	return found[0].Value
}

const maxLocalPath = 2 << 10

// LocalPath returns a text when it is an address of the console that a browser may be sent to after signing in or an act, otherwise
// instead.
func LocalPath(text, instead string) string {
	if len(text) > maxLocalPath || strings.ContainsRune(text, '\\') || strings.ContainsFunc(text, unicode.IsControl) {
		return instead
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" {
		return instead
	}

	switch clean := path.Clean(u.Path); {
	case clean != u.Path, clean != Home && !strings.HasPrefix(clean, Home+"/"):
		return instead
	case clean == LoginPath, strings.HasPrefix(clean, LoginPath+"/"), clean == LogoutPath, clean == ConfirmPath:
		return instead
	}
	return text
}

// backFromReferer returns the page of ours from which a request came; the console's first page where that is not known.
func backFromReferer(r *http.Request) string {
	u, err := url.Parse(r.Referer())
	if err != nil || !strings.EqualFold(u.Host, r.Host) {
		return Home
	}
	return LocalPath(u.RequestURI(), Home)
}

// parseForm reads the body of a form within a limit; nothing of it goes to the disk.
func parseForm(w http.ResponseWriter, r *http.Request, limit int64) error {
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	err := r.ParseForm()
	if err == nil {
		err = r.ParseMultipartForm(limit) //nolint:gosec // the body is bounded above
	}

	switch {
	case err == nil || errors.Is(err, http.ErrNotMultipart):
		return nil
	case fault.Is(err, fault.Unavailable):
		return err
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return err
	}
	return fault.Wrap(fault.Malformed, "the form cannot be read", err)
}

// Secure reports whether a cookie of the answer is for encrypted connections alone.
func (a *Accounts) Secure(r *http.Request) bool { return a.secure(r) }
