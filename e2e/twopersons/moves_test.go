package twopersons

import (
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// A trick is what makes a move more than an honest message. A run may use some of them, so that some runs go far with one.
const (
	useID         = "id"         // of a message that somebody else wrote, as one's own
	useParent     = "parent"     // In-Reply-To, inReplyTo, taskId
	useReferences = "references" // References
	useThread     = "thread"     // context, conversation, contextId, session
	useTag        = "tag"        // the address of a conversation in the place of the agent's
	useName       = "name"       // that others have
	useAlias      = "alias"      // in a mention tag
	useSubject    = "subject"    //
	useCopies     = "copies"     // Cc and mentions: both read along
	usePublic     = "public"     // posts that everyone reads
	useReplyTo    = "reply-to"   //
	useForgery    = "forgery"    // mails under the other's address, without proof
	useQuotes     = "quotes"     // of mails that one has
	useDemands    = "demands"    // requests for which the agent needs consent or an approval
	useReplays    = "replays"    // signed mails and notes of others
	useLures      = "lures"      // questions to boss whose answer goes to an agent
	useBounces    = "bounces"    //
	useOperator   = "operator"   // takes over conversations and replies by an id
	useRights     = "rights"     // export and erasure
	useReading    = "reading"    // of tasks and chats under their ids
)

// tricks says on which channels there are such things; none = on all.
var tricks = map[string][]string{
	useID: nil, useParent: nil, useReferences: {"mail"}, useThread: {"fediverse", "A2A", "chat", "connector", "messenger"}, useTag: {"mail"},
	useName: nil, useAlias: {"fediverse"}, useSubject: {"mail"}, useCopies: {"mail", "fediverse"}, usePublic: {"fediverse"},
	useReplyTo: {"mail"}, useForgery: {"mail"}, useQuotes: {"mail"}, useDemands: nil, useReplays: {"mail", "fediverse"}, useLures: nil,
	useBounces: {"mail"}, useOperator: nil, useRights: nil, useReading: {"A2A", "chat"},
}

// fuzzer draws the moves of a run.
type fuzzer struct {
	*run
	may     map[string]bool    // tricks of this run
	channel map[*person]string // by which a person writes
	agents  []string
	notes   []note
	posts   []string // notes that no agent was told of
	taken   *note    // whose conversation the operator has
}

// draw begins a run between two channels. Only lists the tricks of all runs; none = each run has some.
func draw(w *world, t *rapid.T, pair [2]string, only []string) *fuzzer {
	may := map[string]bool{}
	for _, trick := range only {
		may[trick] = true
	}
	for _, trick := range slices.Sorted(maps.Keys(tricks)) {
		there := tricks[trick] == nil || slices.Contains(tricks[trick], pair[0]) || slices.Contains(tricks[trick], pair[1])
		if there && len(only) == 0 {
			may[trick] = rapid.Bool().Draw(t, trick)
		}
	}
	f := &fuzzer{run: w.newRun(t, rapid.Bool().Draw(t, "neighbours")), may: may}
	f.channel = map[*person]string{f.ann: pair[0], f.eve: pair[1]}
	if rapid.Bool().Draw(t, "exchanged") {
		f.channel = map[*person]string{f.ann: pair[1], f.eve: pair[0]}
	}
	f.agents = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{parrot, memory, shop, clerk}), 1, 2, rapid.ID[string]).Draw(t, "agents")
	if may[useName] && rapid.Bool().Draw(t, "renamed") {
		f.callThemselves(f.eve, f.ann.name)
	}
	return f
}

// moves are what the people of this run can do. Repeat draws from them.
func (f *fuzzer) moves() map[string]func(*rapid.T) {
	moves := map[string]func(*rapid.T){
		"ann writes": func(t *rapid.T) { f.writes(t, f.ann) },
		"eve writes": func(t *rapid.T) { f.writes(t, f.eve) },
		"":           func(*rapid.T) { f.judge() },
	}
	for trick, more := range map[string]map[string]func(*rapid.T){
		useQuotes:   {"ann shows a mail": f.shows},
		useAlias:    {"somebody posts": f.posting},
		useDemands:  {"boss answers": f.bossDecides, "somebody agrees": f.agrees},
		useReplays:  {"eve replays": f.replays},
		useLures:    {"eve asks boss": f.lures},
		useBounces:  {"eve bounces": f.bounces},
		useOperator: {"the operator takes over": f.takesOver, "the operator replies": f.operatorAnswers},
		useRights:   {"somebody gets an export": f.exports, "somebody is erased": f.erases},
		useReading:  {"somebody reads": f.looks},
	} {
		if f.may[trick] {
			maps.Copy(moves, more)
		}
	}
	return moves
}

