package pipeline_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/demand"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/internal/redact"
	"inbox/normalized"
	"inbox/policypart"
)

// hiding is what the node hides, for the host of the tests.
func hiding(o *pipeline.Options) {
	o.Keys = func() *redact.Redactor {
		return redact.New([]string{"inbox.test"}, append(demand.Keys(), redact.Key{Path: "/v1/files/"}, redact.Key{Tag: 26})...)
	}
}

func guarded(t *testing.T, url string, agent *script) *engine {
	t.Helper()
	agent.name, agent.settings.Approvers = "echo", append(agent.settings.Approvers, owner)
	return composed(t, url, func(o *pipeline.Options) {
		o.Approvers = &doors{}
		hiding(o)
	}, agent)
}

// readBy is the question as an approver reads it: with the link of its page.
func (e *engine) readBy(t *testing.T, notice exchange.Delivery) (text, link, code string) {
	t.Helper()
	part := e.demands.Present(*notice.Reply.Response.Policy())
	text = part.Text("")
	code = regexp.MustCompile(`approve ([0-9][0-9a-z]{5})`).FindStringSubmatch(text)[1]
	return text, part.URL, code
}

// reply is an answer of a sender to a delivery, with the quotation of it that mail programs add.
func reply(user, id string, to exchange.Delivery, text, quoted string) exchange.Inbound {
	in := from(user, id, to.Reply.Message.ThreadID)
	in.Message.InReplyTo = to.NativeID
	if quoted != "" {
		text += "\n\nOn Monday, 3 March 2026, Echo wrote:\n> " + strings.ReplaceAll(quoted, "\n", "\n> ")
	}
	in.Message.Parts = []normalized.Part{normalized.Text(text)}
	return in
}

// saw reports whether a text reached the agent, in messages or history.
func (s *script) saw(text string) bool {
	for _, turn := range s.turns() {
		body, _ := json.Marshal(turn.Message)
		if strings.Contains(string(body), text) {
			return true
		}
	}
	return false
}

// TestWordAloneDecidesNothing: the asker gets the approver to send the word about something else (row 10).
func TestWordAloneDecidesNothing(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &script{answer: func(turn agents.Turn) normalized.Response {
			if strings.Contains(normalized.PlainText(turn.Message.Parts), "refund") {
				return refunds(turn)
			}
			return texts("heard")
		}}
		e := guarded(t, url, agent)
		asked := message("1")
		asked.Message.Parts = []normalized.Part{normalized.Text("refund please")}
		turn := e.waits(t, asked, "approval (refund)")
		notice := e.told(t)

		for _, word := range []string{"Approve", "deny", "yes", "No.", "ok"} {
			logo := decision("owner", "logo "+word, word+"\n\nAnn wrote:\n> Do you like the logo? Answer approve or deny.")
			logo.Message.InReplyTo = "logo@ann.test"
			if words := plain(e.answered(t, logo).Response); words[0] != "heard" {
				t.Errorf("%s about a logo: %q", word, words)
			}

			// The same in the conversation about the approval, as an answer to what somebody else brought into it.
			// Or as one that names nothing that it answers, so that it may be an answer to that.
			for name, parent := range map[string]string{"named ": "logo@ann.test", "unnamed ": ""} {
				named := decision("owner", name+word, word)
				named.Message.ThreadID, named.Message.InReplyTo = notice.Reply.Message.ThreadID, parent
				if words := plain(e.answered(t, named).Response); !strings.Contains(words[0], "decides nothing") {
					t.Errorf("%s in an answer to %q: %q", word, parent, words)
				}
			}
			if still, err := e.store.Turn(t.Context(), turn.ID); err != nil || still.State != exchange.StateWaiting {
				t.Fatalf("%s decided: the turn is %s, %v", word, still.State, err)
			}
		}

		e.answered(t, reply("owner", "answer", notice, "Approve", ""))
		e.ends(t, turn.ID, exchange.StateAnswered)
	})
}

