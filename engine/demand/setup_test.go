package demand

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/facilitator"
	"inbox/internal/facilitator/facilitatortest"
	"inbox/internal/fault"
	"inbox/internal/openid"
	"inbox/internal/openid/openidtest"
	"inbox/normalized"
	"inbox/policypart"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// rowStore holds demands and the turns that wait for them in memory, with the conditions of the real store.
type rowStore struct {
	mutex   sync.Mutex
	demands map[string]policypart.Issuance
	paying  map[string]string // payment to demand
	waiting map[string]bool   // turns
	endings []Ending          // that were stored
	audit   []exchange.AuditRecord
	links   []exchange.PersonLink
	queries int
	broken  error // given by every method while it is set

	troubled    map[string]bool // turns that cannot be moved
	beforeClaim func()          // what another node does just before a demand is claimed
	afterEdit   func()          // what another node does just after an edit was stored
	meanwhile   func()          // runs once, before the next endings are stored
}

func (s *rowStore) enter() (leave func(), err error) {
	s.mutex.Lock()
	s.queries++
	return s.mutex.Unlock, s.broken
}

func (s *rowStore) Demand(_ context.Context, id string) (policypart.Issuance, error) {
	leave, err := s.enter()
	defer leave()
	if demand, ok := s.demands[id]; ok || err != nil {
		return demand, err
	}
	return policypart.Issuance{}, fault.New(fault.NotFound, "no such demand")
}

func (s *rowStore) find(match func(policypart.Issuance) bool) (found policypart.Issuance, ok bool, err error) {
	leave, err := s.enter()
	defer leave()
	for _, id := range slices.Sorted(maps.Keys(s.demands)) {
		if match(s.demands[id]) {
			found, ok = s.demands[id], true
		}
	}
	return found, ok, err
}

func (s *rowStore) DemandByState(_ context.Context, hash string) (policypart.Issuance, bool, error) {
	return s.find(func(i policypart.Issuance) bool { return i.StateHash == hash })
}

func (s *rowStore) DemandByCode(_ context.Context, hash string) (policypart.Issuance, bool, error) {
	return s.find(func(i policypart.Issuance) bool {
		return i.CodeHash != "" && i.CodeHash == hash && (i.Status == policypart.StatusIssued || i.Status == policypart.StatusClaimed)
	})
}

func (s *rowStore) DemandOfTurn(_ context.Context, turnID string) (policypart.Issuance, bool, error) {
	return s.find(func(i policypart.Issuance) bool { return i.TurnID == turnID })
}

func (s *rowStore) Approvals(_ context.Context, filter exchange.ApprovalFilter) (list []policypart.Issuance, err error) {
	leave, err := s.enter()
	defer leave()
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(s.demands))) {
		i := s.demands[id]
		open := i.Status == policypart.StatusIssued || i.Status == policypart.StatusClaimed
		if i.Purpose == policypart.PurposeApproval && (filter.Agent == "" || i.Agent == filter.Agent) && (filter.CodeHash == "" || i.CodeHash == filter.CodeHash) && (filter.All || open) && len(list) < filter.Limit {
			list = append(list, i)
		}
	}
	return list, err
}

func (s *rowStore) DueDemands(_ context.Context, now time.Time, after policypart.Issuance, limit int) (due []policypart.Issuance, err error) {
	leave, err := s.enter()
	defer leave()
	order := func(a, b policypart.Issuance) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
	}
	for _, i := range s.demands {
		overdue := i.Status == policypart.StatusIssued && !now.Before(i.ExpiresAt) ||
			i.Status == policypart.StatusClaimed && !now.Before(i.ExpiresAt.Add(2*time.Minute))
		if overdue && order(i, after) > 0 {
			due = append(due, i)
		}
	}
	slices.SortFunc(due, order)
	return due[:min(limit, len(due))], err
}

func (s *rowStore) WaitingDemands(_ context.Context, agent string, ends time.Time, after string, limit int) (waiting []policypart.Issuance, err error) {
	leave, err := s.enter()
	defer leave()
	order := func(a, b policypart.Issuance) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
	}
	for _, i := range s.demands {
		open := i.Status == policypart.StatusIssued || i.Status == policypart.StatusClaimed
		if open && i.Agent == agent && i.Purpose != policypart.PurposeApproval && order(i, policypart.Issuance{ExpiresAt: ends, ID: after}) > 0 {
			waiting = append(waiting, i)
		}
	}
	slices.SortFunc(waiting, order)
	return waiting[:min(limit, len(waiting))], err
}

func (s *rowStore) ClaimDemand(_ context.Context, id, payment string, notes json.RawMessage, now time.Time) (bool, error) {
	if before := s.beforeClaim; before != nil {
		s.beforeClaim = nil
		before()
	}
	leave, err := s.enter()
	defer leave()
	if holder := s.paying[payment]; err == nil && holder != "" && holder != id {
		return false, fault.New(fault.Conflict, "the payment belongs to another demand")
	}
	i := s.demands[id]
	if err != nil || i.Status != policypart.StatusIssued || !now.Before(i.ExpiresAt) {
		return false, err
	}
	i.Status, i.Notes = policypart.StatusClaimed, notes
	s.demands[id] = i
	if payment != "" {
		s.paying[payment] = id
	}
	return true, nil
}

