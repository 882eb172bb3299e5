package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/clock"
	"inbox/internal/config"
	"inbox/internal/fault"
)

// Tried is what became of a message that the operator wrote to an agent.
type Tried struct {
	Answered bool   `json:"answered"`
	Millis   int64  `json:"millis"` // from the request until the answer was stored, as this command saw it
	Message  string `json:"message_id"`
	Shown
}

const (
	tryLook    = 50 * time.Millisecond // between two looks at the message
	tryRequest = 30 * time.Second      // bounds the request; the answer is waited for afterwards
	longestTry = 1 << 20               // bytes that are read of the server's answer
)

// TryAgent sends a message to an agent of the running server, as another agent would: by A2A at http.listen, with a token for this
// message alone, which is deleted afterwards. It passes every stage that others' messages pass, rules and limits among them. It waits until
// the message is answered or will not be by itself, at most so long. fault.Unavailable says that no server listens, fault.Refused
// what the server says.
func (o *Operator) TryAgent(ctx context.Context, agent, text string, wait time.Duration) (tried Tried, err error) {
	entry, err := configuredAgent(o.options.Config, agent)
	if err != nil {
		return Tried{}, err
	}

	id := uuid.Must(uuid.NewV7()).String()
	if err := o.deleteTryTokens(ctx); err != nil {
		return Tried{}, err
	}
	secret, token, err := o.Tokens.Until(now().Add(2*tryRequest)).Create(ctx, tryToken+id[len(id)-12:], entry.Name)
	if err != nil {
		return Tried{}, err
	}
	defer func() {
		deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryRequest)
		defer cancel()
		err = errors.Join(err, o.Tokens.remove(deleting, token.ID))
	}()

	began := time.Now()
	if err := o.sendTry(ctx, entry, secret, id, text); err != nil {
		return Tried{}, err
	}

	tried = Tried{Message: id}
	for end := began.Add(wait); ; {
		tried.Shown, err = o.Messages.Show(ctx, id)
		if err != nil {
			return tried, err
		}
		if exchange.Settled(tried.Turn.State) || time.Now().After(end) {
			tried.Millis, tried.Answered = time.Since(began).Milliseconds(), tried.Turn.State == exchange.StateAnswered
			return tried, nil
		}
		if err := clock.Sleep(ctx, tryLook); err != nil {
			return tried, err
		}
	}
}

// tryToken begins the names of the tokens of tests.
const tryToken = "operator-test-"

// deleteTryTokens deletes the tokens of tests that have ended: of processes that died, and of versions that only revoked them.
func (o *Operator) deleteTryTokens(ctx context.Context) error {
	tokens, err := o.Tokens.List(ctx)
	if err != nil {
		return err
	}
	for _, token := range tokens {
		if !strings.HasPrefix(token.Name, tryToken) || token.Scope != exchange.TokenPeer || token.Valid(now()) {
			continue
		}
		if err := o.Tokens.remove(ctx, token.ID); err != nil {
			return err
		}
	}
	return nil
}

// sendTry sends the message. The server is asked where it listens, under its public name: what stands before it is the doctor's to look at.
func (o *Operator) sendTry(ctx context.Context, agent *config.Agent, secret, id, text string) error {
	ctx, cancel := context.WithTimeout(ctx, tryRequest)
	defer cancel()

	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{
		"configuration": map[string]any{"returnImmediately": true},
		"message":       map[string]any{"messageId": id, "role": "ROLE_USER", "parts": []any{map[string]any{"text": text}}},
	}})
	if err != nil {
		return err
	}

	client, base, place := o.options.ownListener()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/a2a/"+url.PathEscape(agent.Name), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+secret)
	request.Header.Set("A2A-Version", "1.0")
	request.Header.Set("Content-Type", "application/json")

	response, err := client.Do(request)
	if err != nil {
		return fault.Wrap(fault.Unavailable, "the server at http.listen, "+place+", cannot be asked: "+fault.InWords(err)+"; start it: inbox serve", err)
	}
	defer func() { _ = response.Body.Close() }()

	answer, err := io.ReadAll(io.LimitReader(response.Body, longestTry))
	if err != nil {
		return fault.Wrap(fault.Unavailable, "the server's answer breaks off: "+fault.InWords(err), err)
	}
	return tryRefusal(response.Status, answer)
}

// ownListener is a client that asks the server of this machine, and the address under which it knows itself: names lead to http.listen,
// wherever the DNS says they do. The certificate is checked for the public name.
func (o Options) ownListener() (client *http.Client, base, place string) {
	listen := o.Config.HTTP.Listen
	if o.Listening != nil {
		listen, _ = o.Listening()
	}
	return o.listenerAt(listen, o.Config.HTTP.TLS != "off")
}

// mailListener is host:port where mail is taken; empty = it is not.
func (o Options) mailListener() string {
	listen := o.Config.SMTP.Listen
	if o.Listening != nil {
		_, listen = o.Listening()
	}
	if listen == "" {
		return ""
	}
	return config.Dialable(listen)
}

// operatorListener is ownListener for what only operators may ask: admin.listen, or http.listen where that is not written.
func (o Options) operatorListener() (client *http.Client, base string) {
	if o.Config.Admin.Listen == "" {
		client, base, _ = o.ownListener()
		return client, base
	}
	client, base, _ = o.listenerAt(o.Config.Admin.Listen, o.Config.HTTP.TLS != "off" && !o.Config.Admin.IsLocal())
	return client, base
}

func (o Options) listenerAt(listen string, secure bool) (client *http.Client, base, place string) {
	scheme, host := "http", o.Config.PublicHost()
	if secure {
		scheme = "https"
	}
	network, place := config.Reach(listen)
	transport := &http.Transport{
		TLSClientConfig: OwnTLS(host, o.Config.HTTP.CertFile, o.Issued), DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, place)
		},
	}
	return &http.Client{Transport: transport}, scheme + "://" + host, place
}

// tryRefusal is what the server says against the message; nil = it took it.
func tryRefusal(status string, answer []byte) error {
	var said struct {
		Result json.RawMessage `json:"result"`
		Error  *struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(answer, &said); {
	case err == nil && said.Error != nil:
		return fault.New(fault.Conflict, "the server does not take the message: "+strings.Join(strings.Fields(said.Error.Message), " "))
	case err != nil || len(said.Result) == 0:
		return fault.New(fault.Conflict, fmt.Sprintf("what listens at http.listen answers %s and is not this server", status))
	}
	return nil
}

// Reach returns network and address by which this machine reaches a listener of the settings.
func Reach(listen string) (network, address string) { return config.Reach(listen) }
