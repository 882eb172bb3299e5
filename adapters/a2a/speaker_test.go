package a2a

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"inbox/identity"
	"inbox/normalized"
)

const (
	ann = "slack:T1/U1"
	eve = "slack:T1/U2"
)

// expired returns evidence about a person that the server does not accept.
func expired(subject string) string {
	return `{"issuer":"a.example","subject":"` + subject + `","assurance":"platform","proof":{"value":"topsecret"}}`
}

// from sends a message with the token of a connector and evidence, and returns it as the engine has it.
func (b *bundle) from(id, contextID string, evidence ...string) normalized.Message {
	b.Helper()
	message := fmt.Sprintf(`"messageId":%q,"role":"ROLE_USER","parts":[{"text":"hi"}]`, id)
	if contextID != "" {
		message += fmt.Sprintf(`,"contextId":%q`, contextID)
	}
	r := b.rpc(b.ada, "SendMessage", `{"message":{`+message+`,"metadata":{"mentionable":{"identity_evidence":[`+strings.Join(evidence, ",")+`]}}}}`)
	if r.text(b.T, "result.task.status.state") != "TASK_STATE_COMPLETED" {
		b.Fatalf("%s did not go on: %.300s", id, r.body)
	}
	return b.engine.last().Message
}

func TestPeopleOfAConnectorAreApart(t *testing.T) {
	b := setup(t, func(o *Options) { o.Validator = &recorder{} })
	token := b.from("alone", "C").Sender.Principal()
	seen := map[string]string{} // by principal and by thread: whose it is
	apart := func(who string, m normalized.Message) {
		t.Helper()
		for _, key := range []string{m.Sender.Principal(), m.ThreadID, m.Sender.Address.String()} {
			if whose, known := seen[key]; known && whose != who {
				t.Errorf("%s and %s share %s", who, whose, key)
			}
			seen[key] = who
		}
		if carrier := m.Sender.Carrier(); carrier != token {
			t.Errorf("%s was brought by %s, want %s", who, carrier, token)
		}
	}

	for round := range 2 {
		for who, evidence := range map[string][]string{
			"the connector": nil,
			"ann":           {trusted(ann, "platform")},
			"eve":           {trusted(eve, "platform")},
			"ann, unproven": {expired(ann)},
			"eve, unproven": {expired(eve)},
			"both":          {trusted(ann, "platform"), trusted(eve, "platform")},
			"an agent":      {trusted("https://a.example/agents/a", identity.AssuranceAgent)},
		} {
			apart(who, b.from(fmt.Sprint(who, round), "C", evidence...))
		}
	}

	if got := b.from("a", "C", expired(eve), trusted(ann, "platform")).Sender.Principal(); got != "a.example "+ann {
		t.Errorf("beside evidence that does not hold the proven person is %s", got)
	}
	if got := b.from("b", "C", trusted("https://a.example/agents/a", identity.AssuranceAgent), trusted(ann, "platform")).Sender.Principal(); got != "a.example https://a.example/agents/a" {
		t.Errorf("an agent that calls for ann is %s", got)
	}
}

func TestEvidenceAboutSeveralPeopleGivesNoneOfTheirRights(t *testing.T) {
	b := setup(t, func(o *Options) { o.Validator = &recorder{} })
	sender := b.from("m", "", trusted(ann, "platform"), trusted(eve, "platform")).Sender
	if len(sender.Identities) != 1 || sender.Speaker() != nil || codesOf(b.engine.last().Rejected) != identity.CodeAmbiguous+" "+identity.CodeAmbiguous {
		t.Errorf("%+v, rejected %+v", sender, b.engine.last().Rejected)
	}
}

func TestUnreadableEvidenceNamesNobodyElse(t *testing.T) {
	b := setup(t, func(o *Options) { o.Validator = &recorder{} })
	first, second := b.from("1", "C", `7`), b.from("2", "C", `7`)
	if first.Sender.Speaker() != nil || first.Sender.Principal() == second.Sender.Principal() || first.ThreadID == second.ThreadID {
		t.Errorf("two speakers who are not known are one: %s, %s", first.Sender.Principal(), second.Sender.Principal())
	}
}

func TestOneMessageIDOfTwoPeople(t *testing.T) {
	b := setup(t, func(o *Options) { o.Validator = &recorder{} })
	send := func(evidence string) string {
		return b.rpc(b.ada, "SendMessage", withMetadata("m", `{"mentionable":{"identity_evidence":[`+evidence+`]}}`)).text(t, "result.task.id")
	}
	first, second := send(trusted(ann, "platform")), send(trusted(eve, "platform"))
	if first == second {
		t.Error("eve got ann's task")
	}
	if send(expired(ann)) != first || send(expired(eve)) != second || send(trusted(ann, "platform")) != first {
		t.Error("a repeat is another message")
	}
	if b.engine.receives != 2 {
		t.Errorf("%d messages, want 2", b.engine.receives)
	}
}

func TestACarrierPollsTheTasksOfItsPeople(t *testing.T) {
	b := setup(t, func(o *Options) { o.Validator = &recorder{} })
	b.from("1", "C", trusted(ann, "platform"))
	task := b.engine.turns[b.engine.newestTurn()].Reference
	b.from("2", "C", trusted(eve, "platform"))
	b.from("3", "C")

	if got := b.rpc(b.ada, "GetTask", `{"id":"`+task+`"}`).text(t, "result.id"); got != task {
		t.Errorf("got %s", got)
	}
	for _, filter := range []string{`{}`, `{"contextId":"C"}`} {
		if got, _ := b.rpc(b.ada, "ListTasks", filter).at(t, "result.tasks").([]any); len(got) != 3 {
			t.Errorf("%s lists %d tasks, want 3", filter, len(got))
		}
	}
	if r := b.rpc(b.bob, "GetTask", `{"id":"`+task+`"}`); r.decode(t).Error == nil {
		t.Errorf("another caller reads the task: %s", r.body)
	}
}

func TestATaskGoesOnWithItsSpeaker(t *testing.T) {
	b := setup(t, func(o *Options) { o.Validator = &recorder{} })
	b.engine.agent = func(context.Context, *run) normalized.Response {
		return normalized.Response{Status: normalized.StatusInputRequired, Parts: []normalized.Part{normalized.Text("which one?")}}
	}
	with := func(id, task, evidence string) reply {
		return b.rpc(b.ada, "SendMessage", `{"message":{"messageId":"`+id+`","taskId":"`+task+`","role":"ROLE_USER","parts":[{"text":"that one"}],`+
			`"metadata":{"mentionable":{"identity_evidence":[`+evidence+`]}}}}`)
	}

	task := b.rpc(b.ada, "SendMessage", withMetadata("1", `{"mentionable":{"identity_evidence":[`+trusted(ann, "platform")+`]}}`)).text(t, "result.task.id")
	for name, evidence := range map[string]string{"eve": trusted(eve, "platform"), "the connector": "", "ann, unproven": expired(ann)} {
		if r := with(name, task, evidence); r.decode(t).Error == nil || !strings.Contains(r.body, "task of another person") {
			t.Errorf("%s continues ann's task: %.300s", name, r.body)
		}
	}
	if r := with("2", task, trusted(ann, "platform")); r.text(t, "result.task.id") != task {
		t.Errorf("ann does not: %.300s", r.body)
	}
}
