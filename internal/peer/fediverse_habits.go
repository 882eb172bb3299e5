package peer

import (
	"net/http"
	"time"
)

// Signature schemes that a Fediverse can be limited to.
const (
	SchemeDraft   = "draft-cavage" // Mastodon before 4.5, GoToSocial, Misskey and most others
	SchemeRFC9421 = "rfc9421"
)

// keyPath is where GoToSocial has its keys: a key id without a fragment.
func (f *Fediverse) keyPath() string { return "/users/" + f.user + "/main-key" }

// habits puts GoToSocial's three between the network and the handler: no request without a User-Agent (418), no
// document without a signature (401), and a key id of its own that returns a stub of the actor to every caller.
func (f *Fediverse) habits(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("User-Agent") == "":
			http.Error(w, "who are you?", http.StatusTeapot)
		case r.Method == http.MethodGet && r.URL.Path == f.keyPath():
			writeActivity(w, f.stub())
		case r.Method == http.MethodGet && r.URL.Path != "/.well-known/webfinger":
			f.toProvenReaders(w, r, next)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// toProvenReaders lets a GET through whose signature verifies.
func (f *Fediverse) toProvenReaders(w http.ResponseWriter, r *http.Request, next http.Handler) {
	signature, err := checkUnsigned(r, nil, time.Now())
	if err == nil {
		_, _, err = f.owner(r, signature)
	}
	if err != nil {
		f.unproven.Add(1)
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}

	f.proven.Add(1)
	next.ServeHTTP(w, r)
}

// stub is the actor as a caller without proof may read it: enough to verify a signature.
func (f *Fediverse) stub() object {
	actor := f.actor()
	return object{
		"@context": actor["@context"], "id": actor["id"], "type": actor["type"],
		"preferredUsername": actor["preferredUsername"], "publicKey": actor["publicKey"],
	}
}

// Reads says how many GETs of documents came with a signature that verifies, and how many without one, since the
// start. Only a peer with GoToSocial's habits counts them.
func (f *Fediverse) Reads() (proven, unproven int64) { return f.proven.Load(), f.unproven.Load() }

// Down closes the port and every connection, as a server that is restarted does. Up opens the port again.
func (f *Fediverse) Down() error {
	err := f.server.Close()
	f.serving.Wait()
	return err
}

// Up ends what Down began.
func (f *Fediverse) Up() error {
	listener, err := listen(f.listen)
	if err != nil {
		return err
	}
	f.serve(listener)
	return nil
}
