package console

import (
	"net/http"
	"slices"

	"inbox/exchange"
	"inbox/internal/fault"
)

type auditList struct {
	Records []exchange.AuditRecord `json:"records"`
	Next    string                 `json:"next,omitempty"` // value of "before" for the following page
}

func (a *API) listAudit(_ http.ResponseWriter, r *http.Request) (any, error) {
	size, err := limit(r)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	records, err := a.Records.AuditRecords(r.Context(), exchange.AuditFilter{
		Code: query.Get("code"), TurnID: query.Get("turn"), Agent: query.Get("agent"), Before: query.Get("before"), Limit: size + 1,
	})
	records, next := exchange.NextPage(records, size, func(a exchange.AuditRecord) string { return a.ID })
	return auditList{Records: listed(records), Next: next}, err
}

type peopleList struct {
	Identities []exchange.PersonIdentity `json:"identities"`     // those of one person stand together
	Next       string                    `json:"next,omitempty"` // value of "before" for the following page
}

func (a *API) listPeople(_ http.ResponseWriter, r *http.Request) (any, error) {
	size, err := limit(r)
	if err != nil {
		return nil, err
	}
	identities, err := a.Records.People(r.Context(), r.URL.Query().Get("before"), size+1)
	persons, next := exchange.NextPage(persons(identities), size, func(p []exchange.PersonIdentity) string { return p[0].PersonID })
	return peopleList{Identities: listed(slices.Concat(persons...)), Next: next}, err
}

// persons returns the identities of each person, who stand together.
func persons(identities []exchange.PersonIdentity) (persons [][]exchange.PersonIdentity) {
	for i, identity := range identities {
		if i == 0 || identity.PersonID != identities[i-1].PersonID {
			persons = append(persons, nil)
		}
		persons[len(persons)-1] = append(persons[len(persons)-1], identity)
	}
	return persons
}

// unlink takes the principal from the query: it holds blanks and slashes, which proxies do not keep in a path.
func (a *API) unlink(_ http.ResponseWriter, r *http.Request) (any, error) {
	principal := r.URL.Query().Get("principal")
	if principal == "" {
		return nil, fault.InField("principal", "is missing; take it from the list of people")
	}
	return nil, a.Records.Unlink(r.Context(), principal)
}

// listReports lists what other servers complained about.
func (a *API) listReports(_ http.ResponseWriter, r *http.Request) (any, error) {
	size, err := limit(r)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	records, err := a.Records.AuditRecords(r.Context(), exchange.AuditFilter{
		Code: "report:*", Agent: query.Get("agent"), Before: query.Get("before"), Limit: size + 1,
	})
	records, next := exchange.NextPage(records, size, func(a exchange.AuditRecord) string { return a.ID })
	return auditList{Records: listed(records), Next: next}, err
}
