package storetest

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/fault"
)

// Sessions is what our own surfaces need to keep conversations.
type Sessions interface {
	CreateSession(ctx context.Context, session exchange.Session) (exchange.Session, bool, error)
	Session(ctx context.Context, owner, id string) (exchange.Session, bool, error)
	Sessions(ctx context.Context, filter exchange.SessionFilter) ([]exchange.Session, error)
	RenameSession(ctx context.Context, owner, id, title string) error
	TouchSession(ctx context.Context, owner, id string, at time.Time) error
	DeleteSession(ctx context.Context, owner, id string) error
	ChannelSession(ctx context.Context, key contract.SessionKey, fresh exchange.Session) (exchange.Session, error)
	ImportSession(ctx context.Context, session exchange.Session, messages []string) (exchange.Session, bool, error)
	Transcript(ctx context.Context, owner, id string) ([]string, error)
	ForgetThread(ctx context.Context, agent, threadID string) (turns int, err error)
	TurnOf(ctx context.Context, principal, nativeID string) (exchange.TurnRecord, error)
}

var sessionCases = map[string]func(*testing.T, *probe){
	"belong to their owner":               sessionsOfOwner,
	"are listed by their update":          sessionsListed,
	"are found by their conversation":     sessionsOfChannel,
	"keep what was said elsewhere":        sessionsImported,
	"give back whatever was imported":     sessionsGiveBack,
	"begin once for one conversation":     sessionsBeginOnce,
	"go with what was imported in them":   sessionsDeleted,
	"refuse ids that nothing can store":   sessionsRefused,
	"give way to another when they ended": sessionsBeginAgain,
	"go with what was said in them":       sessionsForgotten,
	"leave turns to be found by message":  sessionsTurnOf,
}

func (p *probe) session(owner, id string) exchange.Session {
	p.now = p.now.Add(time.Millisecond)
	return exchange.Session{ID: id, Owner: owner, Agent: "echo", ThreadID: "session " + newID(), Title: "about " + id, CreatedAt: p.now, UpdatedAt: p.now}
}

func (p *probe) create(session exchange.Session) {
	p.Helper()
	if _, created, err := p.Sessions.CreateSession(p.Context(), session); err != nil || !created {
		p.Fatalf("session %s: created %v, %v", session.ID, created, err)
	}
}

func sessionsOfOwner(t *testing.T, p *probe) {
	mine, theirs := p.session("me", "s1"), p.session("them", "s1")
	p.create(mine)
	p.create(theirs)

	if stored, created, err := p.Sessions.CreateSession(t.Context(), p.session("me", "s1")); err != nil || created || stored.ThreadID != mine.ThreadID {
		t.Errorf("created again %v, %v: %+v", created, err, stored)
	}

	for owner, want := range map[string]exchange.Session{"me": mine, "them": theirs} {
		got, found, err := p.Sessions.Session(t.Context(), owner, "s1")
		if p.ok(err); !found || got != want {
			t.Errorf("session of %s: %v, %+v", owner, found, got)
		}
	}

	p.missing(p.Sessions.RenameSession(t.Context(), "nobody", "s1", "x"))
	p.missing(p.Sessions.DeleteSession(t.Context(), "nobody", "s1"))
	p.ok(p.Sessions.TouchSession(t.Context(), "nobody", "s1", p.now))
	p.ok(p.Sessions.RenameSession(t.Context(), "me", "s1", "renamed"))

	if got, _, err := p.Sessions.Session(t.Context(), "me", "s1"); err != nil || got.Title != "renamed" {
		t.Errorf("title %q, %v", got.Title, err)
	}
	if got, _, err := p.Sessions.Session(t.Context(), "them", "s1"); err != nil || got.Title != theirs.Title {
		t.Errorf("title of the other %q, %v", got.Title, err)
	}
}

func sessionsListed(t *testing.T, p *probe) {
	for _, id := range []string{"s1", "s2", "s3"} {
		p.create(p.session("me", id))
	}

	other := p.session("me", "s4")
	other.Agent = "helper"
	p.create(other)
	p.create(p.session("them", "s5"))
	p.now = p.now.Add(time.Second)
	p.ok(p.Sessions.TouchSession(t.Context(), "me", "s1", p.now))
	list := func(filter exchange.SessionFilter, want ...string) []exchange.Session {
		t.Helper()
		found, err := p.Sessions.Sessions(t.Context(), filter)
		p.ok(err)
		got := []string{}
		for _, one := range found {
			got = append(got, one.ID)
		}
		p.same(want, got)
		return found
	}

	list(exchange.SessionFilter{Owner: "me"}, "s1", "s4", "s3", "s2")
	list(exchange.SessionFilter{Owner: "me", Agent: "echo"}, "s1", "s3", "s2")
	list(exchange.SessionFilter{Owner: exchange.AnyOwner, Limit: 2}, "s1", "s5")
	page := list(exchange.SessionFilter{Owner: "me", Limit: 2}, "s1", "s4")
	list(exchange.SessionFilter{Owner: "me", Before: page[1].Cursor()}, "s3", "s2")

	if _, err := p.Sessions.Sessions(t.Context(), exchange.SessionFilter{Owner: "me", Before: "x"}); !fault.Is(err, fault.Malformed) {
		t.Errorf("a cursor that is none: %v", err)
	}
}