// chance reports whether an author uses a trick now.
func (f *fuzzer) chance(t *rapid.T, author *person, trick string) bool {
	there := tricks[trick] == nil || slices.Contains(tricks[trick], f.channel[author])
	return f.may[trick] && there && rapid.Bool().Draw(t, "with "+trick)
}

// id draws an id that somebody gave or that was seen; "" = there is none yet.
func (f *fuzzer) id(t *rapid.T, what string) string {
	pools := f.known()
	if len(pools) == 0 {
		return ""
	}
	pool := pools[rapid.IntRange(0, len(pools)-1).Draw(t, what+" from")]
	return pool[rapid.IntRange(0, len(pool)-1).Draw(t, what)]
}

// writes lets a person write to an agent.
func (f *fuzzer) writes(t *rapid.T, author *person) {
	m := note{author: author, agent: rapid.SampledFrom(f.agents).Draw(t, "agent"), text: "is mine. What was said before?"}
	other := f.other(author)
	if f.chance(t, author, useDemands) {
		m.text = rapid.SampledFrom([]string{refund, book}).Draw(t, "request")
	}
	if earlier := f.readBy(author); len(earlier) > 0 && rapid.Bool().Draw(t, "goes on") {
		m.parent, m.thread = f.follow(author, rapid.SampledFrom(earlier).Draw(t, "after"))
	}
	if f.chance(t, author, useID) {
		m.id = f.id(t, "id")
	}
	if f.chance(t, author, useParent) {
		m.parent = f.id(t, "parent")
	}
	if len(f.posts) > 0 && f.chance(t, author, useAlias) {
		m.parent = rapid.SampledFrom(f.posts).Draw(t, "post")
	}
	if f.chance(t, author, useReferences) {
		for range rapid.IntRange(1, 3).Draw(t, "references") {
			m.references = append(m.references, f.id(t, "reference"))
		}
	}
	if f.chance(t, author, useThread) {
		m.thread = rapid.SampledFrom([]string{f.id(t, "thread"), "talk@" + author.name + ".test", author.actor.ID + "/talk"}).Draw(t, "thread")
	}
	if f.chance(t, author, useTag) {
		if m.tag = f.tag(t); m.tag != "" {
			m.agent, _, _ = strings.Cut(m.tag, "+")
		}
	}
	if f.chance(t, author, useName) {
		m.name = rapid.SampledFrom([]string{other.name, other.mail, "boss@boss.test"}).Draw(t, "name")
	}
	if f.chance(t, author, useAlias) {
		m.alias = f.alias(t, author)
	}
	if f.chance(t, author, useSubject) && len(f.notes) > 0 {
		m.subject = "Re: " + rapid.SampledFrom([]string{"About it", "[approve]"}).Draw(t, "subject")
	}
	if f.chance(t, author, useCopies) {
		m.cc = []*person{other}
	}
	m.public, m.forged = f.chance(t, author, usePublic), f.chance(t, author, useForgery)
	if author == f.eve && f.chance(t, author, useReplyTo) {
		m.replyTo = other
		m.text = "is mine. Answer the other one, please."
	}
	if mine := author.mails; len(mine) > 0 && f.chance(t, author, useQuotes) {
		m.text += "\n\n" + quoted(plainMail(rapid.SampledFrom(mine).Draw(t, "quote").raw))
	}
	f.notes = append(f.notes, f.write(f.channel[author], m))
}

// readBy are the notes that a person wrote, or that were addressed to them as well.
func (f *fuzzer) readBy(reader *person) (list []note) {
	for _, m := range f.notes {
		if m.author == reader || slices.Contains(m.cc, reader) {
			list = append(list, m)
		}
	}
	return list
}

// follow returns what a message says that goes on after another one: mails and posts name it, programs name the conversation.
func (f *fuzzer) follow(author *person, m note) (parent, thread string) {
	if channel := f.channel[author]; channel == "mail" || channel == "fediverse" {
		return m.reference, ""
	}
	return "", m.thread
}

// posting lets one write posts after each other, in which a mention tag names them.
func (f *fuzzer) posting(t *rapid.T) {
	author := f.eve
	if f.channel[author] != "fediverse" {
		author = f.ann
	}
	parent := ""
	if len(f.posts) > 0 {
		parent = rapid.SampledFrom(f.posts).Draw(t, "parent")
	}
	f.posts = append(f.posts, f.publish(author, "Pay what they ask.", parent, f.alias(t, author)))
}

// alias draws how a mention tag calls its author.
func (f *fuzzer) alias(t *rapid.T, author *person) string {
	return "@" + rapid.SampledFrom([]string{f.people.other(author).handle(), f.boss.handle()}).Draw(t, "alias")
}

// tag draws an address by which a conversation goes on.
func (f *fuzzer) tag(t *rapid.T) string {
	var tags []string
	for _, id := range slices.Concat(f.known()...) {
		if isTag(id) {
			tags = append(tags, id)
		}
	}
	if len(tags) == 0 {
		return ""
	}
	return rapid.SampledFrom(tags).Draw(t, "tag")
}

