package attacks

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/smtp"
	"strconv"
	"strings"
	"sync"
	"time"

	"inbox/e2e/load"
)

// promisedBodies: request heads of 370 KB that announce large bodies took 10.6 GB of heap.
func (a *watched) promisedBodies() {
	token := a.token("promises")
	doors := []struct {
		path, media, token string
		announced          int
	}{
		{"/a2a/echo", "application/json", "wrong", 8_000_000}, {"/a2a/echo", "application/json", token, 8_000_000},
		{"/v1/chat/completions", "application/json", token, 8_000_000}, {"/v1/chat", "application/json", token, 1_000_000},
		{"/v1/agent/open", "application/json", "", 200_000}, {"/agents/echo/inbox", "application/activity+json", "", 1_000_000},
		{"/inbox", "application/activity+json", "", 1_000_000}, {"/v1/chat", "application/json", "wrong", 1_000_000},
	}
	const connections, addresses = 400, 16
	held := a.hold()
	before := a.heap()
	result := a.attack("A3", "400 request heads that announce 1.3 GB, one byte each", func(ctx context.Context, heard *answers) {
		a.spread(ctx, connections, addresses, func(address, i int) {
			door := doors[i%len(doors)]
			head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n{", door.path, domain, door.media, door.token, door.announced)
			if door.token == "" {
				head = strings.Replace(head, "Authorization: Bearer \r\n", "", 1)
			}
			held.open(ctx, fmt.Sprintf("62.3.%d.7", address), head, nil, heard)
		})
		if grown := a.heap() - before; grown > 100<<20 {
			a.t.Errorf("A3: the announced bodies take %s of heap", mebibytes(grown))
		}
	})
	held.close()
	a.cheap(result, 30*time.Millisecond, 150<<20)
}

// slowBodies: bodies that are sent but for their end hold memory for as long as they may take, from one network no more than
// its share.
func (a *watched) slowBodies() {
	const connections = 60
	held := a.hold()
	result := a.attack("A3", "60 requests of one address that send 900 of 1000 KB and stop", func(ctx context.Context, heard *answers) {
		body := []byte(strings.Repeat(" ", 900_000))
		a.spread(ctx, connections, 4, func(_, _ int) {
			head := fmt.Sprintf("POST /agents/echo/inbox HTTP/1.1\r\nHost: %s\r\nContent-Type: application/activity+json\r\nContent-Length: 1000000\r\n\r\n", domain)
			held.open(ctx, "62.4.1.7", head, body, heard)
		})
	})
	held.close()
	if refused := result.answers.get("503"); refused == 0 {
		a.t.Errorf("A3: the attacker heard %s; want 503 for what is over the share of its network", result.answers)
	}
	a.cheap(result, 30*time.Millisecond, 150<<20)
}

// held are connections that stay open until the end of an attack.
type held struct {
	w  *world
	mu sync.Mutex
	of []net.Conn
}

func (w *world) hold() *held {
	h := &held{w: w}
	w.t.Cleanup(h.close)
	return h
}

// open sends the beginning of a request. What is answered within a moment is heard, otherwise "nothing".
func (h *held) open(ctx context.Context, source, head string, body []byte, heard *answers) {
	dialer := tls.Dialer{NetDialer: h.w.dialer(source), Config: &tls.Config{RootCAs: h.w.roots, ServerName: domain, NextProtos: []string{"http/1.1"}}}
	connection, err := dialer.DialContext(ctx, "tcp", webAddress)
	if err != nil {
		heard.add("a broken connection")
		return
	}
	h.keep(connection)
	_ = connection.SetWriteDeadline(time.Now().Add(patience))
	if _, err = connection.Write(append([]byte(head), body...)); err != nil && len(body) == 0 {
		heard.add("a broken connection")
		return
	}
	const moment = 30 * time.Millisecond
	_ = connection.SetReadDeadline(time.Now().Add(moment))
	line, err := bufio.NewReader(connection).ReadString('\n')
	if _, rest, found := strings.Cut(line, " "); err == nil && found {
		status, _, _ := strings.Cut(rest, " ")
		heard.add(status)
		return
	}
	heard.add("nothing yet")
}

func (h *held) keep(connection net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of = append(h.of, connection)
}

func (h *held) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, connection := range h.of {
		_ = connection.Close()
	}
	h.of = nil
}

// heap is what the Go heap of the server holds, as it tells its operator: room that was made and never written to is not resident.
func (w *world) heap() int64 {
	w.t.Helper()
	_, text := w.call(w.t.Context(), w.client(insideAddress), http.MethodGet, "/metrics", nil, nil)
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, "go_memstats_heap_alloc_bytes "); is {
			return int64(must(strconv.ParseFloat(strings.TrimSpace(value), 64))(w.t))
		}
	}
	w.t.Fatal("/metrics says nothing of the heap")
	return 0
}

// stalledMails: transfers that stop before their end hold what was sent. Connections that one address may have must
// not take what is kept for all mails.
func (a *watched) stalledMails() {
	held := a.hold()
	result := a.attack("A3", "9 mails of one address that send 17 MB and stop", func(ctx context.Context, heard *answers) {
		part := []byte(strings.Repeat(strings.Repeat("z", 70)+"\r\n", 17_000_000/72))
		a.spread(ctx, 9, 9, func(_, _ int) {
			connection, err := a.dialer("62.17.1.7").DialContext(ctx, "tcp", mailAddress)
			if err != nil {
				heard.add("a broken connection")
				return
			}
			held.keep(connection)
			_ = connection.SetDeadline(time.Now().Add(patience))
			client, err := smtp.NewClient(connection, domain)
			if err == nil {
				err = errors.Join(client.Hello("mail.example"), client.Mail("eve@nowhere.example"), client.Rcpt("echo@"+domain))
			}
			if err != nil {
				heard.add(err.Error())
				return
			}
			data, err := client.Data()
			if err == nil {
				_, err = data.Write(part)
			}
			if err != nil {
				heard.add("a broken connection")
				return
			}
			heard.add("nothing yet")
		})
	}, a.newcomers(5, "large mail", a.largeMail))
	held.close()
	a.cheap(result, time.Second, 250<<20)
}

// largeMail is an honest mail that needs room.
func (a *watched) largeMail(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
	timer := time.NewTimer(length / 2) // when the room is taken
	defer timer.Stop()
	<-timer.C
	from := a.honest.domains[n%len(a.honest.domains)]
	mail := load.Mail{
		From: fmt.Sprintf("large%d@%s", n, from.Name), To: "echo@" + domain, MessageID: fmt.Sprintf("large-%d@%s", n, from.Name), Subject: "A long question",
		Body: strings.Repeat(strings.Repeat("w", 70)+"\n", 200_000/71),
	}
	answer := a.replies.to(mail.MessageID)
	signed, err := from.Sign(mail.Bytes())
	if err != nil {
		return time.Now(), nil, err
	}
	session, err := a.post(ctx, mailSource(n%len(a.honest.domains)))
	if err != nil {
		return time.Now(), nil, err
	}
	defer session.end()
	begun := time.Now()
	return begun, answer, session.send(mail.From, mail.To, signed)
}
