package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/queue"
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
	for outage, senders := range map[time.Duration]int{20 * time.Second: 60, 2 * time.Minute: 60, time.Hour: 1} {
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
				program.inOrder(t, senders, senders*each)
				r.stop()
			})
		})
	}
}

// TestGatewayOfAProgramThatIsDown: a gateway answers for a program that is down, as it would for one message. The program is found within
// seconds after its return, and the backlog goes in the order of each sender.
func TestGatewayOfAProgramThatIsDown(t *testing.T) {
	for _, outage := range []time.Duration{30 * time.Second, 8 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				program := &backEnd{failure: upstream.Status(502, 0, errors.New("bad gateway"))}
				r := startOutage(t, "sqlite", program, agents.Settings{TimeLimit: 5 * time.Minute}, func(r *outageRig) { r.looked = true })
				began := time.Now()
				const senders, each = 20, 3
				for i := range senders * each {
					r.receive(t, ofDomain(fmt.Sprintf("sender%02d.example", i%senders), fmt.Sprintf("m%03d", i)))
					pass(100 * time.Millisecond)
				}
				pass(outage - time.Since(began))
				program.fail(nil)
				pass(20 * time.Second)
				if _, answered := program.counts(); answered < 15 {
					t.Errorf("%d messages were answered within 20 seconds", answered)
				}
				pass(20 * time.Second)
				program.inOrder(t, senders, senders*each)
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

// TestOrderHoldsOnTwoNodes: the backlog of each sender goes in order although either node has a part of it, and what arrives once the
// program is back overtakes none of it.
func TestOrderHoldsOnTwoNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{failure: errRefused}
		looked := func(r *outageRig) { r.looked = true }
		r := startOutage(t, "sqlite", program, agents.Settings{}, looked)
		other := *r
		other.start()
		const senders, each = 20, 3
		bring := func(i int) {
			node := r
			if i%7 > 3 {
				node = &other
			}
			node.receive(t, ofDomain(fmt.Sprintf("sender%02d.example", i%senders), fmt.Sprintf("m%03d", i)))
			pass(100 * time.Millisecond)
		}
		for i := range senders * each {
			bring(i)
		}
		pass(8 * time.Minute)
		program.fail(nil)
		for i := range senders { // while the backlog goes
			bring(senders*each + i)
			pass(200 * time.Millisecond)
		}
		pass(20 * time.Second)
		program.inOrder(t, senders, senders*(each+1))
		other.stop()
		r.stop()
	})
}

// inOrder demands that all messages were answered, m000 and so on of senders in turn, those of each sender in order.
func (b *backEnd) inOrder(t *testing.T, senders, all int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.answered) != all {
		t.Errorf("%d of %d messages were answered", len(b.answered), all)
	}
	last := map[int]int{}
	for _, id := range b.answered {
		var number int
		if _, err := fmt.Sscanf(id, "m%03d", &number); err != nil {
			t.Fatal(err)
		}
		if before, is := last[number%senders]; is && before > number {
			t.Errorf("m%03d was answered after m%03d", number, before)
		}
		last[number%senders] = number
	}
}

// TestOneSendersBacklogIsFoundAtOnce: of many messages of one sender the oldest is the probe, wherever its place is.
func TestOneSendersBacklogIsFoundAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{failure: errRefused}
		r := startOutage(t, "sqlite", program, agents.Settings{TimeLimit: 5 * time.Minute}, func(r *outageRig) { r.looked = true })
		for i := range 150 {
			r.receive(t, ofDomain("sender.example", fmt.Sprintf("m%03d", i)))
			pass(100 * time.Millisecond)
		}
		pass(3 * time.Minute)
		program.fail(nil)
		pass(15 * time.Second)
		if _, answered := program.counts(); answered < 1 {
			t.Errorf("%d messages were answered within 15 seconds after its return", answered)
		}
		pass(3 * time.Minute)
		program.inOrder(t, 1, 150)
		r.stop()
	})
}

// TestOneMessageOpensAndIsAskedAgain: a program without a connection is looked for after the failures of a single message.
func TestOneMessageOpensAndIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{failure: errRefused}
		r := startOutage(t, "sqlite", program, agents.Settings{TimeLimit: 2 * time.Minute}, func(r *outageRig) { r.looked = true })
		id := r.receive(t, ofDomain("sender.example", "only")).TurnID
		pass(20 * time.Second)
		program.fail(nil)
		pass(10 * time.Second)
		if turn := r.turn(id); turn.State != exchange.StateAnswered || len(r.audited("backend:down")) != 1 {
			t.Errorf("ten seconds after the program is back the message is %s", turn.State)
		}
		r.stop()
	})
}

