package e2e

import (
	"context"
	"strings"
	"sync"
	"testing"

	"inbox/e2e/instance"
	"inbox/internal/await"
	"inbox/internal/peer"
	"inbox/normalized"
)

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
