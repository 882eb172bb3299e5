package twopersons

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"inbox/adapters/activitypub/signature"
	"inbox/adapters/email/emailtest"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/operator"
)

// note is what a person writes to an agent, with what all networks together let its author choose.
type note struct {
	author *person
	agent  string
	word   *word
	text   string

	id         string // Message-ID, activity, messageId, run
	reference  string // how others name it
	parent     string // In-Reply-To, inReplyTo, taskId
	references []string
	thread     string // context, conversation, contextId, session
	subject    string
	tag        string // address in the place of the agent's
	name       string // that is shown
	alias      string // fediverse: how a mention tag calls the author
	cc         []*person
	replyTo    *person
	public     bool // fediverse
	forged     bool // mail: under the other's address, unsigned
}

// channels are the ways to an agent.
var channels = map[string]func(r *run, m note){
	"mail": (*run).sendMail, "fediverse": (*run).sendNote, "A2A": (*run).sendA2A, "chat": (*run).sendChat,
	"connector": (*run).sendConnected, "messenger": (*run).sendRelayed,
}

// write sends a note and settles who may read it.
func (r *run) write(channel string, m note) note {
	r.t.Helper()
	readers := append([]*person(nil), m.cc...)
	if m.public || m.forged { // a forged one names the other as the one who is answered
		readers = append(readers, r.other(m.author))
	}
	m.word = r.ledger.word(m.author, readers...)
	m.word.forged, m.word.agents[m.agent] = m.forged, !m.forged
	m.text = m.word.text + " " + m.text
	r.ledger.disclose(m.text, readers...)
	if m.replyTo != nil {
		r.ledger.open(m.author, m.replyTo)
	}
	if m.id == "" {
		m.id = r.fresh(m.author)
	}
	if m.name == "" {
		m.name = m.author.name
	}

	m.reference = m.id
	if channel == "fediverse" {
		m.reference = m.author.noteID(m.id)
		if m.parent != "" { // it is meant for the author of the parent as well
			for _, name := range []string{parrot, memory, shop, clerk} {
				m.word.agents[name] = true
			}
		}
	}

	r.logf("%s writes by %s to %s: %s", m.author, channel, m.agent, m.describe())
	channels[channel](r, m)
	r.quiet()
	return m
}

// describe shows what makes a note special.
func (m note) describe() string {
	out := fmt.Sprintf("%.60q, id %s", strings.SplitN(m.text, "\n", 2)[0], m.id)
	for _, one := range []struct{ name, value string }{
		{"answers", m.parent}, {"references", strings.Join(m.references, " ")}, {"thread", m.thread}, {"to", m.tag}, {"calls themselves", m.alias},
	} {
		if one.value != "" {
			out += ", " + one.name + " " + one.value
		}
	}
	for _, reader := range m.cc {
		out += ", also to " + reader.String()
	}
	if m.replyTo != nil {
		out += ", answers go to " + m.replyTo.String()
	}
	if m.public {
		out += ", public"
	}
	if m.forged {
		out += ", forged"
	}
	return out
}

// letterTo lets a person write to another one, by mail past the server, and returns what that one has then.
func (r *run) letterTo(from, to *person, text string) letter {
	own := r.ledger.word(from, to)
	one := letter{author: from, id: r.fresh(from)}
	one.raw = r.sign(from, header{from: from.mail, to: to.mail, subject: "Hello " + own.text, id: one.id, name: from.name}.write(text))
	to.mails = append(to.mails, one)
	r.sent(one.id)
	r.logf("%s writes to %s past the server: %q (%s)", from, to, text, own.text)
	return one
}

// share lets a person give a mail to another one, with everything in it.
func (r *run) share(from, to *person, one letter) {
	text := plainMail(one.raw)
	r.ledger.disclose(text, to)
	to.mails = append(to.mails, one)
	to.links = append(to.links, linkPattern.FindAllString(text, -1)...)
	r.logf("%s shows %s the mail %s", from, to, one.id)
}