// TestApproversReplyIsNotForTheAgent: a reply that decides nothing, with the quotation of the question (row 8).
func TestApproversReplyIsNotForTheAgent(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &script{settings: agents.Settings{ApproveReplies: agents.ApproveAlways}, answer: says("We open at eight.")}
		e := guarded(t, url, agent)
		turn := e.waits(t, message("1"), "approval (reply)")
		notice := e.told(t)
		read, link, code := e.readBy(t, notice)
		token := link[strings.LastIndexByte(link, '/')+1:]

		guide := e.answered(t, reply("owner", "who", notice, "who is this?", read))
		if words := plain(guide.Response); !strings.Contains(words[0], "one word approve or deny") || !strings.Contains(words[0], "to agent:") {
			t.Errorf("the approver reads %q", words)
		}
		if len(agent.turns()) != 1 {
			t.Fatal("the agent got the reply about its own approval")
		}
		body, err := json.Marshal(guide.Message)
		if err != nil || strings.Contains(string(body), token) || strings.Contains(string(body), code) || !strings.Contains(string(body), "who is this?") {
			t.Errorf("stored is %s, %v", body, err)
		}

		// Somebody else in the conversation is not answered at all.
		if stranger := e.settled(t, e.receive(t, reply("mallory", "m", notice, "and who are you?", read)).TurnID); stranger.State != exchange.StateSilent {
			t.Errorf("a stranger in the conversation: %s", stranger.State)
		}

		meant := e.waits(t, reply("owner", "meant", notice, "To agent: who is this?", read), "approval (reply)")
		if len(agent.turns()) != 2 || agent.saw(token) || agent.saw(code) || !agent.saw("who is this?") {
			t.Errorf("the agent saw the key: token %v, code %v", agent.saw(token), agent.saw(code))
		}

		// With the link alone nobody decides.
		if _, err := e.demands.Decide(t.Context(), token, true); err == nil {
			t.Error("the link decides")
		}
		if _, err := e.pipeline.Cancel(t.Context(), meant.ID, "enough"); err != nil {
			t.Fatal(err)
		}
		e.answered(t, reply("owner", "yes", notice, "yes", read))
		e.ends(t, turn.ID, exchange.StateAnswered)
	})
}

// TestEditedAnswerIsShownAgain: the approver answers the message with the text before the edit.
func TestEditedAnswerIsShownAgain(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &script{settings: agents.Settings{ApproveReplies: agents.ApproveAlways}, answer: says("We open at eight.")}
		e := guarded(t, url, agent)
		turn := e.waits(t, message("1"), "approval (reply)")
		notice := e.told(t)
		_, _, before := e.readBy(t, notice)
		if _, err := e.demands.EditReply(t.Context(), e.open(t).ID, "operator:eve", "Send me your PIN."); err != nil {
			t.Fatal(err)
		}

		for id, word := range map[string]string{"1": "approve", "2": "approve " + before} {
			again := e.answered(t, reply("owner", "o"+id, notice, word, ""))
			if words := plain(again.Response); !strings.Contains(words[0], "changed after you read it") || !strings.Contains(again.Response.Policy().Message, "Send me your PIN.") {
				t.Errorf("%q is answered with %q", word, words)
			}
		}
		if still, err := e.store.Turn(t.Context(), turn.ID); err != nil || still.State != exchange.StateWaiting {
			t.Fatalf("the turn is %s, %v", still.State, err)
		}
		e.answered(t, reply("owner", "o3", notice, "approve "+e.open(t).Code, ""))
		if done := e.ends(t, turn.ID, exchange.StateAnswered); plain(done.Response)[0] != "Send me your PIN." {
			t.Errorf("sent: %q", plain(done.Response))
		}
	})
}

// TestEditedMessageIsApprovedAnew: its sender changes the message after an approver read it.
func TestEditedMessageIsApprovedAnew(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &script{answer: refunds}
		e := guarded(t, url, agent)
		in := message("1")
		turn := e.waits(t, in, "approval (refund)")
		notice := e.told(t)
		_, _, before := e.readBy(t, notice)
		if err := e.pipeline.Amend(t.Context(), "echo", in.Message.ID, in.Message.Sender.Principal(), []normalized.Part{normalized.Text("refund order 99")}); err != nil {
			t.Fatal(err)
		}
		second := e.told(t)
		_, _, after := e.readBy(t, second)
		if before == after {
			t.Fatal("the code is that of the text before")
		}

		late := e.answered(t, reply("owner", "o1", notice, "approve", ""))
		if words := plain(late.Response); !strings.Contains(words[0], "no longer needed") {
			t.Errorf("an approval of the words before: %q", words)
		}
		e.answered(t, decision("owner", "o2", "approve "+after))
		e.ends(t, turn.ID, exchange.StateAnswered)
	})
}

