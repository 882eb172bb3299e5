package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
	"inbox/internal/peer"
	"inbox/normalized"
)

const public = "https://www.w3.org/ns/activitystreams#Public"

// list is a JSON-LD value that may be one or many.
type list []string

func (l *list) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*l = list{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(l))
}

type noteActivity struct {
	ID, Type, Actor string
	To, Cc          list
	Object          struct {
		ID, Type, Content, InReplyTo, AttributedTo string
		To, Cc                                     list
		Tag                                        json.RawMessage
	}
}

func readNote(t *testing.T, arrival arrived) noteActivity {
	t.Helper()
	var activity noteActivity
	if err := json.Unmarshal(arrival.Activity, &activity); err != nil {
		t.Fatalf("reply %s: %v", arrival.Activity, err)
	}
	return activity
}

func mentions(t *testing.T, note noteActivity) []string {
	t.Helper()
	type tag struct{ Type, Href string }
	var many []tag
	if json.Unmarshal(note.Object.Tag, &many) != nil {
		var one tag
		if err := json.Unmarshal(note.Object.Tag, &one); err != nil {
			t.Fatalf("tag %s: %v", note.Object.Tag, err)
		}
		many = []tag{one}
	}
	var hrefs []string
	for _, one := range many {
		if one.Type == "Mention" {
			hrefs = append(hrefs, one.Href)
		}
	}
	return hrefs
}

func answers(note string) func(arrived) bool {
	return func(a arrived) bool {
		return strings.Contains(string(a.Activity), `"inReplyTo"`) && strings.Contains(string(a.Activity), note)
	}
}

// TestFedifyMentionsTheAgentAndVerifiesTheReply: a Fedify server finds the agent, mentions it in four visibilities and verifies each reply.
func TestFedifyMentionsTheAgentAndVerifiesTheReply(t *testing.T) {
	t.Parallel()
	peer := startFedify(t)
	onDatabasesInTurn(t, func(t *testing.T, database string) {
		s := start(t, peer.network.settings(t, instance.Settings{Database: database}))
		handle := "@echo@" + s.Settings.Public

		var actor struct{ ID, Type string }
		peer.post("/resolve", map[string]string{"handle": handle}, &actor)
		if actor.ID != s.Actor("echo") {
			t.Errorf("Fedify found the actor %q behind %s; want %q", actor.ID, handle, s.Actor("echo"))
		}

		for _, visibility := range []string{"public", "unlisted", "followers", "direct"} {
			t.Run(visibility, func(t *testing.T) {
				question := peer.mention(handle, visibility, "how are you, "+visibility+"?")
				arrival := peer.await("the reply to "+question.Note, answers(question.Note))
				checkReply(t, peer, s, question, arrival, visibility)
			})
		}
	})
}

func checkReply(t *testing.T, peer *fedify, s *server, question sent, arrival arrived, visibility string) {
	t.Helper()
	if !arrival.Verified || !arrival.Accepted || arrival.Owner != s.Actor("echo") {
		t.Errorf("Fedify did not take the reply: verified %v by %q, accepted %v, status %d, reason %s",
			arrival.Verified, arrival.Owner, arrival.Accepted, arrival.Status, arrival.Reason)
	}
	reply := readNote(t, arrival)
	if reply.Type != "Create" || reply.Object.Type != "Note" || reply.Actor != s.Actor("echo") || reply.Object.AttributedTo != reply.Actor {
		t.Errorf("the reply is no note of the agent: %s", arrival.Activity)
	}
	if reply.Object.InReplyTo != question.Note {
		t.Errorf("inReplyTo is %q; want %q", reply.Object.InReplyTo, question.Note)
	}
	if !slices.Contains(mentions(t, reply), peer.Actor) {
		t.Errorf("the reply does not mention %s: %s", peer.Actor, reply.Object.Tag)
	}
	if !strings.Contains(reply.Object.Content, "how are you, "+visibility) {
		t.Errorf("the echo lost the text: %q", reply.Object.Content)
	}
	if !cmp.Equal(reply.To, reply.Object.To) || !cmp.Equal(reply.Cc, reply.Object.Cc) {
		t.Errorf("activity and note are addressed differently: %s", arrival.Activity)
	}
	addressed := slices.Concat(reply.To, reply.Cc)
	if !slices.Contains(addressed, peer.Actor) {
		t.Errorf("the person is not addressed: to %v cc %v", reply.To, reply.Cc)
	}
	mayBePublic := visibility == "public" || visibility == "unlisted"
	if slices.Contains(addressed, public) != mayBePublic || (visibility != "public" && slices.Contains(reply.To, public)) {
		t.Errorf("the reply to a %s note is wider or narrower than it should be: to %v cc %v", visibility, reply.To, reply.Cc)
	}
}

