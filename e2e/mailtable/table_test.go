package mailtable

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/mail"
	"strings"
	"testing"
	"time"

	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/operator"
)

// row is one mail and what is expected of it. In all texts {d} is the domain of its sender, which no other row has.
type row struct {
	name string

	dns    []string // "name text": TXT records. The key of a signing domain is published unless it is here
	broken []string // names that are answered with SERVFAIL
	helo   string   // default mail.{d}
	from   string   // envelope, default ann@{d}; <> = null
	to     []string // default echo@inbox.test
	head   []string // header lines beside the usual ones; "-Name" leaves a usual one out
	body   string   // with LF; default "What time is it?"
	raw    string   // the whole mail as it is, instead of head and body
	sign   []string // domains that sign, the first one below; default {d}; "" = no one
	alter  func(t *testing.T, w *world, domain, mail string) string

	code   string // default 250
	id     string // of the message; default m@{d}, "digest" = that of the bytes
	method string // default email-dkim
	claims []string
	state  string // default answered for a proven sender, held for others; "absent" = no one has it
	reason string
	text   string // of the first part, without "Subject: …"
	holds  []string
	lacks  []string
	fresh  string   // text_new, likewise; "-" = there is none
	files  []string // "type name"
	check  func(t *testing.T, shown operator.Shown, reply load.Received)
}

func themes() map[string][]row {
	return map[string][]row{
		"authentication": authentication(), "signatures": signatures(), "loops": loops(), "mime": structures(), "text": texts(), "header": headers(),
		"threads": threads(), "recipients": recipients(), "wire": literals(),
	}
}

// TestTable is the table, theme by theme.
func TestTable(t *testing.T) {
	w := newWorld(t)
	count := 0
	for theme, rows := range themes() {
		for _, one := range rows {
			count++
			domain := fmt.Sprintf("r%d.test", count)
			t.Run(theme+"/"+one.name, func(t *testing.T) { w.try(t, one, domain) })
		}
	}
	if count < 100 {
		t.Errorf("the table has %d rows", count)
	}
}

