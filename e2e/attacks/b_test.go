package attacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inbox/e2e/load"
	"inbox/normalized"
)

// brittle is a webhook agent that fails at some messages, named by a word in them, and answers all others with what they say. It returns
// the lines that configure it.
func brittle(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		var body struct {
			Message normalized.Message `json:"message"`
		}
		if err := json.NewDecoder(request.Body).Decode(&body); err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		said := normalized.PlainText(body.Message.Parts)
		for _, status := range []int{429, 500, 502, 503, 504} {
			if strings.Contains(said, fmt.Sprint("fails with ", status)) {
				http.Error(writer, "too much", status)
				return
			}
		}
		if strings.Contains(said, "fails without a word") {
			panic(http.ErrAbortHandler)
		}
		writer.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(writer).Encode(normalized.Response{Parts: []normalized.Part{normalized.Text(said)}})
	}))
	t.Cleanup(server.Close)
	return fmt.Sprintf("[[agents]]\nname = \"brittle\"\nkind = \"webhook\"\nunverified = \"answer\"\n[agents.webhook]\nurl = %q\nsecret = %q\n\n", server.URL, agentSecret)
}

// askBrittle are honest newcomers on all channels, who write to the agent that an attack made fail.
func (a *watched) askBrittle(ctx context.Context, attack string) {
	var asking sync.WaitGroup
	for channel, send := range map[string]sender{
		"chat": func(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
			begun, answer := time.Now(), make(chan time.Time, 1)
			if said := a.chat(ctx, fmt.Sprintf("62.20.%d.7", n), "brittle", "honest "+attack); said != "an answer" {
				return begun, nil, errors.New("a guest heard: " + said)
			}
			answer <- time.Now()
			return begun, answer, nil
		},
		"a2a": func(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
			begun, answer := time.Now(), make(chan time.Time, 1)
			peer := load.A2APeer{URL: a.url("/a2a/brittle"), Token: a.honest.tokens[n], Client: a.client("203.0.113.1")}
			task, err := peer.Send(ctx, load.SendBody(fmt.Sprintf("%s-%d", attack, n), "honest "+attack, false))
			if err == nil && strings.HasSuffix(task.Status.State, "COMPLETED") {
				answer <- time.Now()
			}
			return begun, answer, err
		},
		"mail": func(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
			return a.mailTo(ctx, a.honest.domains[n], mailSource(n), fmt.Sprintf("newcomer%d", n), "brittle", attack+strconv.Itoa(n))
		},
		"fediverse": func(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
			return a.mentionTo(ctx, a.honest.communities[n], "newcomer", "brittle", attack, fmt.Sprintf("192.0.2.%d", n))
		},
	} {
		asking.Go(func() { a.newcomers(2, channel, send)(ctx) })
	}
	asking.Wait()
}

// mailTo sends a signed mail. It returns the time of sending and a channel that gets the time of the answer.
func (a *watched) mailTo(ctx context.Context, from load.MailDomain, source, person, agent, key string) (time.Time, <-chan time.Time, error) {
	mail := load.Mail{
		From: person + "@" + from.Name, To: agent + "@" + domain, MessageID: fmt.Sprintf("%s-%s@%s", person, key, from.Name), Subject: "A question", Body: "honest " + key,
	}
	answer := a.replies.to(mail.MessageID)
	signed, err := from.Sign(mail.Bytes())
	if err != nil {
		return time.Now(), nil, err
	}
	session, err := a.post(ctx, source)
	if err != nil {
		return time.Now(), nil, err
	}
	defer session.end()
	begun := time.Now()
	return begun, answer, session.send(mail.From, mail.To, signed)
}

// mentionTo sends a note. It returns the time of sending and a channel that gets the time of the answer.
func (a *watched) mentionTo(ctx context.Context, from *community, person, agent, key, source string) (time.Time, <-chan time.Time, error) {
	begun := time.Now()
	status, answer, err := from.mention(ctx, source, from.person(person), agent, key, "honest "+key, load.Signature{})
	if err == nil && status != http.StatusAccepted {
		err = &load.StatusError{Status: status}
	}
	return begun, answer, err
}

// poisonousMails: three forged mails on which the program answered 500 stopped its agent for everyone.
func (a *watched) poisonousMails() {
	result := a.attack("B1", "30 forged mails of 3 senders on which the program answers 500", func(ctx context.Context, heard *answers) {
		eve := forger{w: a.world, source: "62.21.1.7", heard: heard}
		defer eve.end()
		a.spread(ctx, 30, 1, func(_, i int) {
			mail := forged{agent: "brittle", key: fmt.Sprintf("poison-%d", i), mediaType: "text/plain", body: "this fails with 500"}
			mail.text = bytes.ReplaceAll(mail.bytes(), []byte("nowhere.example"), fmt.Appendf(nil, "nowhere%d.example", i%3))
			eve.bring(ctx, mail)
		})
		a.askBrittle(ctx, "after-mails")
	})
	a.heardOnly(result, "250", "421") // a connection brings only so many mails
	a.cheap(result, 50*time.Millisecond, 100<<20)
}

