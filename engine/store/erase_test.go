package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/engine/pipeline"
	"inbox/engine/store/database"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/queue"
	"inbox/migrations"
	"inbox/normalized"
)

// TestMentions: a name is found as a whole, in any case, and not as a part of another one.
func TestMentions(t *testing.T) {
	names := PersonNames{Principals: []string{"peer.example https://peer.example/users/bob"}, Addresses: []identity.ProvenAddress{"@bob@peer.example"}}.texts()
	for text, want := range map[string]bool{
		`{"to":"@Bob@peer.example"}`: true, "mailto:bob@peer.example": true, "550 no bob@peer.example.": true, "<BOB@PEER.EXAMPLE>": true,
		`"https://peer.example/users/bob"`: true, "https://peer.example/users/bob#main-key": true, "https://peer.example/users/bob/inbox": true,
		"jimbob@peer.example": false, "jim.bob@peer.example": false, "bob@peer.example.org": false, "https://peer.example/users/bobby": false, "": false,
	} {
		if got := mentions(text, names); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}

// TestMentionsInLettersBeyondASCII: a name is found with its domain in the form of the DNS, and as an operator wrote it on a command line.
func TestMentionsInLettersBeyondASCII(t *testing.T) {
	names := PersonNames{
		Principals: []string{"peer.example https://xn--bcher-kva.example/users/bob"}, Addresses: []identity.ProvenAddress{"@alice@xn--bcher-kva.example"},
	}.texts()
	for text, want := range map[string]bool{
		"inbox erase @alice@bücher.example": true, "inbox block add Alice@BÜCHER.example": true, "alice@xn--bcher-kva.example": true,
		"https://bücher.example/users/bob": true, "malice@bücher.example": false, "alice@bücher.example.org": false,
	} {
		if got := mentions(text, names); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}

// said is a message of a sender that ended. The evidence of a verified one vouches for the address.
func said(id, principal, address, text string, verified bool) exchange.TurnRecord {
	turn := exchange.TurnRecord{
		ID: newRowID(), Agent: "echo", Principal: principal, ThreadID: "thread", State: exchange.StateAnswered, AcceptedAt: time.Now(), UpdatedAt: time.Now(),
		Channel: normalized.ViaEmail, Route: json.RawMessage(`{"v":1,"subject":"` + text + `"}`),
		Message: normalized.Message{
			ID: id, ThreadID: "thread", Recipient: "@echo@inbox.example", ReceivedVia: normalized.ViaEmail, ReceivedAt: identity.At(time.Now()),
			Sender:                normalized.Sender{Address: identity.Stated(address), AuthMethod: normalized.AuthNone, Verified: verified},
			Parts:                 []normalized.Part{normalized.Text(text)},
			RecipientCapabilities: normalized.RecipientCapabilities{MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}},
		},
	}
	if verified {
		turn.Message.Sender.Identities = []identity.Evidence{provenBy(principal, address)}
	}
	return turn
}

// provenBy is evidence that makes a principal: that of our own transport, with the address that WebFinger confirmed; empty = none.
func provenBy(principal, account string) identity.Evidence {
	issuer, subject, _ := strings.Cut(principal, " ")
	method := identity.MethodActivityPubSignature
	if strings.HasPrefix(subject, "mailto:") {
		method = identity.MethodEmailDMARC
	}
	proof := identity.Transport(identity.TransportProof{
		Domain: issuer, Subject: subject, Method: method, Recipient: "@echo@inbox.example", Addressed: identity.AddressedRequest, IssuedAt: time.Now(),
	})
	if account != "" {
		proof.Claims = json.RawMessage(`{"account":"` + account + `"}`)
	}
	return proof
}

// saidBy stores one.
func saidBy(t *testing.T, s *Store, id, principal, address, text string, verified bool) string {
	t.Helper()
	turn := said(id, principal, address, text, verified)
	err := s.InTx(t.Context(), func(tx *Tx) error {
		_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{Digest: strings.Repeat(string("abc"[len(principal)%3]), 64), MediaType: "message/rfc822", Body: []byte(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return turn.ID
}

// erasedPerson does all stages that need no other part of the server, as a server does that is killed after each portion.
func erasedPerson(t *testing.T, s *Store, names PersonNames) Receipt {
	t.Helper()
	return erasePerson(t, s, names, func(string) {})
}

// erasePerson also tells before each stage which one it is.
func erasePerson(t testing.TB, s *Store, names PersonNames, tell func(stage string)) Receipt {
	t.Helper()
	begun, err := s.BeginErasure(t.Context(), names, []string{"x"}, "operator")
	if err != nil {
		t.Fatal(err)
	}

	for range 100 {
		e, err := s.Erasure(t.Context(), begun.ID)
		if err != nil {
			t.Fatal(err)
		}
		tell(e.Receipt.Stage)
		if e.Receipt.Stage == EraseDone {
			return e.Receipt
		}
		if err := eraseStage(t.Context(), s, e); err != nil {
			t.Fatalf("stage %s: %v", e.Receipt.Stage, err)
		}
		// The same stage again, as after a crash behind its commit, changes nothing.
		if e.Receipt.Stage == EraseEmpty {
			if err := s.EmptyErased(t.Context(), e); err != nil && !errors.Is(err, errMoved) {
				t.Fatal(err)
			}
		}
	}
	t.Fatal("the erasure does not end")
	return Receipt{}
}

// eraseStage does the stage in which an erasure is; nothing has to be stopped or told.
func eraseStage(ctx context.Context, s *Store, e Erasure) error {
	hash := func(name string) string { return "hash of " + hashKey(name) }
	id := e.Receipt.ID
	switch e.Receipt.Stage {
	case EraseFind:
		return s.FindErased(ctx, e)
	case EraseStop:
		return s.EndStage(ctx, id, EraseStop, EraseEmpty, nil)
	case EraseEmpty:
		return s.EmptyErased(ctx, e)
	case EraseDerived:
		return s.DeriveErased(ctx, e)
	case EraseTell:
		return s.EndStage(ctx, id, EraseTell, EraseNames, nil)
	case EraseNames:
		return s.EraseNames(ctx, e, hash)
	case EraseRemove:
		return s.RemoveErased(ctx, e, hash("person"))
	case EraseContents:
		return errors.Join(s.DropOriginals(ctx), s.EndStage(ctx, id, EraseContents, EraseClean, nil))
	}

	remains, err := s.CleanErased(ctx, id)
	if err != nil {
		return err
	}
	return s.EndStage(ctx, id, EraseClean, EraseDone, nil, remains...)
}

// TestErasedPersonIsNowhere: what a person said and is called is in no row and in no byte of SQLite's files, others keep what is theirs, and an
// address that takes no mail is known by its hash alone.
func TestErasedPersonIsNowhere(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s := open(t)
		ctx := t.Context()
		const secret = "zyxmarkerwvu"
		const principal, address = "peer.example https://peer.example/users/bob", "@bob@peer.example"
		// rows that went before: their bytes stand in free places unless they are overwritten
		if err := s.State().Put(ctx, "scratch", "a", []byte(strings.Repeat(secret, 5000)), time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := s.State().Delete(ctx, "scratch", "a"); err != nil {
			t.Fatal(err)
		}

		for range 60 {
			saidBy(t, s, newRowID(), principal, address, secret+strings.Repeat(" long", 3000), true)
		}
		unproven := saidBy(t, s, newRowID(), "unverified "+address, address, secret, false)
		other := saidBy(t, s, newRowID(), "peer.example https://peer.example/users/bobby", "@bobby@peer.example", "another", true)
		failures := []error{
			s.State().Put(ctx, "activitypub.actor", "https://peer.example/users/bob", []byte(`{"name":"Bob"}`), time.Time{}),
			s.State().Put(ctx, "activitypub.actor", "https://peer.example/users/bobby", []byte(`{"name":"Bobby"}`), time.Time{}),
			s.Audit(ctx, exchange.AuditRecord{ID: newRowID(), At: time.Now(), Code: "access:refused", Agent: "echo", Principal: principal, Detail: "bob@peer.example may not"}),
			s.InTx(ctx, func(tx *Tx) error {
				return tx.PutLink(ctx, exchange.PersonLink{Agent: "echo", Digest: "shown", Sides: [2]exchange.LinkSide{
					{Principal: principal, Address: address}, {Principal: "inbox.example mailto:rob@mail.example", Address: "@rob@mail.example"},
				}})
			}),
			s.PutListEntries(ctx, exchange.ListEntry{ID: newRowID(), List: exchange.ListStop, Kind: exchange.TargetPrincipal, Target: principal, Agent: "echo"}),
		}
		if _, err := s.MailFailed(ctx, exchange.MailFailure{Address: "rob@mail.example", Kind: exchange.FailureComplaint, DeliveryID: "d", Reason: "no rob@mail.example"}); err != nil {
			failures = append(failures, err)
		}
		if _, err := s.AddCounts(ctx, []exchange.Count{{Key: "sender " + principal + " 1h", Amount: 1, Ends: time.Now().Add(time.Hour)}}); err != nil {
			failures = append(failures, err)
		}
		if err := errors.Join(failures...); err != nil {
			t.Fatal(err)
		}

		operated, err := s.Turn(ctx, unproven)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.InTx(ctx, func(tx *Tx) error {
			taken, _, err := tx.BeginTakeover(ctx, exchange.Takeover{ID: newRowID(), Agent: operated.Agent, ThreadID: operated.ThreadID, Holder: "operator:anna", Since: time.Now()})
			if err != nil {
				return err
			}
			taken.EndedAt, taken.Note = time.Now(), secret
			_, err = tx.EndTakeover(ctx, taken)
			return err
		}); err != nil {
			t.Fatal(err)
		}

		theirs, captured, stays := keptMail("rob@mail.example", "A complaint of "+secret, secret), keptMail("echo@inbox.example", "Re: hello", secret), keptMail("bobby@peer.example", "hello", "another")
		captured.Kind, captured.To = exchange.MailCaptured, []string{"rob@mail.example"}
		for _, mail := range []exchange.IncomingMail{theirs, captured, stays} {
			if _, err := keep(t, s, mail, exchange.MailCharge{Accounts: []string{"net"}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.InTx(ctx, func(tx *Tx) error {
			tx.CountNotice(exchange.NoticeHeld, "echo", exchange.NoticeExample{ID: newRowID(), Note: "@bob@peer.example proved nothing"})
			return tx.sql.Do(ctx, `INSERT INTO notices (id, kind, subject, phase, title, text, body, created_at) VALUES ($1, '', '', 'digest', 'One', $2, '{}', $3)`,
				newRowID(), "1 message was held, of bob@peer.example", time.Now().UnixMicro())
		}); err != nil {
			t.Fatal(err)
		}
		index(t, s)
		if found, err := s.Arrivals(ctx, exchange.ArrivalFilter{Text: secret, Limit: 10}); err != nil || len(found.Turns) == 0 {
			t.Fatalf("the words are not in the index: %+v, %v", found, err)
		}

		person, err := s.FindPerson(ctx, PersonQuery{Address: address, Linked: true, Unproven: true})
		names, rob := person.Names, LinkedName{"inbox.example mailto:rob@mail.example", "echo"}
		if err != nil || !slices.Contains(names.Principals, principal) || !slices.Contains(names.Linked, rob) || slices.Contains(names.Addresses, "@bobby@peer.example") {
			t.Fatalf("%+v, %v", names, err)
		}
		names.Principals, names.Addresses, names.Linked = append(names.Principals, rob.Principal), append(names.Addresses, "@rob@mail.example"), nil // the operator names it, too
		inFile := s.engine.Kind() == database.SQLite
		if inFile { // as one of before, in whose free places something may stand
			beside, err := sql.Open("sqlite", sqliteURL(filepath.Join(s.options.DataDir, File)))
			if err == nil {
				_, err = beside.ExecContext(ctx, "PRAGMA user_version = 0")
			}
			if err := errors.Join(err, beside.Close()); err != nil {
				t.Fatal(err)
			}
		}
		receipt := erasedPerson(t, s, names)
		if receipt.Counts["messages"] != 61 || receipt.Counts["links"] != 1 || receipt.EndedAt.IsZero() {
			t.Errorf("receipt %+v", receipt)
		}

		if err := s.indexAll(ctx); err != nil { // what waits for the index brings nothing back
			t.Fatal(err)
		}
		if receipt.Counts["mails to the operator"] != 2 {
			t.Errorf("receipt %+v", receipt)
		}
		if _, err := s.Mail(ctx, stays.ID); err != nil {
			t.Errorf("the mail of another one: %v", err)
		}
		for _, text := range []string{secret, "users/bob\"", "users/bob ", "bob@peer.example", "rob@mail.example"} {
			if found := everywhere(ctx, t, s, text); len(found) != 0 {
				t.Errorf("%q is in %v", text, found)
			}
		}
		if inFile {
			var version int64
			if _, err := first(ctx, s.engine.Reader(), "PRAGMA user_version", nil, &version); err != nil || version != 1 {
				t.Errorf("the file has the version %d, %v: it was not written anew", version, err)
			}
			if found := filesWith(s, secret); len(found) > 0 {
				t.Errorf("%v have the bytes of a removed row", found)
			}
		}
		if _, err := s.Turn(ctx, other); err != nil {
			t.Errorf("the message of another one: %v", err)
		}
		if _, found, err := s.State().Get(ctx, "activitypub.actor", "https://peer.example/users/bobby"); !found || err != nil {
			t.Errorf("the document of another one: %t, %v", found, err)
		}
		if kept, err := s.Suppressed(ctx, []string{ErasedAddress("hash of " + hashKey("rob@mail.example"))}); err != nil || len(kept) != 1 || kept[0].Reason != "" {
			t.Errorf("%+v, %v: the person is written to again", kept, err)
		}
		if again := erasedPerson(t, s, names); again.Counts["messages"] != 0 {
			t.Errorf("a second erasure found %+v", again)
		}
	})
}

// readerOf reads from the database that has a table.
func readerOf(s *Store, table string) querier {
	if table == turnTable || table == mailTable {
		return s.words.Reader()
	}
	return s.engine.Reader()
}

// filesWith lists the files of a SQLite store that have the bytes.
func filesWith(s *Store, text string) (found []string) {
	for _, path := range database.Files(s.options.DataDir) {
		if content, err := os.ReadFile(path); err == nil && strings.Contains(string(content), text) {
			found = append(found, path)
		}
	}
	return found
}

// everywhere lists the tables with a row that has the text.
func everywhere(ctx context.Context, t *testing.T, s *Store, text string) (found []string) {
	t.Helper()
	for table := range migrations.TableRules {
		query := `SELECT CAST(x.* AS TEXT) FROM ` + table + ` x`
		if s.engine.Kind() == database.SQLite {
			var err error
			columns := mustColumn(ctx, readerOf(s, table), &err, `SELECT name FROM pragma_table_info('`+table+`')`)
			if err != nil {
				t.Fatal(err)
			}
			query = `SELECT ` + strings.Join(columns, ` || ' ' || `) + ` FROM ` + table
		}
		err := readerOf(s, table).Each(ctx, query, nil, func(r row) error {
			var whole string
			err := r.Scan(&whole)
			if strings.Contains(strings.ToLower(whole), text) {
				found = append(found, table)
			}
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", table, err)
		}
	}
	return found
}

// TestUsage: rows and bytes of each agent are counted, and a sample of many says nearly the same.
func TestUsage(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s, now := open(t), time.Now()
		for i := range 20 {
			keptTurn(t, s, i, []string{"echo", "helper"}[i%2], strings.Repeat("a", 64), now.Add(-time.Duration(100-i)*time.Hour), now, exchange.StateAnswered, false)
		}
		usage, err := s.Usage(t.Context())
		if err != nil || usage.Estimated || usage.DatabaseBytes == 0 || usage.Rows["turns"] != 20 || len(usage.Agents) != 2 {
			t.Fatalf("%+v, %v", usage, err)
		}
		for _, agent := range usage.Agents {
			if agent.Messages != 10 || agent.MessageBytes == 0 || agent.AnswerBytes == 0 || agent.OriginalBytes != 640 || agent.StepBytes == 0 || agent.Oldest.IsZero() {
				t.Errorf("%+v", agent)
			}
		}
	})
}

// TestErasingAPersonKeepsTheWorkOfOthers: Bob speaks in a thread that is named after Ann. His message, his answer and what is kept for
// them mention her, and are his.
func TestErasingAPersonKeepsTheWorkOfOthers(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s := open(t)
		const ann, bob = "https://a.example https://a.example/users/ann", "https://b.example https://b.example/users/bob"
		const thread = "https://a.example/users/ann/statuses/1"
		hers, his := saidBy(t, s, "m1", ann, "@ann@a.example", "hers", true), saidBy(t, s, "m2", bob, "@bob@b.example", "his", true)
		vouched := provenBy(ann, "@ann@a.example")
		proven := vouched.Proven()
		enqueue := func(kind, partition, payload string) string {
			t.Helper()
			id := newRowID()
			err := s.InTx(t.Context(), func(tx *Tx) error {
				return tx.Enqueue(t.Context(), queue.NewJob{ID: id, Kind: kind, Partition: partition, Payload: payload})
			})
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		put := func(namespace, key, value string) {
			t.Helper()
			if err := s.State().Put(t.Context(), namespace, key, []byte(value), time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}

		of := map[string]string{
			"her message":       enqueue("turn", "turn echo "+thread, hers),
			"his message":       enqueue("turn", "turn echo "+thread, his),
			"news of his reply": enqueue("agent.event", "", `{"turn":"`+his+`","destination":"ann@a.example"}`),
			"a letter to her":   enqueue("letter", "", `{"to":"@ann@a.example"}`),
		}
		if err := s.InTx(t.Context(), func(tx *Tx) error {
			return tx.sql.Do(t.Context(), `UPDATE jobs SET reason = 'ann@a.example does not answer' WHERE id = $1`, of["his message"])
		}); err != nil {
			t.Fatal(err)
		}
		put("email/outgoing", his, "Cc: ann@a.example")
		put("email/outgoing", hers, "To: ann")
		put("agent.memory", "ann@a.example", "likes tea")

		erasedPerson(t, s, PersonNames{Principals: []string{ann}, Addresses: []identity.ProvenAddress{proven}})

		for what, want := range map[string]bool{"her message": false, "his message": true, "news of his reply": true, "a letter to her": false} {
			job, found, err := s.Job(t.Context(), of[what])
			if err != nil || found != want || strings.Contains(job.Reason, "ann@a.example") {
				t.Errorf("work for %s: there %v (%v), want %v, reason %q", what, found, err, want, job.Reason)
			}
		}
		for key, want := range map[string]bool{his: true, hers: false} {
			if _, found, err := s.State().Get(t.Context(), "email/outgoing", key); err != nil || found != want {
				t.Errorf("document of %s: there %v, %v", key, found, err)
			}
		}
	})
}

// TestSubjectsAreNotPartsOfAddresses: the address of a server, which is the subject of an agent, is not named by the addresses of others there.
func TestSubjectsAreNotPartsOfAddresses(t *testing.T) {
	names := []string{"https://agent.example", "bob@x.example"}
	for text, named := range map[string]bool{
		"https://agent.example": true, "by HTTPS://Agent.Example/ it said": true, `"https://agent.example"`: true, "see https://agent.example.": true, "https://agent.example?": true,
		"https://agent.example/users/eve": false, "https://agent.example/?q=1": false, "https://agent.example:8443/x": false, "https://agent.example#eve": false,
		"https://agent.example.org": false, "https://agent.example/%7Eeve": false, "https://agent.example//x": false,
		"bob@x.example/phone": true, "jimbob@x.example": false,
	} {
		if got := mentions(text, names); got != named {
			t.Errorf("%s: named %v", text, got)
		}
	}
	patterns := []*regexp.Regexp{regexp.MustCompile(`(?i)https://agent\.example`), regexp.MustCompile(`(?i)bob@x\.example`)}
	const before, after = "https://agent.example/users/eve asked HTTPS://AGENT.example and Bob@x.example", "https://agent.example/users/eve asked X and X"
	if got := replaceMentions(before, patterns, names, "X"); got != after {
		t.Errorf("replaced to %q", got)
	}
}