func (w *world) try(t *testing.T, one row, domain string) {
	fill := func(text string) string { return strings.ReplaceAll(text, "{d}", domain) }
	w.publish(one, domain)
	mail := fill(one.write())
	if one.sign == nil {
		one.sign = []string{"{d}"}
	}
	for _, by := range one.sign {
		if by != "" {
			mail = librarySignature(t, w.key, fill(by), mail)
		}
	}
	if one.alter != nil {
		mail = one.alter(t, w, domain, mail)
	}
	from := strings.Trim(fill(cmp.Or(one.from, "ann@{d}")), "<>")
	to := one.to
	if to == nil {
		to = []string{"echo@inbox.test"}
	}
	for i := range to {
		to[i] = fill(to[i])
	}
	answer := w.dial(t).bring(fill(cmp.Or(one.helo, "mail.{d}")), from, to, mail)
	if want := cmp.Or(one.code, "250"); !strings.HasPrefix(answer, want) {
		t.Fatalf("answer %q; want %s\n%s", answer, want, clipped(mail))
	}
	id := fill(cmp.Or(one.id, "m@{d}"))
	if one.id == "digest" {
		sum := sha256.Sum256([]byte(mail))
		id = hex.EncodeToString(sum[:]) + "@inbox.test"
	}
	shown, err := w.operator.Messages.Show(t.Context(), id)
	if !strings.HasPrefix(answer, "250") || one.state == "absent" {
		if err == nil {
			t.Errorf("the mail was kept as %s", shown.Turn.State)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	w.compare(t, one, domain, shown)
}

func clipped(mail string) string { return mail[:min(len(mail), 2000)] }

func (w *world) publish(one row, domain string) {
	fill := func(text string) string { return strings.ReplaceAll(text, "{d}", domain) }
	given := map[string]bool{}
	for _, record := range one.dns {
		name, text, _ := strings.Cut(fill(record), " ")
		given[name] = true
		w.names.SetTXT(name, text)
	}
	for _, by := range append([]string{domain, "mail." + domain}, one.sign...) {
		if name := "s1._domainkey." + fill(by); by != "" && !given[name] {
			given[name] = true
			w.names.SetTXT(name, keyRecord(w.key))
		}
	}
	for _, name := range one.broken {
		w.names.Break(fill(name))
	}
}

// write makes the mail.
func (r row) write() string {
	if r.raw != "" {
		return r.raw
	}
	lines, given := []string{}, map[string]bool{}
	for _, line := range r.head {
		name, _, _ := strings.Cut(line, ":")
		given[strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "-")))] = true
		if !strings.HasPrefix(line, "-") {
			lines = append(lines, strings.ReplaceAll(line, "\n", "\r\n"))
		}
	}
	for _, line := range []string{
		"From: Ann Sender <ann@{d}>", "To: echo@inbox.test", "Subject: A question", "Date: " + time.Now().Format(time.RFC1123Z), "Message-ID: <m@{d}>",
		"MIME-Version: 1.0", "Content-Type: text/plain; charset=utf-8",
	} {
		if name, _, _ := strings.Cut(line, ":"); !given[strings.ToLower(name)] {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + strings.ReplaceAll(cmp.Or(r.body, "What time is it?"), "\n", "\r\n") + "\r\n"
}

func (w *world) compare(t *testing.T, one row, domain string, shown operator.Shown) {
	t.Helper()
	sender := shown.Turn.Message.Sender
	method := cmp.Or(one.method, normalized.AuthEmailDKIM)
	if sender.AuthMethod != method || sender.Verified != (method != normalized.AuthNone) || (len(sender.Identities) > 0) != sender.Verified {
		t.Errorf("method %s, verified %t, %d identities; want %s", sender.AuthMethod, sender.Verified, len(sender.Identities), method)
	}
	claims := string(sender.Profile.Extensions[normalized.ViaEmail])
	for _, want := range one.claims {
		if want = strings.ReplaceAll(want, "{d}", domain); !strings.Contains(claims, want) {
			t.Errorf("claims %s; want %s", claims, want)
		}
	}
	state := one.state
	if state == "" {
		if state = exchange.StateAnswered; method == normalized.AuthNone {
			state = exchange.StateHeld
		}
	}
	var reply load.Received
	if state == exchange.StateAnswered {
		reply = w.reply(t, domain, shown.Turn.Agent)
		again, err := w.operator.Messages.Show(t.Context(), shown.Turn.ID)
		if err != nil {
			t.Fatal(err)
		}
		shown = again
	}
	if shown.Turn.State != state || !strings.Contains(shown.Turn.Reason, one.reason) {
		t.Errorf("state %s (%s); want %s (%s)", shown.Turn.State, shown.Turn.Reason, state, one.reason)
	}
	one.compareParts(t, domain, shown.Turn.Message.Parts)
	if one.check != nil {
		one.check(t, shown, reply)
	}
}

// reply returns the reply of an agent to a domain. A mail to two agents brings one of each, in either order.
func (w *world) reply(t *testing.T, domain, agent string) load.Received {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		select {
		case reply := <-w.arrival(domain):
			from, err := mail.ParseAddress(reply.Header.Get("From"))
			if err != nil {
				t.Fatalf("From of the reply: %v", err)
			}
			if name, _, _ := strings.Cut(from.Address, "@"); name == agent || strings.HasPrefix(name, agent+"+") {
				return reply
			}
		case <-deadline.C:
			t.Fatalf("no reply of %s arrived", agent)
		}
	}
}

func (r row) compareParts(t *testing.T, domain string, parts []normalized.Part) {
	t.Helper()
	fill := func(text string) string { return strings.ReplaceAll(text, "{d}", domain) }
	written, err := json.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	var files []string
	for _, part := range parts {
		all.WriteString(part.Content + "\n")
		if part.Kind == normalized.PartFile {
			files = append(files, part.MIME+" "+part.Name)
		}
	}
	first := parts[0]
	if r.text != "" && body(first.Content) != fill(r.text) {
		t.Errorf("text %q; want %q", body(first.Content), fill(r.text))
	}
	if want := fill(strings.TrimPrefix(r.fresh, "-")); r.fresh != "" && body(first.New) != want {
		t.Errorf("new text %q; want %q", body(first.New), want)
	}
	for _, want := range r.holds {
		if !strings.Contains(all.String(), fill(want)) {
			t.Errorf("parts %s; want %q", written, want)
		}
	}
	for _, bad := range r.lacks {
		if strings.Contains(string(written), fill(bad)) {
			t.Errorf("parts %s; must not hold %q", written, bad)
		}
	}
	if r.files != nil && fmt.Sprint(files) != fmt.Sprint(r.files) {
		t.Errorf("files %q; want %q", files, r.files)
	}
}

// body leaves out the subject that leads the text of a mail.
func body(text string) string {
	if rest, is := strings.CutPrefix(text, "Subject: "); is {
		_, text, _ = strings.Cut(rest, "\n\n")
	}
	return text
}