// replay sends a signed mail of another person to an agent, with fields above it that nobody signed.
func (r *run) replay(by *person, one letter, agent, field string) {
	to := agent + "@" + mailDomain
	r.logf("%s sends the mail %s of %s to %s, with %s added", by, one.id, one.author, agent, field)
	raw := one.raw
	if field != "" {
		raw = append([]byte(field+": "+to+"\r\n"), raw...)
	}
	r.took(r.deliver(by.mail, to, raw))
	r.quiet()
}

// repost sends a private note, which its author signed for somebody else, to an agent.
func (r *run) repost(from, by *person, agent string) {
	own := r.ledger.word(from, by)
	body := from.create(from.actor.ID+"/notes/"+r.fresh(from), nil, own.text+" is for you alone", by.actor.ID)
	signed, err := signature.Prove(body, from.proof, from.proofKey(), time.Now())
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, r.actorOf(agent)+"/inbox", bytes.NewReader(signed))
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	request.Header.Set("Content-Type", "application/activity+json")
	r.logf("%s writes a private note to %s (%s), who posts it to %s unsigned", from, by, own.text, agent)
	r.took(r.request(request))
	r.quiet()
}

// asked is a mail by which boss was asked about an approval.
type asked struct{ id, text, code string }

// bossAnswers lets boss answer the mail about an approval. A word that decides is one that counts.
func (r *run) bossAnswers(one asked, text string) {
	if text == "approve" || text == "deny" {
		for _, open := range r.approvals(exchange.ApprovalFilter{All: true, Limit: 100}) {
			if open.Code == one.code {
				r.ledger.decide(open.TurnID)
			}
		}
	}
	r.bossWrites(agentOf(one.text), one.id, text+"\n\n"+quoted(one.text))
	r.logf("boss answers the mail about the approval %s: %q", one.code, text)
	r.quiet()
}

// lure lets a person ask boss for a word that would decide something, with a mail that is answered to an agent.
func (r *run) lure(by *person, agent, id, answer string) {
	bait := r.ledger.word(by)
	r.sent(id)
	r.logf("%s asks boss (%s, id %s) for the answer %q, which goes to %s", by, bait.text, id, answer, agent)
	r.bossWrites(agent, id, answer+"\n\n> Do you like the logo? "+bait.text)
	r.quiet()
}

// bossWrites sends an answer of boss to an agent.
func (r *run) bossWrites(agent, parent, text string) {
	own := r.ledger.word(r.boss)
	own.agents[agent] = true
	r.ledger.disclose(text, r.boss)
	raw := header{
		from: r.boss.mail, to: agent + "@" + mailDomain, subject: "Re: " + own.text, id: r.fresh(r.boss), parent: parent, references: []string{parent}, name: "boss",
	}.write(text)
	signed := r.sign(r.boss, raw)
	r.took(r.deliver(r.boss.mail, agent+"@"+mailDomain, signed))
}

// agentOf returns which agent asks in a mail about an approval.
func agentOf(mail string) string {
	if strings.Contains(mail, clerk+"@"+mailDomain) {
		return clerk
	}
	return shop
}

// press grants what a person was asked for, on the page of its link. It returns the page that follows.
func (r *run) press(by *person, link string) (page string) {
	r.logf("%s agrees on the page of the demand", by)
	if shown, err := r.Operator().Messages.Show(r.Context(), link); err == nil {
		r.ledger.decide(shown.Turn.ID)
	}
	response, err := inboxtest.Client.PostForm(link, url.Values{"decision": {"grant"}})
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	page = readAll(response)
	if response.StatusCode >= http.StatusBadRequest {
		r.took(fmt.Errorf("%s %.200s", response.Status, page))
	}
	r.ledger.reads(by, "the page that "+by.String()+" opens", page)
	r.quiet()
	return page
}

// bounce reports that a mail did not reach somebody, to a return path that was seen, without any proof.
func (r *run) bounce(by, about *person, path string) {
	r.logf("%s reports to %s that %s does not exist", by, path, about)
	report := emailtest.Report("", emailtest.ReportOn(about.mail, "failed", "5.1.1"))
	r.took(r.deliver("", path, []byte(report)))
	r.quiet()
	stopped, err := r.Store().Suppressed(r.Context(), []string{about.mail})
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	if len(stopped) > 0 && by != about {
		r.ledger.faultf("nothing is sent to %s any more, because %s said so", about, by)
	}
}

