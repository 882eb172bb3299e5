package console

import (
	"encoding/json"
	"net/http"

	"inbox/internal/fault"
	"inbox/operator"
	"inbox/operator/operation"
)

// eraseBody names a person as the command does.
type eraseBody struct {
	Person   string `json:"person"`
	Linked   bool   `json:"linked,omitempty"`
	Unproven bool   `json:"unproven,omitempty"`
	DryRun   bool   `json:"dry_run,omitempty"`
}

// erasePerson begins an erasure at every domain, which the server does in the background. Where a domain fails the answer is an error, so that no client takes
// a part for the whole. The request may be repeated.
func (a *API) erasePerson(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted eraseBody
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxEntryBytes))
	decoder.DisallowUnknownFields()
	const hint = `send {"person":"alice@example.org"}`
	if err := decoder.Decode(&wanted); err != nil {
		return nil, operation.Unreadable(err, hint)
	}
	if wanted.Person == "" {
		return nil, fault.New(fault.Malformed, hint)
	}

	who := operator.PersonName{Name: wanted.Person, Linked: wanted.Linked, Unproven: wanted.Unproven}
	if wanted.DryRun {
		preview, err := a.operator.Persons.Preview(r.Context(), who)
		return preview, somewhere(err, "looked for the person")
	}
	begun, err := a.operator.Persons.Erase(r.Context(), who, caller(r), nil)
	return begun, somewhere(err, "began the erasure")
}

// somewhere says at which domains work failed that the others did.
func somewhere(err error, did string) error {
	if !operator.Incomplete(err) {
		return err
	}
	return fault.Wrap(fault.Unavailable, "other domains "+did+", but not all: "+fault.InWords(err)+"; send the request again", err)
}

func (a *API) listErasures(_ http.ResponseWriter, r *http.Request) (any, error) {
	found, err := page(r, func(one operator.DomainReceipt) string { return one.ID }, func(limit int) ([]operator.DomainReceipt, error) {
		return a.operator.Persons.Receipts(r.Context(), r.URL.Query().Get("before"), limit)
	})
	return found, somewhere(err, "answered")
}

func (a *API) erasure(_ http.ResponseWriter, r *http.Request) (any, error) {
	found, err := a.operator.Persons.Receipt(r.Context(), r.PathValue("erasure"))
	return found, somewhere(err, "do not have the receipt")
}

func (a *API) usage(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Usage.Measure(r.Context())
}

// exportPerson streams a ZIP archive. A failure after its first bytes breaks the connection, so that no one takes half of it for the whole.
func (a *API) exportPerson(w http.ResponseWriter, r *http.Request) (any, error) {
	who, err := personName(r)
	if err != nil {
		return nil, err
	}

	out := &archiveWriter{ResponseWriter: w}
	_, err = a.operator.Persons.ExportZip(r.Context(), who, out)
	switch {
	case err != nil && out.begun:
		panic(http.ErrAbortHandler)
	case err != nil:
		return nil, somewhere(err, "were exported")
	}
	return written{}, nil
}

// previewPerson says who a name means and why, before an export or an erasure.
func (a *API) previewPerson(_ http.ResponseWriter, r *http.Request) (any, error) {
	who, err := personName(r)
	if err != nil {
		return nil, err
	}
	preview, err := a.operator.Persons.Preview(r.Context(), who)
	return preview, somewhere(err, "looked for the person")
}

// personName reads who is meant.
func personName(r *http.Request) (who operator.PersonName, err error) {
	query := r.URL.Query()
	who = operator.PersonName{Name: query.Get("person"), Linked: query.Get("linked") == "true", Unproven: query.Get("unproven") == "true"}
	if who.Name == "" {
		err = fault.InField("person", "is missing: write an address, an account or a principal")
	}
	return who, err
}

// archiveWriter says what follows when the first bytes are there.
type archiveWriter struct {
	http.ResponseWriter
	begun bool
}

// Write implements io.Writer.
func (w *archiveWriter) Write(content []byte) (int, error) {
	if !w.begun {
		w.begun = true
		w.Header().Set("Content-Type", "application/zip")
		w.Header().Set("Content-Disposition", `attachment; filename="person.zip"`)
	}
	return w.ResponseWriter.Write(content)
}