// TestOnlyNamedMethodsApprove: an address is proven in several ways, and programs do not approve (row 15).
func TestOnlyNamedMethodsApprove(t *testing.T) {
	by := func(method, proof string) func(*exchange.Inbound) {
		return func(in *exchange.Inbound) {
			evidence := &in.Message.Sender.Identities[0]
			evidence.Method, evidence.Proof.Type = method, proof
			if proof == identity.ProofBearerToken {
				evidence.Proof.Addressed = identity.AddressedAudience
			}
		}
	}
	const named = "email-dkim"
	for name, test := range map[string]struct {
		methods []string
		change  func(*exchange.Inbound)
		counts  bool
	}{
		"mail":                     {nil, by(identity.MethodEmailDMARC, identity.ProofTransport), true},
		"mail without DMARC":       {nil, by(identity.MethodEmailDKIM, identity.ProofTransport), true},
		"a token of the domain":    {nil, by(identity.MethodA2AJWT, identity.ProofBearerToken), false},
		"a token of a service":     {nil, by(identity.MethodA2AOAuth, identity.ProofBearerToken), false},
		"a token that says mail":   {nil, by(identity.MethodEmailDMARC, identity.ProofBearerToken), false},
		"an attestation":           {nil, by("urn:example:slack", identity.ProofTransport), false},
		"an account":               {nil, by(identity.MethodActivityPubSignature, identity.ProofTransport), false},
		"an agent of this server":  {nil, by(identity.MethodLocalAgent, identity.ProofTransport), false},
		"another method":           {[]string{identity.MethodEmailDKIM}, by(identity.MethodEmailDMARC, identity.ProofTransport), false},
		"the method that is named": {[]string{identity.MethodEmailDKIM}, by(identity.MethodEmailDKIM, identity.ProofTransport), true},
		"an automated sender":      {nil, func(in *exchange.Inbound) { in.FromAgent = true }, false},
		"a link of a chain": {nil, func(in *exchange.Inbound) {
			in.Message.RecipientCapabilities.AgentChain = &normalized.AgentChain{Hop: 1, MaxHops: 4}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			agent := &script{answer: refunds, settings: agents.Settings{AnswerAgents: true}}
			if test.methods != nil {
				agent.settings.ApproverMethods = map[string][]string{owner: test.methods}
			}
			e := guarded(t, "sqlite", agent)
			turn := e.waits(t, message("1"), "approval (refund)")
			notice := e.told(t)
			_, _, code := e.readBy(t, notice)

			for id, in := range map[string]exchange.Inbound{
				"code": decision("owner", "by code", "approve "+code), "thread": reply("owner", "by thread", notice, "approve", ""),
			} {
				test.change(&in)
				e.settled(t, e.receive(t, in).TurnID)
				if test.counts {
					break
				}
				if still, err := e.store.Turn(t.Context(), turn.ID); err != nil || still.State != exchange.StateWaiting {
					t.Fatalf("it counts by %s: %s, %v", id, still.State, err)
				}
			}
			if test.counts {
				e.ends(t, turn.ID, exchange.StateAnswered)
			}
		})
	}
	if agents.ApproverMethods[named] != identity.MethodEmailDKIM {
		t.Error("the names of methods are not those of the configuration")
	}
}

// TestNoProgramGetsInToDecide: what may not decide may not pass the agent's rules with the word, either.
func TestNoProgramGetsInToDecide(t *testing.T) {
	closed := identity.AccessPolicy{Access: identity.AccessRules, Rules: []identity.Rule{{Effect: "allow", Address: "@ana@peer.test"}}}
	agent := &script{answer: refunds, settings: agents.Settings{Access: closed, AnswerAgents: true}}
	e := guarded(t, "sqlite", agent)
	e.waits(t, message("1"), "approval (refund)")
	e.told(t)
	in := decision("owner", "bot", "approve "+e.open(t).Code)
	in.FromAgent = true
	if _, err := e.pipeline.Receive(t.Context(), in); err == nil {
		t.Error("an automated approver is let in with the word")
	}
}

