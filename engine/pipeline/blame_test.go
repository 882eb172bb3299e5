package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/engine/moderation"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

// reachable is a back end that can be looked for without a message.
type reachable struct{ *backEnd }

func (r reachable) Reach(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(r.failure, upstream.ErrDown) {
		return r.failure
	}
	return nil
}

// ofDomain makes a mail of somebody at a domain of their own.
func ofDomain(domain, id string) exchange.Inbound {
	in := by(normalized.ViaEmail, "ana", id, id)
	in.Message.Sender.Address = identity.Stated("@ana@" + domain)
	in.Message.Sender.Identities = []identity.Evidence{identity.Transport(identity.TransportProof{
		Addressed: identity.AddressedRequest, Domain: "inbox.test", Subject: "mailto:ana@" + domain, Method: identity.MethodEmailDMARC,
		Assurance: identity.AssuranceDomain, Recipient: in.Message.Recipient, KeyID: "s1", IssuedAt: time.Now(),
	})}
	return in
}

// unproven makes a mail that nothing proves.
func unproven(domain, network, id string) exchange.Inbound {
	in := ofDomain(domain, id)
	in.Message.Sender.Identities, in.Message.Sender.Verified, in.Message.Sender.AuthMethod = nil, false, normalized.AuthNone
	in.Client = netip.MustParseAddr(network)
	return in
}

func withNetworks(r *outageRig) { r.networks = moderation.NewNetworks([]byte("key")) }

// failuresOfAMessage are those that a message may cause.
func failuresOfAMessage() map[string]error {
	cause := errors.New("it does not like this message")
	list := map[string]error{"cut": fault.RetryIn(0, upstream.Unreachable, errors.New("unexpected EOF"))}
	for _, status := range []int{408, 425, 429, 500, 502, 503, 504} {
		list[http.StatusText(status)] = upstream.Status(status, 0, cause)
	}
	list["503 with a long pause"] = upstream.Status(503, time.Hour, cause)
	return list
}

// TestMessagesThatFailStopNobody: forged mails make the program fail, or those of callers with a proof, and messages of others are answered
// at once, before and after.
func TestMessagesThatFailStopNobody(t *testing.T) {
	attackers := map[string]func(i int) exchange.Inbound{
		"three forged senders": func(i int) exchange.Inbound {
			return unproven(fmt.Sprintf("forged%d.example", i%3), "192.0.2.1", fmt.Sprintf("poison%d", i))
		},
		"many networks": func(i int) exchange.Inbound {
			return unproven(fmt.Sprintf("forged%d.example", i), fmt.Sprintf("192.0.%d.1", i), fmt.Sprintf("poison%d", i))
		},
		"one person": func(i int) exchange.Inbound { return ofDomain("mallory.example", fmt.Sprintf("poison%d", i)) },
		"people of one domain": func(i int) exchange.Inbound {
			return by(normalized.ViaEmail, fmt.Sprintf("mallory%d", i), fmt.Sprintf("poison%d", i), fmt.Sprintf("poison%d", i))
		},
		"many domains": func(i int) exchange.Inbound {
			return ofDomain(fmt.Sprintf("mallory%d.example", i), fmt.Sprintf("poison%d", i))
		},
	}
	for attack, message := range attackers {
		for name, failure := range failuresOfAMessage() {
			if attack != "three forged senders" && name != "cut" && name != "503 with a long pause" {
				continue // the statuses are counted alike
			}
			t.Run(attack+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					program := &backEnd{poison: "poison", poisoned: failure}
					r := startOutage(t, "sqlite", program, agents.Settings{Unverified: agents.UnverifiedAnswer}, withNetworks)
					var bad []string
					for i := range 30 {
						bad = append(bad, r.receive(t, message(i)).TurnID)
					}
					pass(time.Second)
					for i := range 15 {
						began := time.Now()
						id := r.receive(t, ofDomain(fmt.Sprintf("honest%d.example", i), fmt.Sprintf("honest%d", i))).TurnID
						if turn := r.settled(t, id); turn.State != exchange.StateAnswered || time.Since(began) > time.Second {
							t.Fatalf("honest message %d is %s after %s", i, turn.State, time.Since(began))
						}
						pass(4 * time.Second)
					}
					if name == "Internal Server Error" || name == "cut" { // others were answered: it is the messages' fault
						pass(10 * time.Minute)
						for _, id := range bad {
							if turn := r.turn(id); turn.State != exchange.StateFailed {
								t.Fatalf("a message that makes the program fail is %s", turn.State)
							}
						}
					}
					r.stop()
				})
			})
		}
	}
}

