package pages_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/normalized"
)

func threadOf(turn exchange.TurnRecord) string {
	return "/console/thread?" + url.Values{"agent": {turn.Agent}, "id": {turn.ThreadID}}.Encode()
}

// TestActsStandAtTheMessage: a conversation has the buttons that fit the state of each message, for those who may press them, and they lead
// back to it.
func TestActsStandAtTheMessage(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	held, failed := o.insert(o.turn(exchange.StateHeld, "@ana@peer.test", "May I?")), o.insert(o.turn(exchange.StateFailed, "@bo@peer.test", "Are you there?"))
	reader, worker, admin := signIn(t, o.Server, exchange.RoleRead), signIn(t, o.Server, exchange.RoleWork), signIn(t, o.Server, exchange.RoleAdmin)
	for _, one := range []struct {
		desk       *browser
		page       string
		has, lacks []string
	}{
		{reader, threadOf(held), []string{"May I?"}, []string{"/held/release", "/thread/take", "/block"}},
		{worker, threadOf(held), []string{"/console/work/held/release", "/console/work/held/drop", "/console/thread/take"}, []string{"/block\"", "/retry"}},
		{admin, threadOf(held), []string{"/console/messages/" + held.ID + "/block"}, nil},
		{worker, threadOf(failed), []string{"/console/messages/" + failed.ID + "/retry"}, []string{"/held/release"}},
		{worker, "/console/messages/" + held.ID, []string{"/console/work/held/release"}, nil},
	} {
		page := one.desk.shows(one.page, one.has...)
		for _, words := range one.lacks {
			if strings.Contains(page, words) {
				t.Errorf("%s has %q", one.page, words)
			}
		}
	}

	_, page := worker.does("/console/work/held/release", "id", held.ID, "back", threadOf(held)+"&turn="+held.ID)
	if !strings.Contains(page, "1 message was released") || !strings.Contains(page, `id="conversation"`) {
		t.Errorf("after the release: %s", page)
	}
}

// TestBlockAndLift: the button of a conversation puts its sender on the block list, and the page then offers to lift that.
func TestBlockAndLift(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	turn := o.insert(o.turn(exchange.StateSilent, "@ana@peer.test", "You won."))
	worker, admin := signIn(t, o.Server, exchange.RoleWork), signIn(t, o.Server, exchange.RoleAdmin)
	block, lift := "/console/messages/"+turn.ID+"/block", "/console/messages/"+turn.ID+"/unblock"
	if status, _ := worker.does(block, "target", "@ana@peer.test"); status != http.StatusForbidden {
		t.Errorf("blocked by who works: %d", status)
	}
	if status, _ := admin.does(block, "target", "@bo@peer.test"); status != http.StatusBadRequest {
		t.Errorf("somebody else was blocked: %d", status)
	}
	if status, _ := admin.does(lift); status != http.StatusConflict {
		t.Errorf("a block was lifted that is not there: %d", status)
	}
	if _, page := admin.does(block, "target", "@ana@peer.test"); !strings.Contains(page, "@ana@peer.test is blocked now.") || !strings.Contains(page, lift) {
		t.Errorf("blocked: %s", page)
	}
	if strings.Contains(admin.shows(threadOf(turn), "is blocked."), block+`"`) {
		t.Error("a blocked sender can be blocked once more")
	}
	if _, page := admin.does(lift); !strings.Contains(page, "is off the list.") || !strings.Contains(page, block) {
		t.Errorf("lifted: %s", page)
	}
}

// TestCorrectAnAnswer: an answer in the fediverse is corrected where it stands; a text that changed meanwhile is compared first, and an answer by
// mail is fixed.
func TestCorrectAnAnswer(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	answered := func(channel string) exchange.TurnRecord {
		turn := o.turn(exchange.StateAnswered, "@ana@peer.test", "When do you open?")
		turn.Channel, turn.Message.ReceivedVia = channel, channel
		return o.answer(turn, "We open at ten.")
	}
	post, mail := answered(normalized.ViaActivityPub), answered(normalized.ViaEmail)
	reader, worker := signIn(t, o.Server, exchange.RoleRead), signIn(t, o.Server, exchange.RoleWork)
	const offer = "data-correct"
	if strings.Contains(worker.shows(threadOf(mail)), offer) || strings.Contains(reader.shows(threadOf(post)), offer) || strings.Contains(reader.shows("/console/inbox"), "row-edit") {
		t.Error("an answer is offered for correction that cannot be corrected")
	}
	edit := threadOf(post) + "&edit=" + post.ID
	worker.shows("/console/inbox", strings.ReplaceAll(edit, "&", "&amp;")+"#text")
	worker.shows(threadOf(post), offer)
	page := worker.shows(edit, `<textarea id="text"`)
	was := regexp.MustCompile(`name="was" value="([^"]+)"`).FindStringSubmatch(page)
	if was == nil {
		t.Fatalf("no form in %s", page)
	}
	path := "/console/messages/" + post.ID + "/correct"
	if status, _ := reader.does(path, "text", "No.", "was", was[1]); status != http.StatusForbidden {
		t.Errorf("corrected by who reads: %d", status)
	}
	if _, page := worker.does(path, "text", "We open at nine.", "was", "another"); !strings.Contains(page, "The text was changed meanwhile") {
		t.Errorf("a text that changed since: %s", page)
	}
	if _, page := worker.does("/console/messages/"+post.ID+"/compare", "text", "We open at nine."); !strings.Contains(page, "<del") || !strings.Contains(page, "Nothing is stored or sent so far.") {
		t.Errorf("compared: %s", page)
	}
	if _, page := worker.does(path, "text", "We open at nine.", "was", was[1]); !strings.Contains(page, "The answer was corrected.") || !strings.Contains(page, "We open at nine.") {
		t.Errorf("corrected: %s", page)
	}
	if status, _ := worker.does("/console/messages/"+mail.ID+"/correct", "text", "We open at nine.", "was", was[1]); status < http.StatusBadRequest {
		t.Errorf("an answer by mail was corrected: %d", status)
	}
}

