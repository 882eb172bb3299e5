package bridge

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// queues keeps what waits for a client until it is acknowledged.
type queues struct {
	*site
	access   *access
	bridge   contract.Bridge
	notifier notifier
}

// Bounds of what clients ask for.
const (
	maxAcks         = 1000
	maxSessionsAsk  = 100
	shortestLease   = time.Second
	longestLease    = time.Hour
	shortestSecret  = 16 // bytes
	longestSecret   = 512
	generatedSecret = 32
)

// own returns the client of a request: that of the token. A body that names another one is refused.
func (c caller) own(named string) (string, error) {
	switch {
	case c.client != "" && (named == "" || contract.Slug(named) == c.client):
		return c.client, nil
	case c.client == "" && c.manager && contract.Slug(named) != "":
		return contract.Slug(named), nil
	case c.client == "":
		return "", fault.InField("client_id", "is needed")
	}
	return "", fault.New(fault.NotFound, "no such client")
}

// register keeps the client of the token with its callback (agent runtime contract, section 6.4). A secret that is made
// here is told once.
func (q *queues) register(w http.ResponseWriter, r *http.Request, c caller) error {
	body, _, err := readObject(r)
	if err != nil {
		return err
	}
	if body["client_id"], err = c.own(text(body, "client_id")); err != nil {
		return err
	}

	delete(body, "registered_at")
	client, err := contract.NormalizeClient(body)
	if err != nil {
		return err
	}

	answer := client.Value()
	sealed := ""
	if client.CallbackURL != "" {
		if sealed, err = q.callbackSecret(r, client, text(body, "callback_secret"), answer); err != nil {
			return err
		}
	}

	if err := q.options.Queue.Register(r.Context(), client, sealed); err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// callbackSecret checks the callback and seals its secret: the one that was given, the one that is there, or a new one.
func (q *queues) callbackSecret(r *http.Request, client contract.Client, given string, answer map[string]any) (sealed string, err error) {
	address, err := url.Parse(client.CallbackURL)
	if err != nil || address.User != nil || address.Fragment != "" || q.options.Web.CheckTarget(r.Context(), address) != nil {
		return "", fault.InField("callback_url", "must be a public https address without user name, whose name leads to public addresses only")
	}

	switch {
	case given != "" && (len(given) < shortestSecret || len(given) > longestSecret):
		return "", fault.InField("callback_secret", "must have 16 to 512 bytes")
	case given == "":
		_, known, _, err := q.options.Queue.ClientSecret(r.Context(), client.ID)
		if err != nil || known != "" {
			return "", err
		}
		random := make([]byte, generatedSecret)
		_, _ = rand.Read(random) // never fails since Go 1.24
		given = base64.RawURLEncoding.EncodeToString(random)
		answer["callback_secret"] = given
	}

	return q.options.Sealer.Seal(r.Context(), []byte(given), callbackPurpose(client.ID))
}

// client returns the registration of the token's client.
func (q *queues) client(w http.ResponseWriter, r *http.Request, c caller) error {
	id, err := c.own(r.URL.Query().Get("client_id"))
	if err != nil {
		return err
	}

	client, found, err := q.bridge.Client(r.Context(), id)
	if err != nil {
		return err
	}
	if !found {
		return fault.New(fault.NotFound, "the client is not registered; it need not be, unless it wants to be called back")
	}

	httpserver.WriteJSON(w, http.StatusOK, client.Value())
	return nil
}

// enqueue keeps an item that no agent wrote: of a program for itself, or of an operator for any client.
func (q *queues) enqueue(w http.ResponseWriter, r *http.Request, c caller) error {
	body, _, err := readObject(r)
	if err != nil {
		return err
	}

	if item := value.Assoc(body["item"]); len(item) > 0 {
		body = item
	}
	if body["client_id"], err = c.own(text(body, "client_id")); err != nil {
		return err
	}

	body["delivery_status"] = nil
	item, err := q.bridge.Enqueue(r.Context(), body)
	if err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusCreated, item.Value())
	return nil
}

// selection is what a client asks for.
type selection struct {
	client   string
	limit    int
	sessions []string
	lease    time.Duration
}

func (q *queues) selection(r *http.Request, c caller) (s selection, err error) {
	query := r.URL.Query()
	if s.client, err = c.own(query.Get("client_id")); err != nil {
		return s, err
	}
	if s.limit, err = limitOf(query.Get("limit"), contract.MaxLimit); err != nil {
		return s, err
	}

	s.sessions = slices.Clone(query["session_id"]) // as they are: an id that a caller chose may have a comma
	for _, list := range query["session_ids"] {
		s.sessions = append(s.sessions, strings.Split(list, ",")...)
	}

	if len(s.sessions) > maxSessionsAsk {
		return s, fault.InField("session_ids", "names more than 100 sessions")
	}

	s.lease, err = leaseOf(query.Get("lease"))
	return s, err
}

func leaseOf(given string) (time.Duration, error) {
	if given == "" {
		return 0, nil
	}

	if strings.Trim(given, "0123456789") == "" {
		given += "s"
	}

	length, err := time.ParseDuration(given)
	if err != nil || length < shortestLease || length > longestLease {
		return 0, fault.InField("lease", "must be a time from 1s to 1h")
	}
	return length, nil
}

// ack removes items of the client and answers how many there were. Other ids are passed over, those of other clients' items
// too.
func (q *queues) ack(w http.ResponseWriter, r *http.Request, c caller) error {
	body, _, err := readObject(r)
	if err != nil {
		return err
	}

	client, err := c.own(text(body, "client_id"))
	if err != nil {
		return err
	}

	ids, err := idsOf(body)
	if err != nil {
		return err
	}

	acked, err := q.bridge.Ack(r.Context(), client, ids)
	if err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusOK, map[string]any{"client_id": client, "acked": acked})
	return nil
}

func idsOf(body map[string]any) (ids []string, err error) {
	named := false
	for _, member := range []string{"queue_ids", "ids"} {
		list, is := value.List(body[member])
		if body[member] != nil && !is {
			return nil, fault.InField(member, "must be a list")
		}
		named = named || is
		for _, one := range list {
			ids = append(ids, value.Trim(value.Scalar(one)))
		}
	}

	if one := text(body, "queue_id"); one != "" {
		ids = append(ids, one)
	}
	switch {
	case len(ids) == 0 && !named:
		return nil, fault.InField("queue_ids", "is needed: a list of ids")
	case len(ids) > maxAcks:
		return nil, fault.InField("queue_ids", "has more than 1000 ids")
	}

	return ids, nil
}

func itemNotFound() error { return fault.New(fault.NotFound, "the queue item was not found") }

// item returns one item; that of another client is not found.
func (q *queues) item(w http.ResponseWriter, r *http.Request, c caller) error {
	client, err := c.own(r.URL.Query().Get("client_id"))
	if err != nil {
		return err
	}

	item, found, err := q.options.Queue.Item(r.Context(), client, httpserver.Param(r, "item"))
	if err == nil && !found {
		err = itemNotFound()
	}
	if err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusOK, item.Value())
	return nil
}

// ackOne acknowledges one item; one that is not there any more, or is another client's, is not found.
func (q *queues) ackOne(w http.ResponseWriter, r *http.Request, c caller) error {
	client, err := c.own(r.URL.Query().Get("client_id"))
	if err != nil {
		return err
	}

	removed, err := q.bridge.Ack(r.Context(), client, []string{httpserver.Param(r, "item")})
	if err == nil && removed == 0 {
		err = itemNotFound()
	}
	if err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusOK, map[string]any{"client_id": client, "acked": removed})
	return nil
}