func (s *rowStore) NoteDemand(_ context.Context, id, status string, notes json.RawMessage) (bool, error) {
	leave, err := s.enter()
	defer leave()
	i := s.demands[id]
	if err != nil || i.Status != status {
		return false, err
	}
	i.Notes = notes
	s.demands[id] = i
	return true, nil
}

func (s *rowStore) EndLinks(_ context.Context, filter exchange.LinkFilter, _ exchange.LinkEnd) (ended []exchange.PersonLink, err error) {
	leave, err := s.enter()
	defer leave()
	s.links = slices.DeleteFunc(s.links, func(link exchange.PersonLink) bool {
		is := link.Agent == filter.Agent && slices.ContainsFunc(link.Sides[:], func(side exchange.LinkSide) bool { return side.Principal == filter.Principal })
		if is {
			ended = append(ended, link)
		}
		return is
	})
	return ended, err
}

func (s *rowStore) Tokens(context.Context) ([]exchange.Token, error) {
	leave, err := s.enter()
	defer leave()
	return []exchange.Token{{ID: "7", Name: "customer"}}, err
}

func (s *rowStore) ReviseDemand(ctx context.Context, id, codeHash, newHash string, notes json.RawMessage) (bool, error) {
	noted, err := s.revise(ctx, id, codeHash, newHash, notes)
	if then := s.afterEdit; noted && then != nil {
		s.afterEdit = nil
		then()
	}
	return noted, err
}

func (s *rowStore) revise(_ context.Context, id, codeHash, newHash string, notes json.RawMessage) (bool, error) {
	leave, err := s.enter()
	defer leave()
	i := s.demands[id]
	if err != nil || i.Status != policypart.StatusIssued || i.CodeHash != codeHash {
		return false, err
	}
	i.CodeHash, i.Notes = newHash, notes
	s.demands[id] = i
	return true, nil
}

func (s *rowStore) Audit(_ context.Context, record exchange.AuditRecord) error {
	leave, err := s.enter()
	defer leave()
	if err == nil {
		s.audit = append(s.audit, record)
	}
	return err
}

// Settle is the pipeline: all of the endings or none.
func (s *rowStore) Settle(_ context.Context, endings ...Ending) error {
	if before := s.meanwhile; before != nil {
		s.meanwhile = nil
		before()
	}

	leave, err := s.enter()
	defer leave()
	for _, e := range endings {
		if s.troubled[e.Issuance.TurnID] {
			return errors.New("the turn's row is damaged")
		}
		movesTurn := e.Resume || e.Response != nil
		if e.Read != nil && !bytes.Equal(e.Read, s.demands[e.Issuance.ID].Notes) {
			return fault.New(fault.Conflict, "noted meanwhile")
		}
		if !slices.Contains(e.From, s.demands[e.Issuance.ID].Status) || movesTurn && !s.waiting[e.Issuance.TurnID] {
			return fault.New(fault.Conflict, "not open any more")
		}
	}
	for _, e := range endings {
		if e.Issuance.Notes == nil {
			e.Issuance.Notes = s.demands[e.Issuance.ID].Notes
		}
		s.demands[e.Issuance.ID] = e.Issuance
		if e.Issuance.Status != policypart.StatusResolved {
			maps.DeleteFunc(s.paying, func(_, demand string) bool { return demand == e.Issuance.ID })
		}
		if e.Resume || e.Response != nil {
			delete(s.waiting, e.Issuance.TurnID)
		}
		if e.Link != nil {
			s.links = append(s.links, *e.Link)
		}
		s.endings = append(s.endings, e)
		s.audit = append(s.audit, e.Audit...)
	}
	return err
}

// codes returns the codes of the audit rows so far and forgets them.
func (s *rowStore) codes() (codes []string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, record := range s.audit {
		codes = append(codes, record.Code)
	}
	s.audit = nil
	return codes
}

func (s *rowStore) lastEnding(t *testing.T) Ending {
	t.Helper()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.endings) == 0 {
		t.Fatal("nothing was settled")
	}
	return s.endings[len(s.endings)-1]
}

type doer struct{}

func (doer) Do(request *http.Request) (*http.Response, error) {
	request.Close = true // no idle connection outlives the test
	return http.DefaultTransport.RoundTrip(request)
}

// bench is a Service on a row store, with a clock that stands.
type bench struct {
	*Service
	options     Options
	rows        *rowStore
	clock       time.Time
	facilitator *facilitatortest.Server
	issuer      *openidtest.Issuer
}