// TestHungRunsKeepNoOneWaiting: a message at which the program hangs is tried beside an open breaker, and as its probe. Others, also those of
// its domain, are answered within seconds, as are those who failed once.
func TestHungRunsKeepNoOneWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{poison: "poison", hangs: true}
		r := startOutage(t, "sqlite", program, agents.Settings{TimeLimit: 5 * time.Minute}, nil)
		program.fail(upstream.Status(500, 0, errors.New("it is broken")))
		unlucky := r.receive(t, ofDomain("unlucky.example", "unlucky")).TurnID
		for i := range 3 {
			r.receive(t, ofDomain(fmt.Sprintf("mallory%d.example", i), fmt.Sprint("first", i)))
		}
		pass(time.Second)
		program.fail(nil)
		for i := range 5 {
			r.receive(t, by(normalized.ViaEmail, fmt.Sprint("mallory", i), fmt.Sprint("poison", i), fmt.Sprint("poison", i)))
			r.receive(t, ofDomain(fmt.Sprintf("mallory%d.example", i), fmt.Sprint("poison again", i)))
		}
		if down := r.audited("backend:down"); len(down) != 1 {
			t.Fatalf("the breaker is not open: %+v", down)
		}
		neighbour := r.receive(t, by(normalized.ViaEmail, "ana", "honest", "honest")).TurnID
		pass(30 * time.Second)
		for who, id := range map[string]string{"one of the same domain": neighbour, "one who failed once": unlucky} {
			if turn := r.turn(id); turn.State != exchange.StateAnswered {
				t.Errorf("%s is %s after 30 seconds", who, turn.State)
			}
		}
		r.stop()
	})
}

// TestPeopleOfACarrierAreApart: one caller brings the messages of many; who of them makes the program fail is tried no more beside the open
// breaker, and the others are.
func TestPeopleOfACarrierAreApart(t *testing.T) {
	carried := func(person string) exchange.TurnRecord {
		return exchange.TurnRecord{Carrier: "the caller", Principal: person, Message: ofDomain("carrier.example", person).Message}
	}
	mallory, ana := pipeline.CauseOf(carried("mallory")), pipeline.CauseOf(carried("ana"))
	if mallory.Sender == ana.Sender || mallory.Wide() != ana.Wide() {
		t.Errorf("%+v and %+v", mallory, ana)
	}
	forged := unproven("good.example", "192.0.2.1", "x")
	one := exchange.TurnRecord{Principal: "unproven ana@good.example", Network: "a", Message: forged.Message}
	two := one
	two.Network = "b"
	if pipeline.CauseOf(one).Sender == pipeline.CauseOf(two).Sender {
		t.Error("who forges a name from elsewhere is taken as its owner")
	}
}

// TestOutageIsNoTurnsFault: a message that fails while others fail, too, is kept, whoever was answered before.
func TestOutageIsNoTurnsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := upstream.Status(500, 0, errors.New("it is broken"))
		program := &backEnd{failure: broken}
		r := startOutage(t, "sqlite", program, agents.Settings{}, nil)
		id := r.receive(t, ofDomain("unlucky.example", "unlucky")).TurnID
		pass(time.Second)
		program.fail(nil)
		r.settled(t, r.receive(t, ofDomain("other.example", "lucky")).TurnID) // between its first failure and its second
		program.fail(broken)
		pass(30 * time.Minute)
		if turn := r.turn(id); turn.State == exchange.StateFailed {
			t.Errorf("the message of an outage is %s: %s", turn.State, turn.Reason)
		}
		program.fail(nil)
		pass(time.Hour)
		if turn := r.turn(id); turn.State != exchange.StateAnswered {
			t.Errorf("after the outage it is %s", turn.State)
		}
		r.stop()
	})
}

// TestBusyProgramIsNoTurnsFault: a program that has no room for a message while it answers others may have it later, in whichever words it
// says so. What else goes wrong once does not make those times the message's fault.
func TestBusyProgramIsNoTurnsFault(t *testing.T) {
	busy := upstream.PutOff(0, "The model is busy.", errors.New("429"))
	for name, last := range map[string]error{"busy": busy, "cut": fault.RetryIn(0, upstream.Unreachable, errors.New("unexpected EOF"))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				program := &backEnd{poison: "unlucky", poisoned: busy}
				again := slices.Repeat([]time.Duration{10 * time.Second}, 10)
				r := startOutage(t, "sqlite", program, agents.Settings{Retry: agents.RetryPolicy{Schedule: again, Waiting: again, Rate: 5}}, nil)
				id := r.receive(t, ofDomain("unlucky.example", "unlucky")).TurnID
				for i := 0; i < 50 && r.turn(id).Attempt < 5; i++ {
					r.settled(t, r.receive(t, ofDomain("other.example", fmt.Sprint("other", i))).TurnID)
					pass(5 * time.Second)
					if r.turn(id).Attempt == 3 {
						program.mu.Lock()
						program.poisoned = last
						program.mu.Unlock()
					}
				}
				program.mu.Lock()
				program.poison = ""
				program.mu.Unlock()
				pass(time.Minute)
				if turn := r.turn(id); turn.State != exchange.StateAnswered {
					t.Errorf("the message is %s: %s", turn.State, turn.Reason)
				}
				r.stop()
			})
		})
	}
}