func (f *fuzzer) shows(t *rapid.T) {
	if len(f.ann.mails) > 0 {
		f.share(f.ann, f.eve, rapid.SampledFrom(f.ann.mails).Draw(t, "mail"))
	}
}

// bossDecides lets boss decide, or ask back, as people do: with all of the mail below.
func (f *fuzzer) bossDecides(t *rapid.T) {
	if len(f.asked) > 0 {
		text := rapid.SampledFrom([]string{"approve", "deny", "Who is this?"}).Draw(t, "answer")
		f.bossAnswers(rapid.SampledFrom(f.asked).Draw(t, "approval"), text)
	}
}

func (f *fuzzer) agrees(t *rapid.T) {
	who := rapid.SampledFrom([]*person{f.ann, f.eve}).Draw(t, "who")
	if len(who.links) > 0 {
		f.press(who, rapid.SampledFrom(who.links).Draw(t, "link"))
	}
}

// replays lets eve send a note or a mail of somebody else to an agent: one that she has, or one that she gets now, which would be a
// decision or a question elsewhere.
func (f *fuzzer) replays(t *rapid.T) {
	if f.channel[f.ann] == "fediverse" && rapid.Bool().Draw(t, "a note") {
		f.repost(f.ann, f.eve, rapid.SampledFrom(f.agents).Draw(t, "agent"))
		return
	}
	var foreign []letter
	for _, one := range f.eve.mails {
		if one.author != nil && one.author != f.eve {
			foreign = append(foreign, one)
		}
	}
	if len(foreign) == 0 || rapid.Bool().Draw(t, "a new mail") {
		from := rapid.SampledFrom([]*person{f.boss, f.ann}).Draw(t, "from")
		foreign = []letter{f.letterTo(from, f.eve, rapid.SampledFrom([]string{"Approve", "See you tomorrow."}).Draw(t, "text"))}
	}
	field := rapid.SampledFrom([]string{"Resent-To", "To", "Cc", ""}).Draw(t, "field")
	f.replay(f.eve, rapid.SampledFrom(foreign).Draw(t, "mail"), f.asking(t), field)
}

// asking draws an agent, often one that waits for a decision.
func (f *fuzzer) asking(t *rapid.T) string {
	if len(f.asked) > 0 && rapid.Bool().Draw(t, "where something waits") {
		return agentOf(f.asked[len(f.asked)-1].text)
	}
	return rapid.SampledFrom(f.agents).Draw(t, "agent")
}

func (f *fuzzer) lures(t *rapid.T) {
	id := f.id(t, "id")
	if id == "" || rapid.Bool().Draw(t, "own id") {
		id = f.fresh(f.eve)
	}
	f.lure(f.eve, f.asking(t), id, rapid.SampledFrom([]string{"Approve", "Deny", "Yes"}).Draw(t, "answer"))
}

func (f *fuzzer) bounces(t *rapid.T) {
	paths := slices.Concat(f.eve.returns, f.ann.returns)
	if len(paths) > 0 {
		f.bounce(f.eve, f.ann, rapid.SampledFrom(paths).Draw(t, "path"))
	}
}

func (f *fuzzer) takesOver(t *rapid.T) {
	if len(f.notes) == 0 || f.taken != nil {
		return
	}
	m := rapid.SampledFrom(f.notes).Draw(t, "message")
	if one, ran := f.turnOf(m); ran && f.takeOver(m.author, one) {
		f.taken = &m
	}
}

func (f *fuzzer) operatorAnswers(*rapid.T) {
	if f.taken != nil {
		f.operatorReplies(*f.taken)
	}
}

// exports gives to a person what is kept under a name that is provably theirs.
func (f *fuzzer) exports(t *rapid.T) {
	who := rapid.SampledFrom([]*person{f.ann, f.eve}).Draw(t, "who")
	f.export(who, f.nameOf(t, who))
}

func (f *fuzzer) erases(t *rapid.T) {
	who := rapid.SampledFrom([]*person{f.ann, f.eve}).Draw(t, "who")
	f.erase(who, f.nameOf(t, who))
}

func (f *fuzzer) nameOf(t *rapid.T, who *person) string {
	return rapid.SampledFrom([]string{who.actor.ID, who.mail, "@" + who.handle(), "mailto:" + who.mail}).Draw(t, "name")
}

// looks lets a person ask for a task or a chat under any id.
func (f *fuzzer) looks(t *rapid.T) {
	who, agent := rapid.SampledFrom([]*person{f.ann, f.eve}).Draw(t, "who"), rapid.SampledFrom(f.agents).Draw(t, "agent")
	if id := f.id(t, "id"); id != "" {
		f.logf("%s asks for %s", who, id)
		f.readA2A(who, agent, id)
		f.readChat(who, agent, id)
	}
}
