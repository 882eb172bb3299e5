package console

import (
	"net/http"

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
		Code: query.Get("code"), TurnID: query.Get("turn"), Agent: query.Get("agent"), Before: query.Get("before"), Limit: size,
	})
	return auditList{Records: listed(records), Next: next(records, size, func(a exchange.AuditRecord) string { return a.ID })}, err
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
	identities, err := a.Records.People(r.Context(), r.URL.Query().Get("before"), size)
	answer := peopleList{Identities: listed(identities)}
	if err == nil && persons(identities) == size {
		answer.Next = identities[len(identities)-1].PersonID
	}
	return answer, err
}

// persons counts neighbours of one person once.
func persons(identities []exchange.PersonIdentity) int {
	count, last := 0, ""
	for _, identity := range identities {
		if identity.PersonID != last {
			count, last = count+1, identity.PersonID
		}
	}
	return count
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
		Code: "report:*", Agent: query.Get("agent"), Before: query.Get("before"), Limit: size,
	})
	return auditList{Records: listed(records), Next: next(records, size, func(a exchange.AuditRecord) string { return a.ID })}, err
}
