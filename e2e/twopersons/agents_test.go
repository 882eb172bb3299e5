package twopersons

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"

	"inbox/agents"
	"inbox/engine/demand"
	"inbox/normalized"
	"inbox/policypart"
)

// The agents. They behave alike, and the server treats them differently.
const (
	parrot = "parrot" // has the history of the conversation
	memory = "memory" // has the history of the person
	shop   = "shop"   // boss approves what it does
	clerk  = "clerk"  // boss approves what it says; messages without proof are held
)

const tables = `
[[agents]]
name = "parrot"
kind = "webhook"
unverified = "answer"
webhook = {url = "AGENT", secret = "a secret that only the tests know"}
[[agents]]
name = "memory"
kind = "webhook"
unverified = "answer"
history = "person"
webhook = {url = "AGENT", secret = "a secret that only the tests know"}
[[agents]]
name = "shop"
kind = "webhook"
unverified = "answer"
approvers = ["boss@boss.test"]
webhook = {url = "AGENT", secret = "a secret that only the tests know"}
[[agents]]
name = "clerk"
kind = "webhook"
unverified = "hold"
approve_replies = "always"
approvers = ["boss@boss.test"]
webhook = {url = "AGENT", secret = "a secret that only the tests know"}
`

// Requests that agents understand. Everything else is echoed.
const (
	refund = "please refund my order" // needs an approval
	book   = "please book a table"    // needs the asker's consent
	link   = "please link me"         // needs a second address
)

// agent is the program behind all agents. It notes what each run was given and is indiscreet to the one who asks alone: it repeats
// everything that it was told.
type agent struct {
	*ledger
	told func(conversation string)
}

func (a agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var given agents.Document
	if err == nil {
		err = json.Unmarshal(body, &given)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	a.told(given.Message.ThreadID)
	author := a.run(given, plainJSON(body))
	encoded, err := json.Marshal(a.answer(given.Message, author))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encoded)
}

// plainJSON writes < and > as they are, so that links are found.
func plainJSON(body []byte) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	var value any
	if json.Unmarshal(body, &value) != nil || encoder.Encode(value) != nil {
		return string(body)
	}
	return out.String()
}

// linkPattern finds the links of demands, each of which is the key to its decision.
var linkPattern = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/policy/[A-Za-z0-9_-]+`)

// run holds a run against the rules and returns whose message it answers; nil = the message has no word.
func (a agent) run(given agents.Document, body string) *person {
	a.mu.Lock()
	defer a.mu.Unlock()
	message := given.Message
	own := a.newest(textOf(message.Parts) + message.Surface.Subject)
	if own == nil || own.author == nil {
		return nil
	}

	author := own.author
	one := turn{given.Turn.ID, given.Turn.Agent}
	a.answered[own] = one
	if !own.forged { // whoever has the address may erase those
		a.turns[author] = append(a.turns[author], one)
	}
	a.given[own] = body
	a.check(author, "the run of "+given.Turn.Agent+" for "+author.String(), body)

	if message.Sender.Verified && !own.agents[given.Turn.Agent] {
		a.addf("%s runs a message of %s (%s) as theirs, which they addressed to somebody else", given.Turn.Agent, author, own.text)
	}
	if link := linkPattern.FindString(body); link != "" {
		a.addf("%s is given the link of a demand in a message by %s", given.Turn.Agent, author)
	}
	if resolution := message.PolicyResolution; resolution != nil && resolution.Outcome == policypart.OutcomeGranted && !a.decided[given.Turn.ID] {
		a.addf("%s goes on with what %s asked for, and nobody who may decide granted it", given.Turn.Agent, author)
	}
	for _, past := range message.History {
		if said := a.newest(textOf(past.Parts)); past.Role == normalized.RoleUser && said != nil && said.author != nil {
			a.attributed(author, said, past.Sender)
		}
	}
	return author
}

// attributed demands that words stand under the name of their author. An author may call themselves what they like as long as the agent
// is told that nothing proves it.
func (a agent) attributed(reader *person, said *word, to normalized.Sender) {
	address := plainAddress(to.Address.String())
	speaker := a.addresses[address]
	if speaker == nil || speaker == said.author || address == said.author.claim || said.forged && !to.Verified {
		return
	}
	a.addf("in a run for %s the words of %s (%s) stand under the name of %s", reader, said.author, said.text, speaker)
}

func textOf(parts []normalized.Part) string {
	var texts []string
	for _, part := range parts {
		texts = append(texts, part.Content)
	}
	return strings.Join(texts, "\n")
}

// answer repeats the whole conversation where nobody else reads the answer, and the question alone elsewhere.
func (a agent) answer(message normalized.Message, asker *person) normalized.Response {
	text := textOf(message.Parts)
	if message.PolicyResolution != nil {
		// What was demanded privately is answered privately: to the asker, or to the one under whose name they asked without proof.
		private := a.word(nil, asker, a.owner(message.Sender.Address.String()))
		return say("It is done, and I found " + private.text + ".")
	}

	switch {
	case strings.Contains(text, refund):
		return demands(policypart.Part{
			Kind: policypart.ConsentRequired, Code: policypart.CodeApproval, Message: "A refund needs an approval.",
			Data: map[string]json.RawMessage{policypart.ApprovalKey: json.RawMessage(`{"action_id":"refund-17","tool":"refund","summary":"Refund order 17"}`)},
		})
	case strings.Contains(text, link):
		return demands(policypart.Part{Kind: policypart.ConsentRequired, Code: demand.CodeLink, Title: "Same person?", Message: "Do you write from another address, too?"})
	case strings.Contains(text, book):
		return demands(policypart.Part{Kind: policypart.ConsentRequired, Title: "A table", Message: "May I book a table?", Scopes: []string{"calendar.write"}})
	}

	told := []string{"You said: " + text}
	if alone(message) {
		for _, past := range message.History {
			told = append(told, "Earlier: "+textOf(past.Parts))
		}
	}
	return say(strings.Join(told, "\n\n"))
}

// alone reports whether nobody but the asker reads the answer.
func alone(message normalized.Message) bool {
	surface := message.Surface
	return surface.Visibility != "public" && surface.Visibility != "unlisted" && len(surface.To)+len(surface.Cc)+surface.Omitted <= 1
}

func say(text string) normalized.Response {
	return normalized.Response{Parts: []normalized.Part{normalized.Text(text)}}
}

func demands(part policypart.Part) normalized.Response {
	return normalized.Response{Status: policypart.ResponseStatus(part.Kind), Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &part}}}
}