// TestKeysAreHiddenBeforeTheyAreStored: in every part of a message, and in what is edited or fetched.
func TestKeysAreHiddenBeforeTheyAreStored(t *testing.T) {
	const token = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_abcde"
	const link = "https://inbox.test/policy/" + token
	html := normalized.Part{Kind: normalized.PartText, MIME: normalized.MIMEHTML, Content: `<p>Hi</p><a href="` + link + `">Decide</a>`, New: "Hi " + link}
	file := func(name, mime, content string) normalized.Part {
		return normalized.Part{Kind: normalized.PartFile, Name: name, MIME: mime, BytesRef: normalized.Inline([]byte(content)), Size: int64(len(content))}
	}
	parts := []normalized.Part{
		normalized.Text("Look: " + link + " and link-0123456789abcdef"), html,
		{Kind: normalized.PartLink, URL: link, Title: "Decide"},
		file("note.txt", "text/plain", "see "+link), file("old.eml", "message/rfc822", "Content-Transfer-Encoding: quoted-printable\r\n\r\nhttps://inbox.test/policy/"+token[:20]+"=\r\n"+token[20:]),
		file("data.json", "application/json", `{"u":"https:\/\/inbox.test\/policy\/`+token+`"}`),
		{Kind: normalized.PartToolCall, ID: "1", Name: "look", Args: json.RawMessage(`{"url":"` + link + `","n":1.50}`), Result: json.RawMessage(`"` + link + `"`)},
		file("photo.png", "image/png", "\x89PNG\x00 nothing of ours"),
	}
	agent := &script{name: "echo", answer: says("thanks")}
	e := composed(t, "sqlite", hiding, agent)
	e.peer.past = func(exchange.TurnRecord) []normalized.HistoricalMessage {
		return []normalized.HistoricalMessage{{
			ID: "old@peer.test", Role: normalized.RoleUser, Sender: normalized.Sender{Address: identity.Stated("@bob@peer.test"), AuthMethod: normalized.AuthNone},
			Parts: []normalized.Part{normalized.Text("before: " + link)}, Timestamp: identity.At(time.Now().Add(-time.Hour)),
		}}
	}
	in := message("1")
	in.Message.Parts, in.Message.Sender.DisplayName = parts, "Ana "+link
	in.Message.Sender.Profile = &normalized.SenderProfile{DisplayName: "Ana", URL: link, Extensions: map[string]json.RawMessage{"email": json.RawMessage(`{"seen":"` + link + `"}`)}}
	var written normalized.Message
	if err := json.Unmarshal([]byte(`{"surface":{"channel":"email","subject":"Re: a question","of_a_newer_version":"`+link+`"}}`), &written); err != nil {
		t.Fatal(err)
	}
	in.Message.Surface = written.Surface
	turn := e.answered(t, in)
	if sender := turn.Message.Sender; sender.DisplayName != "Ana "+redact.HiddenLink || sender.Profile.DisplayName != "Ana" || turn.Message.Surface.Subject != "Re: a question" {
		t.Errorf("sender %+v, surface %+v", sender, turn.Message.Surface)
	}
	if err := e.pipeline.Amend(t.Context(), "echo", in.Message.ID, in.Message.Sender.Principal(), []normalized.Part{normalized.Text("edited: " + link)}); err != nil {
		t.Fatal(err)
	}
	edited, err := e.store.Turn(t.Context(), turn.ID)
	if err != nil {
		t.Fatal(err)
	}

	seen := agent.turns()[0].Message
	for name, message := range map[string]normalized.Message{"stored": turn.Message, "edited": edited.Message, "to the agent": seen} {
		body, err := json.Marshal(message)
		if err != nil || strings.Contains(string(body), token) {
			t.Errorf("%s: %s, %v", name, body, err)
		}
		if err := normalized.Validate(message, normalized.DefaultLimits()); err != nil {
			t.Errorf("%s is no message any more: %v", name, err)
		}
		for _, part := range message.Parts {
			if part.BytesRef != nil {
				if content, err := part.BytesRef.Bytes(); err != nil || strings.Contains(string(content), token[:12]) {
					t.Errorf("%s: the file %s holds it: %v", name, part.Name, err)
				}
			}
		}
	}
	if !strings.HasPrefix(seen.Parts[0].Content, "Look: "+redact.HiddenLink) || !strings.Contains(seen.Parts[0].Content, "link-0123456789abcdef") {
		t.Errorf("the text became %q", seen.Parts[0].Content)
	}
	if len(seen.Parts) != len(parts) || !seen.Parts[7].Equal(parts[7]) || string(seen.Parts[6].Args) != `{"n":1.50,"url":"[link removed]"}` {
		t.Errorf("the parts became %+v", seen.Parts)
	}
}