// poisonousCaller: the same by one caller with a token, at whose messages the program cut the connection.
func (a *watched) poisonousCaller() {
	a.poison("B2", "12 messages of one caller at which the program cuts the connection", "fails without a word")
}

// heavyMessage: a gateway answered one long message with 429 to 504, which meant that the program was down.
func (a *watched) heavyMessage() {
	a.poison("B3", "12 messages of one caller that a gateway answers with 429 to 504", "fails with 429", "fails with 502", "fails with 503", "fails with 504")
}

func (a *watched) poison(point, name string, words ...string) {
	token := a.token("mallory-" + point)
	result := a.attack(point, name, func(ctx context.Context, heard *answers) {
		peer := load.A2APeer{URL: a.url("/a2a/brittle"), Token: token, Client: a.client("62.22.1.7")}
		a.spread(ctx, 12, 12, func(_, i int) {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond) // the attacker does not wait
			defer cancel()
			_, err := peer.Send(ctx, load.SendBody(fmt.Sprintf("%s-%d", point, i), "this "+words[i%len(words)], false))
			if ctx.Err() != nil {
				heard.add("nothing in 200 ms")
				return
			}
			heard.add(outcome(err))
		})
		a.askBrittle(ctx, "after-"+point)
	})
	a.heardOnly(result, "nothing in 200 ms")
	a.cheap(result, 50*time.Millisecond, 100<<20)
}

// fullMailboxes: five full mailboxes stopped the mail to their domain.
func (a *watched) fullMailboxes() {
	const mailboxes = 8
	shared, source := must(load.NewMailDomain(a.names, "shared.example"))(a.t), "198.51.200.25"
	a.names.SetTXT(shared.Name, "v=spf1 ip4:"+source+" -all")
	result := a.attack("B4", "8 full mailboxes of one domain", func(ctx context.Context, heard *answers) {
		a.spread(ctx, mailboxes, mailboxes, func(_, i int) {
			person := fmt.Sprint("full", i)
			a.sink.PutOff(person+"@"+shared.Name, true)
			if _, _, err := a.mailTo(ctx, shared, source, person, "echo", "full"); err != nil {
				heard.add(err.Error())
				return
			}
			heard.add("250")
		})
		if err := until(ctx, patience, func() bool { return a.sink.Orders("full7@"+shared.Name) > 0 && a.sink.Orders("full0@"+shared.Name) > 0 }); err != nil {
			heard.add("no answer")
		}
		a.newcomers(3, "mail", func(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
			return a.mailTo(ctx, shared, source, fmt.Sprint("bob", n), "echo", "healthy")
		})(ctx)
	})
	a.heardOnly(result, "250")
	a.cheap(result, 100*time.Millisecond, 100<<20)
}

// deadInbox: one inbox that fails stopped all of a busy server.
func (a *watched) deadInbox() {
	const fails = 6 // times, before it hangs
	hang := a.hangs()
	var failed atomic.Int64
	busy := a.fediverse("busy.example", func(writer http.ResponseWriter, request *http.Request) bool {
		switch {
		case request.URL.Path == "/users/dead": // it has no part in the shared inbox
			document := load.Person{Name: "dead", ID: "https://busy.example/users/dead", Key: must(keys())(a.t)}.Document()
			delete(document, "endpoints")
			(&community{}).write(writer, "application/activity+json", document)
			return true
		case request.URL.Path != "/users/dead/inbox":
			return false
		case failed.Add(1) > fails:
			return hang(writer, request)
		}
		http.Error(writer, "broken", http.StatusInternalServerError)
		return true
	})
	result := a.attack("B5", "20 answers to an inbox of a busy server that fails, then hangs", func(ctx context.Context, heard *answers) {
		a.spread(ctx, 20, 4, func(_, i int) {
			_, _, err := a.mentionTo(ctx, busy, "dead", "echo", fmt.Sprint("dead-", i), "62.23.1.7")
			heard.add(outcome(err))
		})
		if err := until(ctx, patience, func() bool { return failed.Load() >= fails-1 }); err != nil {
			heard.add("no answer")
		}
		a.newcomers(4, "fediverse", func(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
			return a.mentionTo(ctx, busy, fmt.Sprint("neighbour", n), "echo", "alive", "192.0.2.77")
		})(ctx)
	})
	a.heardOnly(result, "200")
	a.cheap(result, 50*time.Millisecond, 100<<20)
}