// TestFedifyFollowsTheAgent: a person on a Fedify server follows the agent and hears Accept.
func TestFedifyFollowsTheAgent(t *testing.T) {
	t.Parallel()
	peer := startFedify(t)
	s := start(t, peer.network.settings(t, instance.Settings{}))
	var follow sent
	peer.post("/follow", map[string]string{"to": s.Actor("echo")}, &follow)
	arrival := peer.await("the Accept", func(a arrived) bool { return strings.Contains(string(a.Activity), `"Accept"`) })
	if !arrival.Verified || !arrival.Accepted || arrival.Owner != s.Actor("echo") {
		t.Errorf("Fedify did not take the Accept: %+v", arrival)
	}
	if !strings.Contains(string(arrival.Activity), follow.Activity) {
		t.Errorf("the Accept does not name the Follow %s: %s", follow.Activity, arrival.Activity)
	}
}

// TestFedifyUnderstandsOurSenders checks the tools of the tests: what the load senders sign, outside software accepts.
func TestFedifyUnderstandsOurSenders(t *testing.T) {
	t.Parallel()
	peer := startFedify(t)
	community := newCommunity(t, 1, func(load.Arrival) {})
	person := community.Persons[0]
	mention := person.Mention(peer.Actor, "1", "hello")
	request, err := person.Delivery(peer.Actor+"/inbox", mention.Body, load.Signature{})
	if err != nil {
		t.Fatal(err)
	}
	if status := do(t, request); status != http.StatusAccepted {
		t.Errorf("Fedify answered %d", status)
	}
	arrival := peer.await("our note", func(a arrived) bool { return a.Path == "/users/alice/inbox" })
	if !arrival.Verified || !arrival.Accepted || arrival.Owner != person.ID {
		t.Errorf("Fedify did not take the note: %+v", arrival)
	}
}

func newCommunity(t *testing.T, persons int, arrived func(load.Arrival)) *load.Community {
	t.Helper()
	community, err := load.NewCommunity("127.0.0.1:0", persons, arrived)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(community.Close)
	return community
}

func do(t *testing.T, request *http.Request) int {
	t.Helper()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}

func TestForgedDeliveriesAreRefusedAndLeaveNoRow(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		arrivals := make(chan load.Arrival, 16)
		community := newCommunity(t, 2, func(a load.Arrival) { arrivals <- a })
		s := start(t, instance.Settings{Database: database})
		inbox := s.Actor("echo") + "/inbox"

		before := s.rows()
		for name, forge := range forgeries(t, community, s.Actor("echo")) {
			t.Run(name, func(t *testing.T) {
				if status := do(t, forge(inbox)); status != http.StatusUnauthorized {
					t.Errorf("answered %d; want 401", status)
				}
				if difference := cmp.Diff(before, s.rows()); difference != "" {
					t.Errorf("something was stored (-before +after):\n%s", difference)
				}
			})
		}

		// The same sender, honestly: what was refused was refused for the forgery and not for anything else.
		mention := community.Persons[0].Mention(s.Actor("echo"), "honest", "hello")
		if status := do(t, delivery(t, community.Persons[0], inbox, mention, load.Signature{})); status != http.StatusAccepted {
			t.Errorf("an honest delivery was answered %d; want 202", status)
		}
		select {
		case arrival := <-arrivals:
			if arrival.InReplyTo != mention.NoteID {
				t.Errorf("a reply to %q arrived; want %q", arrival.InReplyTo, mention.NoteID)
			}
		case <-time.After(patience):
			t.Error("no reply to an honest delivery")
		}
	})
}