// TestAskerCannotConsentForItself: the asker's reply quotes the mail with the link of a consent demand.
func TestAskerCannotConsentForItself(t *testing.T) {
	agent := &script{name: "echo", answer: func(turn agents.Turn) normalized.Response {
		if strings.Contains(normalized.PlainText(turn.Message.Parts), "consent") {
			return normalized.Response{Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: policypart.ConsentRequired, Message: "May I?"}}}}
		}
		return texts("heard")
	}}
	e := composed(t, "sqlite", hiding, agent)
	in := message("1")
	in.Message.Parts = []normalized.Part{normalized.Text("consent?")}
	e.settled(t, e.receive(t, in).TurnID)
	asked := e.peer.next(t)
	shown := e.demands.Present(*asked.Reply.Response.Policy())
	again := reply("ana", "2", asked, "What is that?", shown.Text(""))
	e.answered(t, again)
	if token := shown.URL[strings.LastIndexByte(shown.URL, '/')+1:]; agent.saw(token) || !agent.saw("What is that?") {
		t.Error("the agent got the link of its own consent demand")
	}
	if !slices.ContainsFunc(agent.turns(), func(turn agents.Turn) bool {
		return strings.Contains(normalized.PlainText(turn.Message.Parts), redact.HiddenLink)
	}) {
		t.Error("nothing says that a link was there")
	}
}

// TestReleasedAnswerIsTheOneThatWasRead: an operator lets an answer pass while its sender edits the message and the agent says
// something else. Either the answer that was read leaves, or the other one waits.
func TestReleasedAnswerIsTheOneThatWasRead(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		agent := &script{settings: agents.Settings{ApproveReplies: agents.ApproveAlways}, answer: func(turn agents.Turn) normalized.Response {
			return texts("about " + normalized.PlainText(turn.Message.Parts))
		}}
		e := guarded(t, url, agent)
		for round := range 6 {
			in := message(fmt.Sprint("race ", round))
			in.Message.Parts = []normalized.Part{normalized.Text("eight")}
			turn := e.waits(t, in, "approval (reply)")
			read := e.open(t)
			edit := func() error {
				return e.pipeline.Amend(t.Context(), "echo", in.Message.ID, in.Message.Sender.Principal(), []normalized.Part{normalized.Text("nine")})
			}
			approve := func() error {
				_, err := e.demands.Approve(t.Context(), read.ID, read.Digest, "operator:ann")
				return err
			}

			var acts sync.WaitGroup
			if round > 0 { // in the first round the edit is there before
				acts.Go(func() {
					if err := approve(); err != nil && !fault.Is(err, fault.Conflict) {
						t.Error(err)
					}
				})
			}
			if err := edit(); err != nil {
				t.Error(err)
			}
			acts.Wait()
			if round == 0 {
				if err := approve(); !fault.Is(err, fault.Conflict) {
					t.Errorf("the answer of before is let pass: %v", err)
				}
			}

			var waiting []exchange.Approval
			await.Until(t, "the turn is answered or waits again", func() bool {
				now, err := e.store.Turn(t.Context(), turn.ID)
				if err != nil {
					t.Fatal(err)
				}
				if waiting, err = e.demands.Approvals(t.Context(), exchange.ApprovalFilter{Limit: 10}); err != nil {
					t.Fatal(err)
				}
				if now.State == exchange.StateAnswered {
					turn = now
					return true
				}
				return now.State == exchange.StateWaiting && len(waiting) == 1 && waiting[0].ID != read.ID
			})
			switch {
			case turn.State == exchange.StateAnswered:
				if said := plain(turn.Response); said[0] != "about eight" {
					t.Fatalf("round %d: %q was sent and not read", round, said)
				}
				continue
			case plain(waiting[0].Draft)[0] != "about nine":
				t.Fatalf("round %d: %q waits", round, plain(waiting[0].Draft))
			}
			if _, err := e.demands.Approve(t.Context(), waiting[0].ID, waiting[0].Digest, "operator:ann"); err != nil {
				t.Fatal(err)
			}
			if done := e.ends(t, turn.ID, exchange.StateAnswered); plain(done.Response)[0] != "about nine" {
				t.Fatalf("sent: %q", plain(done.Response))
			}
		}
	})
}
