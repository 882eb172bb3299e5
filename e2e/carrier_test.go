package e2e

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/identity"
	"inbox/normalized"
)

// TestPeopleOfAConnectorAreNotOnePerson: a connector calls with one token for two people, in one context, of an agent whose history
// follows the person. Neither is told what the other said, be their evidence good, used up or expired.
func TestPeopleOfAConnectorAreNotOnePerson(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		connector := startConnector(t)
		agent := startScripted(t, func(normalized.Message) normalized.Response { return say("noted") })
		s := start(t, instance.Settings{Database: database, Agents: agent.table("helper", `history = "person"`), More: fmt.Sprintf(
			"[[trust]]\nissuer = %q\nmethods = [%q]\nassurance = [\"platform\"]\nsubject_prefixes = [\"slack:T123/\"]\n", connector.Issuer, slackMethod)})
		peer := s.a2aPeer("helper", "connector")
		address := "@helper@" + s.Settings.HTTP
		of := func(subject string, at time.Time) identity.Evidence {
			signed, err := identity.Sign(identity.Evidence{
				Subject: subject, Method: slackMethod, Assurance: identity.AssurancePlatform, Audience: identity.Audience{address},
			}, connector.key, at)
			if err != nil {
				t.Fatal(err)
			}
			return signed
		}
		said := func(id string, evidence ...identity.Evidence) int {
			t.Helper()
			body := evidenceBody(t, id, map[string]any{"identity_evidence": evidence})
			body = bytes.Replace(body, []byte(`"messageId"`), []byte(`"contextId":"general","messageId"`), 1)
			if task, err := peer.Send(t.Context(), body); err != nil || task.Status.State != completed {
				t.Fatalf("%s did not go on: %s, %v", id, task.Status.State, err)
			}
			return len(agent.last(t).History)
		}

		now, past := time.Now(), time.Now().Add(-time.Hour)
		ann, eve := "slack:T123/ann", "slack:T123/eve"
		used := of(ann, now)
		for _, one := range []struct {
			id       string
			evidence []identity.Evidence
			history  int // messages and answers that are told
		}{
			{"ann 1", []identity.Evidence{used}, 0},
			{"eve 1", []identity.Evidence{of(eve, now)}, 0},
			{"ann 2", []identity.Evidence{of(ann, now)}, 2},
			{"eve, expired", []identity.Evidence{of(eve, past)}, 0},
			{"ann, expired", []identity.Evidence{of(ann, past)}, 0},
			{"eve with ann's", []identity.Evidence{of(eve, now), of(ann, now)}, 0},
			{"eve 2", []identity.Evidence{of(eve, now)}, 2},
			{"ann 3", []identity.Evidence{of(ann, now)}, 4},
		} {
			if got := said(one.id, one.evidence...); got != one.history {
				t.Errorf("%s is told %d turns, want %d", one.id, got, one.history)
			}
		}

		before := len(agent.questions())
		if said("ann 1", used); len(agent.questions()) != before {
			t.Error("the repeat of a message with the evidence of its first copy ran again")
		}
	})
}