func setup(t *testing.T) *bench {
	t.Helper()
	b := offline(t)
	b.facilitator, b.issuer = facilitatortest.New(t), openidtest.New(t, "user-7")
	login, err := openid.New(openid.Options{
		Name: "staff", Issuer: b.issuer.URL, ClientID: openidtest.ClientID, ClientSecret: openidtest.ClientSecret,
		RedirectURL: "https://agents.test/policy/callback", HTTP: doer{},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.options.Logins = []Login{login}
	b.options.Facilitator = facilitator.New(facilitator.Options{URL: b.facilitator.URL, HTTP: doer{}})
	b.restart()
	return b
}

// offline is a bench without servers, for the bubbles of synctest.
func offline(t *testing.T) *bench {
	t.Helper()
	base, err := url.Parse("https://agents.test")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{
		rows:  &rowStore{demands: map[string]policypart.Issuance{}, paying: map[string]string{}, waiting: map[string]bool{}},
		clock: time.Now().UTC().Truncate(time.Second),
	}
	b.options = Options{
		Store: b.rows, BaseURL: base, Secret: []byte(strings.Repeat("k", 32)), Now: func() time.Time { return b.clock }, Logger: slog.New(slog.DiscardHandler),
		Facilitator: facilitator.New(facilitator.Options{URL: base, HTTP: doer{}}),
	}
	b.restart()
	return b
}

// restart makes the Service anew after its options changed.
func (b *bench) restart() {
	b.Service = New(b.options)
	b.Bind(b.rows)
}

func evidence(subject string) identity.Evidence {
	return identity.Transport(identity.TransportProof{
		Addressed: identity.AddressedRequest,
		Domain:    "agents.test", Subject: subject, Method: identity.MethodActivityPubSignature, Assurance: identity.AssuranceAddress,
		Recipient: "@a@agents.test", IssuedAt: time.Now(),
	})
}

func turnOf(id, subject string, texts ...string) exchange.TurnRecord {
	message := normalized.Message{
		ID: "message-" + id, ThreadID: "thread-" + id, Recipient: "@a@agents.test", ReceivedVia: normalized.ViaEmail,
		Sender: normalized.Sender{Address: identity.Stated("@" + subject + "@people.test"), Identities: []identity.Evidence{evidence("mailto:" + subject)}},
	}
	message.Sender.Profile = &normalized.SenderProfile{Locale: "de"}
	for _, text := range texts {
		message.Parts = append(message.Parts, normalized.Text(text))
	}
	return exchange.TurnRecord{ID: id, Agent: "a", Principal: message.Sender.Principal(), ThreadID: message.ThreadID, Message: message}
}

// park issues a demand and stores it with its waiting turn, as the pipeline does.
func (b *bench) park(t *testing.T, turn exchange.TurnRecord, part policypart.Part) (policypart.Issuance, string) {
	t.Helper()
	issuance, err := b.Issue(turn, part)
	if err != nil {
		t.Fatal(err)
	}
	b.rows.mutex.Lock()
	defer b.rows.mutex.Unlock()
	b.rows.demands[issuance.ID], b.rows.waiting[turn.ID] = issuance, true
	return issuance, tokenOf(t, b.Present(issuance.Part))
}

func tokenOf(t *testing.T, presented policypart.Part) string {
	t.Helper()
	token, ours := strings.CutPrefix(presented.URL, "https://agents.test/policy/")
	if !ours || len(token) != tokenBytes {
		t.Fatalf("url %q", presented.URL)
	}
	return token
}

func (b *bench) row(id string) policypart.Issuance {
	b.rows.mutex.Lock()
	defer b.rows.mutex.Unlock()
	return b.rows.demands[id]
}

// resumed is the turn as it runs again.
func (b *bench) resumed(turn exchange.TurnRecord, demand string) exchange.TurnRecord {
	turn.Message.PolicyResolution = b.row(demand).Resolution
	turn.Attempt++
	return turn
}

func consent() policypart.Part {
	return policypart.Part{
		Kind: policypart.ConsentRequired, Title: "May I read your mail?", Message: "The agent wants to read your mail.", Scopes: []string{"mail.read"},
		MessageTranslations: map[string]policypart.Translation{"de": {Title: "Darf ich deine Mail lesen?", Message: "Der Agent will deine Mail lesen."}},
	}
}

func login() policypart.Part {
	return policypart.Part{
		Kind: policypart.Unauthorized, Message: "Log in.", AuthChallenges: []policypart.Challenge{{Scheme: "Bearer", Params: map[string]string{"login": "staff"}}},
	}
}

func invoice(accepts ...json.RawMessage) policypart.Part {
	expires := identity.At(time.Now().Add(100 * time.Hour))
	return policypart.Part{
		Kind: policypart.PaymentRequired, Message: "One cent, please.", Amount: "0.01", Currency: "USD", ExpiresAt: &expires, Accepts: accepts,
	}
}

// refusedBy returns the code of the check that an attempt failed, empty for other errors.
func refusedBy(err error) string {
	if refusal, ok := errors.AsType[*policypart.Refusal](err); ok {
		return refusal.Code
	}
	return ""
}