// TestTurnThatIsTakenUpAgainHasItsTries: the failures for which a message was given up do not count when the operator runs it again.
func TestTurnThatIsTakenUpAgainHasItsTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{poison: "unlucky"}
		r := startOutage(t, "sqlite", program, agents.Settings{}, nil)
		id := r.receive(t, ofDomain("unlucky.example", "unlucky")).TurnID
		for i := 0; i < 100 && r.turn(id).State != exchange.StateFailed; i++ {
			r.settled(t, r.receive(t, ofDomain("other.example", fmt.Sprint("other", i))).TurnID)
			pass(5 * time.Second)
		}
		if err := r.pipeline.Retry(t.Context(), id, "operator"); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		program.mu.Lock()
		program.poison = ""
		program.mu.Unlock()
		pass(time.Hour)
		if turn := r.turn(id); turn.State != exchange.StateAnswered {
			t.Errorf("it failed once more and is %s: %s", turn.State, turn.Reason)
		}
		r.stop()
	})
}

// TestEarlierMessages: what precedes a message of a sender, on both databases.
func TestEarlierMessages(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		opened, err := store.Open(t.Context(), store.Options{URL: url, DataDir: directory(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = opened.Close() })
		var turns []exchange.TurnRecord
		add := func(user string, due time.Duration, attempt int) {
			in := from(user, fmt.Sprint("m", len(turns)), fmt.Sprint("t", len(turns)))
			turn := exchange.TurnRecord{
				ID: fmt.Sprintf("0193%04d-0000-7000-8000-000000000000", len(turns)), Agent: "echo", Principal: in.Message.Sender.Principal(), ThreadID: in.Message.ThreadID,
				State: exchange.StateAccepted, Attempt: attempt, Channel: in.Channel, Message: in.Message, AcceptedAt: time.Now(), UpdatedAt: time.Now(),
			}
			err := opened.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) error {
				if _, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{}); err != nil {
					return err
				}
				if _, err := tx.MoveTurn(t.Context(), pipeline.Move{ID: turn.ID, From: []string{exchange.StateAccepted}, To: exchange.StateAccepted, Attempt: attempt, At: time.Now()}); err != nil {
					return err
				}
				job := queue.NewJob{ID: turn.ID, Kind: pipeline.JobKind, Payload: turn.ID, Group: exchange.TurnGroup("echo", nil), Member: turn.BroughtBy()}
				if due > 0 {
					job.RunAt = time.Now().Add(due)
				}
				return tx.Enqueue(t.Context(), job)
			})
			if err != nil {
				t.Fatal(err)
			}
			turns = append(turns, turn)
		}
		add("ana", 40*time.Second, 0) // waits
		add("bob", time.Second, 0)    // is someone else
		add("ana", 0, 0)              // is due
		add("ana", 50*time.Second, 2) // failed, and goes soon
		add("ana", time.Hour, 3)      // failed, and goes late
		add("ana", 0, 0)
		add("ana", 0, 0) // younger
		mine := turns[5]
		list := func(within time.Duration) (ids []string) {
			t.Helper()
			found, err := opened.Pipeline().Earlier(t.Context(), mine, within)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range found {
				ids = append(ids, one.TurnID)
			}
			slices.Sort(ids)
			return ids
		}
		if got, want := list(time.Minute), []string{turns[0].ID, turns[2].ID, turns[3].ID}; !slices.Equal(got, want) {
			t.Errorf("earlier are %v, want %v", got, want)
		}
		if got, want := list(math.MinInt64), []string{turns[0].ID, turns[2].ID}; !slices.Equal(got, want) {
			t.Errorf("earlier that failed no more often are %v, want %v", got, want)
		}
		err = opened.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) error { return tx.HastenEarlier(t.Context(), turns[3], time.Minute) })
		if err != nil {
			t.Fatal(err)
		}
		found, err := opened.Pipeline().Earlier(t.Context(), mine, math.MinInt64)
		if err != nil || len(found) != 2 || found[0].Wait > 5*time.Second || found[1].Wait > 5*time.Second {
			t.Errorf("the oldest was not hastened: %+v, %v", found, err)
		}
	})
}