// TestBacklogGoesWhenTheProgramIsBack: however long its time limit is, within twenty seconds and in the order of each sender.
func TestBacklogGoesWhenTheProgramIsBack(t *testing.T) {
	for outage, senders := range map[time.Duration]int{20 * time.Second: 20, 8 * time.Minute: 5, time.Hour: 1} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				program := &backEnd{failure: errRefused}
				r := startOutage(t, "sqlite", program, agents.Settings{TimeLimit: 5 * time.Minute}, func(r *outageRig) { r.looked = true })
				began := time.Now()
				const each = 3
				for i := range senders * each {
					r.receive(t, ofDomain(fmt.Sprintf("sender%02d.example", i%senders), fmt.Sprintf("m%03d", i)))
					pass(100 * time.Millisecond)
				}
				pass(outage - time.Since(began))
				if calls, _ := program.counts(); calls > 10 {
					t.Errorf("the program was asked %d times while it took no connection", calls)
				}

				program.fail(nil)
				pass(20 * time.Second)
				if _, answered := program.counts(); answered != senders*each {
					t.Errorf("%d of %d messages were answered within 20 seconds", answered, senders*each)
				}
				last := map[int]string{}
				for _, id := range program.answered {
					var number int
					if _, err := fmt.Sscanf(id, "m%03d", &number); err != nil {
						t.Fatal(err)
					}
					if before := last[number%senders]; before > id {
						t.Errorf("%s was answered after %s", id, before)
					}
					last[number%senders] = id
				}
				r.stop()
			})
		})
	}
}

// TestOneWhoWaitsIsTriedOnce: a caller is not told of an outage without an attempt, and is answered if the program is back by then.
func TestOneWhoWaitsIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{failure: errRefused}
		r := startOutage(t, "sqlite", program, agents.Settings{}, nil)
		for i := range 5 {
			r.receive(t, ofDomain(fmt.Sprintf("a%d.example", i), fmt.Sprintf("a%d", i)))
		}
		pass(time.Minute)

		asked := func(id string) string {
			in := by(normalized.ViaA2A, "caller"+id, id, id)
			in.Route = []byte(`{"awaited":true}`)
			return r.receive(t, in).TurnID
		}
		first := asked("first")
		pass(time.Minute)
		if turn := r.turn(first); turn.State != exchange.StateFailed || turn.Attempt == 0 {
			t.Errorf("who waited during the outage is %s after %d attempts", turn.State, turn.Attempt)
		}

		second := asked("second")
		program.fail(nil)
		if turn := r.settled(t, second); turn.State != exchange.StateAnswered {
			t.Errorf("who waited when the program came back is %s: %s", turn.State, turn.Reason)
		}
		r.stop()
	})
}

// TestProgramThatFailsForAll: a program that answers every message with an error is found out, each sender costs one attempt, and when it
// is back everything is answered.
func TestProgramThatFailsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{failure: upstream.Status(500, 0, errors.New("it is broken"))}
		r := startOutage(t, "sqlite", program, agents.Settings{}, withNetworks)
		var ids []string
		for i := range 60 {
			ids = append(ids, r.receive(t, ofDomain(fmt.Sprintf("sender%02d.example", i%20), fmt.Sprintf("m%03d", i))).TurnID)
			pass(time.Second)
		}
		pass(10 * time.Minute)
		if down := r.audited("backend:down"); len(down) != 1 {
			t.Errorf("it is on record %d times that the program is down", len(down))
		}
		if calls, _ := program.counts(); calls > 100 {
			t.Errorf("%d calls in eleven minutes", calls)
		}

		program.fail(nil)
		pass(15 * time.Minute)
		for _, id := range ids {
			if turn := r.turn(id); turn.State != exchange.StateAnswered {
				t.Fatalf("a message from the outage is %s: %s", turn.State, turn.Reason)
			}
		}
		if slices.Sort(program.answered); len(slices.Compact(program.answered)) != len(ids) {
			t.Errorf("%d answers", len(program.answered))
		}
		r.stop()
	})
}