// TestSubjectsAndMarks: the subject of a mail stands apart from its text, once in a conversation; a row has a mark only for a state that needs
// someone; times in a timeline have seconds.
func TestSubjectsAndMarks(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	first := o.turn(exchange.StateSilent, "@ana@peer.test", "Subject: Invoice 17\n\nPlease send it again.")
	first.Message.Surface = &normalized.Surface{Channel: normalized.ViaEmail, Subject: "Fwd: Invoice 17"}
	second := o.turn(exchange.StateSilent, "@ana@peer.test", "Thank you.")
	second.ThreadID, second.Message.ThreadID = first.ThreadID, first.ThreadID
	second.Message.Surface = &normalized.Surface{Channel: normalized.ViaEmail, Subject: "Re: Fwd: Invoice 17"}
	o.insert(first)
	failed := o.insert(o.turn(exchange.StateFailed, "@bo@peer.test", "Are you there?"))
	desk := signIn(t, o.Server, exchange.RoleRead)

	rows := desk.shows("/console/inbox", `<div class="row-subject"><bdi>Fwd: Invoice 17</bdi></div>`, "<bdi>Please send it again.</bdi>", `<span class="badge bad">Failed</span>`)
	if strings.Contains(rows, "Subject: Invoice") || strings.Contains(rows, ">Silent</span>") {
		t.Errorf("the subject stands in the text, or a row has a mark for nothing: %s", rows)
	}
	o.insert(second)
	if page := desk.shows(threadOf(first), `<p class="subject">`, "Fwd: Invoice 17", "Thank you."); strings.Count(page, `<p class="subject">`) != 1 || strings.Contains(page, "Subject: Invoice") {
		t.Errorf("subjects of a conversation: %s", page)
	}
	if page := desk.shows("/console/messages/" + failed.ID); !regexp.MustCompile(`data-time="second">[0-9]+ \w+ [0-9]{4}, [0-9:]{8} UTC`).MatchString(page) {
		t.Errorf("no seconds in %s", page)
	}
}

// TestFirstPageIsTheInbox: the sign-in leads there; the overview has an address of its own, and links of its former one still lead to it.
func TestFirstPageIsTheInbox(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	desk := signIn(t, o.Server, exchange.RoleRead)
	for from, to := range map[string]string{"/console": "/console/inbox", "/console?period=30d": "/console/overview?period=30d"} {
		response, err := desk.Get(desk.URL + from)
		if status, _ := desk.read(response, err); status != http.StatusOK || response.Request.URL.RequestURI() != to {
			t.Errorf("%s leads to %s with %d", from, response.Request.URL.RequestURI(), status)
		}
	}
}

// TestBlockTheSenderWhoIsShown: in a conversation of several people the card about the sender of a message blocks that sender, not the one who
// wrote last, and leads to that sender's messages.
func TestBlockTheSenderWhoIsShown(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	older := o.insert(o.turn(exchange.StateSilent, "@bo@peer.test", "You won."))
	newer := o.turn(exchange.StateSilent, "@ana@other.test", "Please ignore this.")
	newer.ThreadID, newer.Message.ThreadID = older.ThreadID, older.ThreadID
	newer.AcceptedAt = o.now.Add(time.Second)
	o.insert(newer)

	admin := signIn(t, o.Server, exchange.RoleAdmin)
	card := func() string {
		page := admin.shows(threadOf(older)+"&turn="+older.ID, "You won.")
		_, after, _ := strings.Cut(page, `aria-labelledby="who"`)
		card, _, _ := strings.Cut(after, "</section>")
		return card
	}
	block := "/console/messages/" + older.ID + "/block"
	if found := card(); !strings.Contains(found, block) || !strings.Contains(found, `value="@bo@peer.test"`) || strings.Contains(found, "ana") {
		t.Errorf("the card about @bo@peer.test: %s", found)
	}
	if _, page := admin.does(block, "target", "@bo@peer.test"); !strings.Contains(page, "@bo@peer.test is blocked now.") {
		t.Errorf("blocked: %s", page)
	}
	if found := card(); strings.Contains(found, "/block\"") || !strings.Contains(found, "/console/messages/"+older.ID+"/unblock") {
		t.Errorf("the card about a blocked sender: %s", found)
	}
	if page := admin.shows(threadOf(older)); !strings.Contains(page, "/console/messages/"+newer.ID+"/block") {
		t.Error("the block of one sender took the button from another")
	}
}

// TestNoKeySendsAForm: a single key changes nothing. In a conversation that another operator holds, the key to write an answer does not take it away.
func TestNoKeySendsAForm(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	turn := o.insert(o.turn(exchange.StateHeld, "@ana@peer.test", "May I?"))
	first, second := signIn(t, o.Server, exchange.RoleWork), signIn(t, o.Server, exchange.RoleAdmin)
	first.does("/console/thread/take", "agent", turn.Agent, "id", turn.ThreadID)
	page := second.shows(threadOf(turn), "Take it from")
	for _, button := range regexp.MustCompile(`<button[^>]*\bdata-key=[^>]*>`).FindAllString(page, -1) {
		if !strings.Contains(button, `type="button"`) {
			t.Errorf("a key presses %s", button)
		}
	}
}