// publish lets a person write a public note that no agent is told of.
func (r *run) publish(by *person, text, parent, alias string) (id string) {
	own := r.ledger.word(by, r.ann, r.eve)
	id = by.actor.ID + "/notes/" + r.fresh(by)
	members := map[string]any{}
	if parent != "" {
		members["inReplyTo"] = parent
	}
	if alias != "" {
		members["tag"] = []any{map[string]string{"type": "Mention", "href": by.actor.ID, "name": alias}}
	}
	r.logf("%s posts %q (%s) as %s, %s", by, text, own.text, id, alias)
	by.shows(by.create(id, members, own.text+" "+text, everyone))
	return id
}

// callThemselves gives a person's account the user name of another account. WebFinger still says whose the address is.
func (r *run) callThemselves(who *person, name string) {
	r.logf("the account of %s calls itself %s", who, name)
	who.claim = name + "@" + who.home.host()
	r.show(who, map[string]any{"endpoints": nil, "preferredUsername": name})
}

const operatorName = "operator"

// takeOver gives the conversation of a run to the operator.
func (r *run) takeOver(of *person, one turn) bool {
	_, err := r.Operator().Takeovers.Take(r.Context(), operator.ConversationID{ID: one.id}, operatorName, false)
	r.logf("the operator takes over the conversation of %s with %s: %v", of, one.agent, err)
	return err == nil
}

// operatorReplies answers a message under the id that it has here. The operator means the one whose conversation it is.
func (r *run) operatorReplies(m note) {
	one, _ := r.turnOf(m)
	shown, err := r.Store().Turn(r.Context(), one.id)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	own := r.ledger.word(nil, slices.Collect(maps.Keys(m.word.readers))...)
	to, err := r.Operator().Takeovers.Reply(r.Context(), operator.ConversationID{ID: shown.Message.ID}, operatorName, operator.WrittenReply{Text: own.text + " says the operator"})
	r.logf("the operator replies to %s, the message of %s: %v %v", shown.Message.ID, m.author, to, err)
	r.quiet()
}

// export gives to a person what is kept of them under a name that is theirs.
func (r *run) export(to *person, name string) {
	var archive bytes.Buffer
	_, err := r.Operator().Exports.ExportZip(r.Context(), operator.PersonName{Name: name}, &archive)
	r.logf("%s is given what is kept of %s: %v", to, name, err)
	if err != nil {
		return
	}
	content, err := zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	for _, file := range content.File {
		opened, err := file.Open()
		if err != nil {
			r.t.Fatalf("%v", err)
		}
		text, err := io.ReadAll(opened)
		_ = opened.Close()
		if err != nil {
			r.t.Fatalf("%v", err)
		}
		r.ledger.reads(to, "the export of "+to.String(), string(text))
	}
}

// erase erases a person under a name that is theirs, and looks at the messages of the other.
func (r *run) erase(of *person, name string) {
	other := r.other(of)
	before := r.kept(other)
	begun, err := r.Operator().Erasures.Begin(r.Context(), operator.PersonName{Name: name}, "test")
	r.logf("%s is erased as %s: %v", of, name, err)
	if err != nil {
		return
	}
	await.Until(r.t, "the words of "+name+" are erased", func() bool { // by the server or here, whoever is first
		if err := r.Operator().Erasures.Work(r.Context()); err != nil {
			return false
		}
		receipt, err := r.Operator().Erasures.Receipt(r.Context(), begun.ID)
		return err == nil && !slices.Contains([]string{store.EraseFind, store.EraseStop, store.EraseEmpty, store.EraseDerived}, receipt.Stage)
	})
	if after := r.kept(other); after < before {
		r.ledger.faultf("the erasure of %s took %d messages of %s", of, before-after, other)
	}
}

// kept counts the messages of a person that still have words.
func (r *run) kept(of *person) (count int) {
	r.ledger.mu.Lock()
	turns := r.ledger.turns[of]
	r.ledger.mu.Unlock()
	for _, one := range turns {
		if stored, err := r.Store().Turn(r.Context(), one.id); err == nil && len(stored.Message.Parts) > 0 {
			count++
		}
	}
	return count
}
