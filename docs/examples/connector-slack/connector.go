package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
)

const maxBody = 1 << 20

// connector relays between one messenger and one server.
type connector struct {
	inbox  string // where messages are handed in
	secret string // of [[connectors]]
	token  string // of the outgoing webhook, which every request of the messenger carries
	post   string // incoming webhook, where answers are posted

	signing string // Slack's secret of an app, which signs its events
	bot     string // token by which the app posts, in place of an incoming webhook
	api     string // of Slack

	client *http.Client

	posted posted
}

func (c *connector) routes() http.Handler {
	routes := http.NewServeMux()
	if c.token != "" {
		routes.HandleFunc("POST /hook", c.hook)
	}
	if c.signing != "" {
		routes.HandleFunc("POST /events", c.events)
	}
	routes.HandleFunc("POST /answers", c.answers)
	return routes
}

// hook takes an outgoing webhook and hands its message in. The messenger gets an empty answer: the agent's comes later.
func (c *connector) hook(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		return
	}

	said, err := readHook(r.Header.Get("Content-Type"), body)
	switch {
	case err != nil:
		http.Error(w, "this is no outgoing webhook", http.StatusBadRequest)
		return
	case !hmac.Equal([]byte(said.Token), []byte(c.token)):
		http.Error(w, "the token is wrong", http.StatusUnauthorized)
		return
	}

	if err := c.handIn(r, said.message()); err != nil {
		log.Print("hand in: ", err)
		http.Error(w, "the agents cannot be reached", http.StatusBadGateway)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}

func (c *connector) handIn(r *http.Request, message external) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}

	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, c.inbox, bytes.NewReader(body))
	if err != nil {
		return err
	}

	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Inbox-Signature", sign(c.secret, body))
	return c.do(request)
}

// answers takes an answer of the server and posts it. It says 2xx only when the messenger has it: otherwise the server comes
// again, with the same id.
func (c *connector) answers(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4*maxBody))
	if err != nil {
		http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		return
	}
	if !verifies(c.secret, body, r.Header.Get("X-Inbox-Signature")) {
		http.Error(w, "the signature is wrong", http.StatusUnauthorized)
		return
	}

	var answer answer
	if err := json.Unmarshal(body, &answer); err != nil {
		http.Error(w, "this is no answer", http.StatusBadRequest)
		return
	}

	mine, was := c.posted.begin(answer.ID)
	switch {
	case was:
		return
	case !mine:
		http.Error(w, "the answer is being posted", http.StatusConflict)
		return
	}

	err = c.postAnswer(r, answer)
	c.posted.end(answer.ID, err == nil)
	if err != nil {
		log.Print("post: ", err)
		http.Error(w, "the messenger cannot be reached", http.StatusBadGateway)
	}
}

func (c *connector) postAnswer(r *http.Request, answer answer) error {
	address, message := c.post, answer.post()
	if c.bot != "" {
		method, body := answer.call()
		address, message = c.api+"/"+method, body
	}

	body, err := json.Marshal(message)
	if err != nil {
		return err
	}

	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return err
	}

	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	if c.bot != "" {
		request.Header.Set("Authorization", "Bearer "+c.bot)
	}

	return c.do(request)
}

func (c *connector) do(request *http.Request) error {
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()

	said, _ := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %.512s", response.Status, said)
	}

	var told struct {
		OK    *bool  `json:"ok"`
		Error string `json:"error"`
	}
	if json.Unmarshal(said, &told) == nil && told.OK != nil && !*told.OK { // Slack's API refuses with status 200
		return fmt.Errorf("slack says %s", told.Error)
	}

	return nil
}

func sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// verifies takes any of the signatures: while the secret is being changed there are two.
func verifies(secret string, body []byte, header string) bool {
	want := []byte(sign(secret, body))
	for one := range strings.SplitSeq(header, ",") {
		if hmac.Equal([]byte(strings.TrimSpace(one)), want) {
			return true
		}
	}
	return false
}

// posted remembers the last answers, because the server repeats one whose success it did not hear of.
type posted struct {
	mu   sync.Mutex
	done map[string]bool // false = it is being posted
	last []string
}

// begin reports whether the answer is to be posted now, or else whether it was.
func (p *posted) begin(id string) (mine, was bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.done == nil {
		p.done = map[string]bool{}
	}

	was, known := p.done[id]
	if !known {
		p.done[id] = false
	}
	return !known, was
}

func (p *posted) end(id string, done bool) {
	const remembered = 1000
	p.mu.Lock()
	defer p.mu.Unlock()

	if !done {
		delete(p.done, id)
		return
	}

	p.done[id] = true
	if p.last = append(p.last, id); len(p.last) > remembered {
		delete(p.done, p.last[0])
		p.last = p.last[1:]
	}
}