func sessionsOfChannel(t *testing.T, p *probe) {
	key := contract.NewSessionKey("slack", "C1", "echo")
	first := p.session("me", "s1")
	for _, fresh := range []exchange.Session{first, p.session("me", "s2")} {
		got, err := p.Sessions.ChannelSession(t.Context(), key, fresh)
		if p.ok(err); got.ThreadID != first.ThreadID {
			t.Errorf("session %s", got.ID)
		}
	}

	for _, k := range []contract.SessionKey{contract.NewSessionKey("slack", "c1", "echo"), contract.NewSessionKey("mattermost", "C1", "echo")} {
		fresh := p.session("me", "other "+k.Connector)
		got, err := p.Sessions.ChannelSession(t.Context(), k, fresh)
		if p.ok(err); got.ThreadID != fresh.ThreadID {
			t.Errorf("%v has session %s", k, got.ID)
		}
	}

	if got, err := p.Sessions.ChannelSession(t.Context(), key, p.session("them", "s9")); err != nil || got.ID != "s9" {
		t.Errorf("another owner has session %s, %v", got.ID, err)
	}
}

func sessionsBeginOnce(t *testing.T, p *probe) {
	key, threads := contract.NewSessionKey("slack", "C1", "echo"), make(chan string, 8)
	for i := range cap(threads) {
		fresh := p.session("me", "s"+string(rune('a'+i)))
		go func() {
			session, err := p.Sessions.ChannelSession(t.Context(), key, fresh)
			if err != nil {
				t.Error(err)
			}
			threads <- session.ThreadID
		}()
	}

	seen := map[string]bool{}
	for range cap(threads) {
		seen[<-threads] = true
	}

	if len(seen) != 1 {
		t.Errorf("one conversation has %d threads", len(seen))
	}
}

func sessionsBeginAgain(t *testing.T, p *probe) {
	key := contract.NewSessionKey("slack", "C1", "echo")
	_, err := p.Sessions.ChannelSession(t.Context(), key, p.session("me", "s1"))
	p.ok(err)
	p.ok(p.Sessions.DeleteSession(t.Context(), "me", "s1"))

	if _, found, err := p.Sessions.Session(t.Context(), "me", "s1"); found || err != nil {
		t.Errorf("a deleted session is found %v, %v", found, err)
	}
	if got, err := p.Sessions.ChannelSession(t.Context(), key, p.session("me", "s2")); err != nil || got.ID != "s2" {
		t.Errorf("the conversation goes on in %q, %v", got.ID, err)
	}
}

func sessionsImported(t *testing.T, p *probe) {
	session, messages := p.session("me", "s1"), []string{`{"type":"user_message","content":"a"}`, `{"type":"assistant_message","content":"b"}`}
	for i, want := range []bool{true, false} {
		stored, created, err := p.Sessions.ImportSession(t.Context(), session, messages)
		if p.ok(err); created != want || stored.Imported != 2 {
			t.Errorf("import %d: created %v, %d messages", i+1, created, stored.Imported)
		}
	}

	if _, _, err := p.Sessions.ImportSession(t.Context(), session, messages[:1]); !fault.Is(err, fault.Conflict) {
		t.Errorf("other messages in the same session: %v", err)
	}

	got, err := p.Sessions.Transcript(t.Context(), "me", "s1")
	p.ok(err)
	p.same(messages, got)

	if got, err := p.Sessions.Transcript(t.Context(), "them", "s1"); len(got) > 0 || err != nil {
		t.Errorf("somebody else reads %v, %v", got, err)
	}
}

// sessionsGiveBack is export after import: whatever messages came are there, byte for byte, in order.
func sessionsGiveBack(t *testing.T, p *probe) {
	rapid.Check(t, func(r *rapid.T) {
		messages := rapid.SliceOfN(rapid.Map(rapid.MapOf(rapid.String(), rapid.String()), func(members map[string]string) string {
			encoded, _ := json.Marshal(members) // strings only: cannot fail
			return string(encoded)
		}), 1, 8).Draw(r, "messages")

		session := p.session("me", newID())
		if _, created, err := p.Sessions.ImportSession(t.Context(), session, messages); err != nil || !created {
			r.Fatalf("created %v, %v", created, err)
		}

		got, err := p.Sessions.Transcript(t.Context(), "me", session.ID)
		if err != nil || !slices.Equal(got, messages) {
			r.Fatalf("got %q, %v; want %q", got, err, messages)
		}
	})
}

func sessionsDeleted(t *testing.T, p *probe) {
	session := p.session("me", "s1")
	_, _, err := p.Sessions.ImportSession(t.Context(), session, []string{`{"n":1}`})
	p.ok(err)
	p.ok(p.Sessions.DeleteSession(t.Context(), "me", "s1"))
	if got, err := p.Sessions.Transcript(t.Context(), "me", "s1"); len(got) > 0 || err != nil {
		t.Errorf("%v stayed, %v", got, err)
	}
}

func sessionsRefused(t *testing.T, p *probe) {
	for _, id := range []string{"", "a\x00", string(make([]byte, 300))} {
		if _, _, err := p.Sessions.CreateSession(t.Context(), p.session("me", id)); !fault.Is(err, fault.Malformed) {
			t.Errorf("session %q: %v", id, err)
		}
	}
}