func delivery(t *testing.T, person load.Person, inbox string, mention load.Mention, how load.Signature) *http.Request {
	t.Helper()
	request, err := person.Delivery(inbox, mention.Body, how)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// forgeries returns requests that each break one promise of a signed delivery.
func forgeries(t *testing.T, community *load.Community, agent string) map[string]func(inbox string) *http.Request {
	honest, other := community.Persons[0], community.Persons[1]
	signed := func(key string, how load.Signature) func(string) *http.Request {
		return func(inbox string) *http.Request {
			return delivery(t, honest, inbox, honest.Mention(agent, key, "hello"), how)
		}
	}
	changed := func(key string, change func(*http.Request)) func(string) *http.Request {
		return func(inbox string) *http.Request {
			request := signed(key, load.Signature{})(inbox)
			change(request)
			return request
		}
	}
	return map[string]func(string) *http.Request{
		"tampered body": func(inbox string) *http.Request {
			request := signed("tampered", load.Signature{})(inbox)
			tampered := delivery(t, honest, inbox, honest.Mention(agent, "tampered", "obey me"), load.Signature{})
			request.Body, request.ContentLength, request.GetBody = tampered.Body, tampered.ContentLength, tampered.GetBody
			return request
		},
		"tampered body with its digest": func(inbox string) *http.Request {
			request := delivery(t, honest, inbox, honest.Mention(agent, "digest", "obey me"), load.Signature{})
			request.Header.Set("Signature", signed("digest", load.Signature{})(inbox).Header.Get("Signature"))
			return request
		},
		"wrong key":      signed("wrong-key", load.Signature{Key: other.Key}),
		"key of another": signed("other", load.Signature{Key: other.Key, KeyID: other.KeyID()}),
		"two days old":   signed("old", load.Signature{Date: time.Now().Add(-48 * time.Hour)}),
		"two days ahead": signed("ahead", load.Signature{Date: time.Now().Add(48 * time.Hour)}),
		"no signature":   changed("unsigned", func(r *http.Request) { r.Header.Del("Signature") }),
		"date moved": changed("moved", func(r *http.Request) {
			r.Header.Set("Date", time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat))
		}),
		"digest left out": changed("no-digest", func(r *http.Request) { r.Header.Del("Digest") }),
		"signature of garbage": changed("garbage", func(r *http.Request) {
			r.Header.Set("Signature", `keyId="`+honest.KeyID()+`",headers="(request-target) host date digest",signature="AAAA"`)
		}),
	}
}

// TestServersWithHabits: servers that are particular about what they take get their answers all the same. What they
// are like is written in internal/peer; each verifies the answer by its own means.
func TestServersWithHabits(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		held, release := make(chan struct{}, 1), make(chan struct{})
		letGo := sync.OnceFunc(func() { close(release) })
		agent := startScripted(t, func(message normalized.Message) normalized.Response {
			if strings.Contains(textOf(message.Parts), "take your time") {
				held <- struct{}{}
				<-release
			}
			return heard(message)
		})
		t.Cleanup(letGo) // the agent's server waits for it
		s := start(t, instance.Settings{Database: database, Agents: agent.table("memory", "")})
		for name, options := range map[string]peer.FediverseOptions{
			"draft-cavage alone":           {User: "ann"},
			"RFC 9421 alone":               {User: "ben", Scheme: peer.SchemeRFC9421},
			"GoToSocial":                   {User: "cat", GoToSocial: true},
			"GoToSocial's, RFC 9421 alone": {User: "dan", GoToSocial: true, Scheme: peer.SchemeRFC9421},
		} {
			t.Run(name, func(t *testing.T) {
				f := startPeer(t, options)
				for _, question := range []string{"hello", "and again"} {
					askPeer(t, f, s, question)
				}
				if proven, _ := f.Reads(); options.GoToSocial && proven == 0 {
					t.Error("nothing was read with a signature")
				}
			})
		}
		t.Run("down for a while", func(t *testing.T) {
			f := startPeer(t, peer.FediverseOptions{User: "eve", Listen: freeAddress(t)}) // a port that no client gets while it is down
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				askPeer(t, f, s, "take your time")
			}()
			await.Receive(t, held, "the agent to be asked")
			if err := f.Down(); err != nil {
				t.Error(err)
			}
			letGo()
			s.awaitState("retry")
			if err := f.Up(); err != nil {
				t.Error(err)
			}
			await.Receive(t, answered, "the answer at the peer")
			s.awaitState("")
		})
	})
}

func startPeer(t *testing.T, options peer.FediverseOptions) *peer.Fediverse {
	t.Helper()
	f, err := peer.NewFediverse(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// askPeer lets the peer ask and checks the words of the answer; everything else about it the peer checked.
func askPeer(t *testing.T, f *peer.Fediverse, s *server, question string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	address := "@memory@" + strings.TrimPrefix(s.URL(), "http://")
	conversation, err := f.Ask(ctx, s.URL(), address, question)
	if err != nil {
		t.Error(err)
		return
	}
	if conversation.Answer != "I heard: "+question {
		t.Errorf("answered %q", conversation.Answer)
	}
}

// awaitState waits until a delivery is in the state, or, with none, until all are delivered.
func (s *server) awaitState(state string) {
	s.t.Helper()
	query, wanted := "SELECT id FROM deliveries WHERE state = '"+state+"'", "a delivery in state "+state
	if state == "" {
		query, wanted = "SELECT id FROM deliveries WHERE state <> 'delivered'", "all deliveries are done"
	}
	eventually(s.t, wanted, func() bool {
		found, err := s.Column(s.t.Context(), query)
		return err == nil && (len(found) == 0) == (state == "")
	})
}
