package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/normalized"
)

// operatorTasks is an operator who works from the first page of the console, with a mouse that counts its clicks or by keys alone.
type operatorTasks struct {
	*consoleTest
	community *fediverse
	clicks    int
}

// mostClicks is how many clicks any of the tasks may take from the first page after the sign-in.
const mostClicks = 2

// TestConsoleTasks does what operators do most often, each from the first page after the sign-in: release a held message, correct an answer, take a
// conversation over, block a sender, find a message. It takes at most two clicks on a desk and on a phone, and works by keys alone.
func TestConsoleTasks(t *testing.T) {
	desk := startScripted(t, func(normalized.Message) normalized.Response { return say("We open at eight.") })
	p := startPostWith(t, "", agents+desk.table("desk", `approve_replies = "always"`)+"[[agents]]\nname = \"parrot\"\nkind = \"echo\"\naccess = \"public\"\n")
	o := &operatorTasks{consoleTest: &consoleTest{chromium: startChromium(t), post: p}, community: startFediverse(t, 2)}
	o.signIn(o.adminToken())

	for _, width := range []int64{1280, 360} {
		for name, task := range map[string]func(*testing.T, string){
			"release": o.clicksRelease, "correct a post": o.clicksCorrect, "correct a draft": o.clicksDraft, "take over": o.clicksTakeOver, "block": o.clicksBlock, "find": o.clicksFind,
		} {
			o.run(t, fmt.Sprintf("%s at %d", name, width), func(t *testing.T) {
				o.do("the width", chromedp.EmulateViewport(width, 800))
				task(t, fmt.Sprintf("w%d", width))
				if o.clicks > mostClicks {
					t.Errorf("it took %d clicks", o.clicks)
				}
			})
		}
	}
	o.do("a desk", chromedp.EmulateViewport(1280, 800))
	for name, task := range map[string]func(*testing.T){
		"release": o.keysRelease, "correct a post": o.keysCorrect, "take over and reply": o.keysReply, "block": o.keysBlock, "find": o.keysFind, "keys that are off": o.keysOff,
	} {
		o.run(t, name+" by keys", task)
	}
	o.run(t, "for everybody", o.suits)
}

// run does one task with the failures of its own test.
func (o *operatorTasks) run(t *testing.T, name string, task func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		chromium, post := o.T, o.t
		o.T, o.t = t, t
		defer func() { o.T, o.t = chromium, post }()
		task(t)
	})
}

// firstPage opens the page that stands after the sign-in once a row of it says what is given, and begins to count.
func (o *operatorTasks) firstPage(says string) {
	o.t.Helper()
	eventually(o.t, "the first page shows "+says, func() bool {
		o.visit("/console")
		return says == "" || o.script(`[...document.querySelectorAll('a[data-row]')].some((one) => one.textContent.includes('`+says+`'))`) == "true"
	})
	if got := o.script(`location.pathname`); got != "/console/inbox" {
		o.t.Fatalf("the first page is %s", got)
	}
	if got := o.script(`document.scrollingElement.scrollWidth <= innerWidth`); got != "true" {
		o.t.Errorf("the first page is wider than the window: %s", o.script(wide))
	}
	o.clicks = 0
}

// click clicks with the mouse on what an expression finds, which must be in sight after a scroll, and waits for the page that it leads to.
func (o *operatorTasks) click(what, find string) {
	o.t.Helper()
	found := o.script(`(() => { const one = ` + find + `; if (!one || !one.checkVisibility()) return 'no'; one.setAttribute('data-target', ''); ` + leaving + `; return ''; })()`)
	if found != "" {
		o.t.Fatalf("no %s in:\n%s", what, o.script(`document.querySelector('main').innerText`))
	}
	o.do("click "+what, chromedp.Click(chromedp.CSS(`[data-target]`)))
	o.clicks++
	o.comes("the page behind "+what, thenThere)
}

// row is the expression that finds a row by what it says.
func row(says string) string {
	return `[...document.querySelectorAll('a[data-row]')].find((one) => one.textContent.includes('` + says + `'))`
}

// button finds a button or link of the content by its words.
func button(words string) string {
	return `[...document.querySelectorAll('main button, main a')].find((one) => one.textContent.trim() === '` + words + `' && one.checkVisibility())`
}

// answered brings a mail of a person at sender.test and waits for its answer.
func (o *operatorTasks) answered(id, subject, body string) {
	o.t.Helper()
	o.bring(o.sender, "dee@sender.test", load.Mail{To: "echo@inbox.test", MessageID: id, Subject: subject, Body: body})
	o.outbox.await(o.t, id)
}

// held brings a mail that nothing proves.
func (o *operatorTasks) holds(id, subject string) {
	o.t.Helper()
	o.unproven("bo@shop.test", load.Mail{To: "echo@inbox.test", MessageID: id, Subject: subject, Body: "Where is my parcel?"})
	eventually(o.t, "the message is held", func() bool { return o.state(id) == exchange.StateHeld })
}

// types replaces the text of the field that has the focus.
func (o *operatorTasks) types(text string) {
	o.t.Helper()
	if got := o.script(`document.activeElement.localName`); got != "textarea" {
		o.t.Fatalf("the focus is on a %s, and no text can be written", got)
	}
	o.script(`(() => { document.activeElement.select(); return ''; })()`)
	o.do("write", chromedp.KeyEvent(text))
}

func (o *operatorTasks) clicksRelease(t *testing.T, mark string) {
	id := mark + "-held@shop.test"
	o.holds(id, "Parcel "+mark)
	o.firstPage("Parcel " + mark)
	o.click("the row", row("Parcel "+mark))
	o.click("Release", button("Release"))
	o.shows("1 message was released")
	o.outbox.await(t, id)
}

func (o *operatorTasks) clicksCorrect(_ *testing.T, mark string) {
	said := "lamps of " + mark
	o.community.ask(o.server, "parrot", 0, said)
	o.firstPage(said)
	o.click("the pencil", row(said)+`.parentElement.querySelector('.row-edit')`)
	o.types("Corrected at " + mark)
	o.click("Save", button("Save"))
	o.shows("The answer was corrected.")
	o.shows("Corrected at " + mark)
}

func (o *operatorTasks) clicksDraft(t *testing.T, mark string) {
	id := mark + "-draft@sender.test"
	o.bring(o.sender, "ann@sender.test", load.Mail{To: "desk@inbox.test", MessageID: id, Subject: "Hours", Body: "When do you open?"})
	o.waiting(id)
	o.firstPage("We open at eight.")
	o.click("the pencil", row("We open at eight.")+`.parentElement.querySelector('.row-edit')`)
	o.types("We open at nine.")
	o.click("Save and send", button("Save and send"))
	if answer := plain(o.outbox.await(t, id).Raw); !strings.Contains(answer, "We open at nine.") {
		t.Errorf("sent: %s", answer)
	}
}

func (o *operatorTasks) clicksTakeOver(_ *testing.T, mark string) {
	o.answered(mark+"-talk@sender.test", "Order "+mark, "I want to change my order.")
	o.firstPage("Order " + mark)
	o.click("the row", row("Order "+mark))
	o.click("Take over", button("Take over"))
	o.shows("You write as echo now.")
}

func (o *operatorTasks) clicksBlock(t *testing.T, mark string) {
	from := "spam-" + mark + "@shop.test"
	o.unproven(from, load.Mail{To: "open@inbox.test", MessageID: mark + "-spam@shop.test", Subject: "Win " + mark, Body: "You won."})
	o.outbox.await(t, mark+"-spam@shop.test")
	o.firstPage("Win " + mark)
	o.click("the row", row("Win "+mark))
	o.click("Block sender", button("Block sender"))
	o.shows("is blocked now.")
	if list := o.inbox("block", "list"); !strings.Contains(list, "@"+from) {
		t.Errorf("the block list: %s", list)
	}
}

// indexed waits until the search index has a word.
func (o *operatorTasks) indexed(word string) {
	o.t.Helper()
	eventually(o.t, "the search index has "+word, func() bool {
		o.visit("/console/inbox?text=" + word)
		return o.script(`document.querySelectorAll('main a[data-row]').length`) != "0"
	})
}

func (o *operatorTasks) clicksFind(t *testing.T, mark string) {
	id, word := mark+"-find@sender.test", "zebra"+mark
	o.answered(id, "Animals", "Do you sell a "+word+"?")
	o.indexed(word)
	o.firstPage("")
	o.script(`(() => { document.querySelector('input[name=text]').setAttribute('data-field', ''); return ''; })()`)
	o.do("the field", chromedp.Click(chromedp.CSS(`[data-field]`)))
	o.clicks++
	o.do("the word", chromedp.KeyEvent(word))
	o.enter("what was found")
	o.click("the message", row(word))
	if got := o.script(`location.pathname`); got != "/console/messages/"+o.turn(id) {
		t.Errorf("found: %s", got)
	}
}

// key presses a key that leads to no other page.
func (o *operatorTasks) key(key string) {
	o.t.Helper()
	o.do("press "+key, chromedp.KeyEvent(key))
}

// goes presses a key that leads to another page.
func (o *operatorTasks) goes(key, what string) {
	o.t.Helper()
	o.script(`(() => { ` + leaving + `; return ''; })()`)
	o.do("press "+key, chromedp.KeyEvent(key))
	o.comes(what, thenThere)
}

// down goes down the list by j until a row has the focus that says what is given.
func (o *operatorTasks) down(says string) {
	o.t.Helper()
	for range 60 {
		o.key("j")
		if o.script(`document.activeElement.matches('[data-row]') && document.activeElement.textContent.includes('`+says+`')`) == "true" {
			return
		}
	}
	o.t.Fatalf("j never leads to %s", says)
}

func (o *operatorTasks) keysRelease(t *testing.T) {
	const id = "keys-held@shop.test"
	o.holds(id, "Parcel by keys")
	o.firstPage("Parcel by keys")
	o.down("Parcel by keys")
	o.enter("the conversation")
	o.tabTo("Release", `one.localName === 'button' && one.textContent.trim() === 'Release'`)
	o.enter("the release")
	o.shows("1 message was released")
	o.outbox.await(t, id)
}

func (o *operatorTasks) keysCorrect(*testing.T) {
	o.community.ask(o.server, "parrot", 1, "lamps by keys")
	o.firstPage("lamps by keys")
	o.down("lamps by keys")
	o.goes("e", "the answer as it can be corrected")
	o.types("Corrected by keys")
	o.tabTo("Save", `one.localName === 'button' && one.textContent.trim() === 'Save'`)
	o.enter("the conversation")
	o.shows("The answer was corrected.")
	o.goes("e", "the newest answer of the conversation")
	if got := o.script(`document.activeElement.value`); got != "Corrected by keys" {
		o.t.Errorf("e opens %q", got)
	}
}

func (o *operatorTasks) keysReply(t *testing.T) {
	const id = "keys-talk@sender.test"
	o.bring(o.sender, "kim@sender.test", load.Mail{To: "echo@inbox.test", MessageID: id, Subject: "Order by keys", Body: "I want to change my order."})
	reply := o.outbox.await(t, id)
	o.firstPage("Order by keys")
	o.down("Order by keys")
	o.enter("the conversation")
	o.tabTo("Take over", `one.localName === 'button' && one.textContent.trim() === 'Take over'`)
	o.enter("the takeover")
	o.shows("You write as echo now.")
	const second = "keys-talk-2@sender.test"
	o.bring(o.sender, "kim@sender.test", load.Mail{
		To: "echo@inbox.test", MessageID: second, Subject: "Re: Order by keys", Body: "Two of them, jokes and kites.",
		Extra: map[string]string{"In-Reply-To": "<" + reply.Field("Message-ID") + ">", "References": "<" + reply.Field("Message-ID") + ">"},
	})
	o.waiting(second)
	o.firstPage("jokes and kites")
	o.down("jokes and kites")
	o.goes("r", "the conversation with the field of the answer")
	o.comes("the focus in the field", `document.activeElement.id === 'reply'`)
	o.do("write", chromedp.KeyEvent("jerk? no: two it is"))
	if got := o.script(`document.activeElement.value`); got != "jerk? no: two it is" {
		t.Errorf("the field says %q: keys act while a person writes", got)
	}
	o.tabTo("Send", `one.localName === 'button' && one.textContent.trim() === 'Send'`)
	o.enter("the answer")
	if answer := plain(o.outbox.await(t, second).Raw); !strings.Contains(answer, "two it is") {
		t.Errorf("the mail of the operator: %s", answer)
	}
}

func (o *operatorTasks) keysBlock(t *testing.T) {
	o.unproven("spam-keys@shop.test", load.Mail{To: "open@inbox.test", MessageID: "keys-spam@shop.test", Subject: "Win by keys", Body: "You won."})
	o.outbox.await(t, "keys-spam@shop.test")
	o.firstPage("Win by keys")
	o.down("Win by keys")
	o.enter("the conversation")
	o.tabTo("Block sender", `one.localName === 'button' && one.textContent.trim() === 'Block sender'`)
	o.enter("the block")
	o.shows("is blocked now.")
	o.press("Lift the block")
	o.shows("is off the list.")
}

func (o *operatorTasks) keysFind(t *testing.T) {
	const id = "keys-find@sender.test"
	o.answered(id, "Animals", "Do you sell a zebrakeys?")
	o.indexed("zebrakeys")
	o.firstPage("")
	o.key("/")
	o.do("the word", chromedp.KeyEvent("zebrakeys"))
	o.enter("what was found")
	o.down("zebrakeys")
	o.enter("the message")
	if got := o.script(`location.pathname`); got != "/console/messages/"+o.turn(id) {
		t.Errorf("found: %s", got)
	}
}

// keysOff: keys of one character can be turned off, by keys too (WCAG 2.2, success criterion 2.1.4); the choice stays.
func (o *operatorTasks) keysOff(t *testing.T) {
	o.firstPage("Order")
	o.key("?")
	o.comes("the list of keys", `document.querySelector('dialog#keys[open]') !== null`)
	o.key(kb.Escape)
	o.comes("the list is gone", `document.querySelector('dialog#keys[open]') === null`)
	o.tabTo("the choice of keys", `one.matches('[data-keys]')`)
	o.key(" ")
	o.firstPage("Order")
	for _, key := range []string{"j", "k", "?", "/"} {
		o.key(key)
	}
	if got := o.script(`document.activeElement === document.body && document.querySelector('dialog[open]') === null`); got != "true" {
		t.Errorf("keys that are off lead to %s", o.script(`document.activeElement.outerHTML`))
	}
	o.tabTo("the choice of keys", `one.matches('[data-keys]')`)
	o.key(" ")
	o.firstPage("Order")
	o.key("j")
	if got := o.script(`document.activeElement.matches('[data-row]')`); got != "true" {
		t.Error("j does nothing after keys were turned on again")
	}
}

// suits asks axe about the panes, each at both widths, in light and dark.
func (o *operatorTasks) suits(t *testing.T) {
	axe, err := os.ReadFile("peers/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("run scripts/install-test-dependencies: %v", err)
	}
	o.firstPage("lamps")
	encoded := o.script(`JSON.stringify([...document.querySelectorAll('a[data-row]')].filter((one) => one.dataset.edit || one.getAttribute('href').startsWith('/console/thread')).flatMap((one) => [one.getAttribute('href'), one.dataset.edit]).filter(Boolean).slice(0, 6))`)
	var paths []string
	if err := json.Unmarshal([]byte(encoded), &paths); err != nil || len(paths) < 3 {
		t.Fatalf("%v in %s", err, encoded)
	}
	paths = append(paths, strings.Split(paths[0], "#")[0]+"#context", "/console/inbox", "/console/work")
	for i, path := range paths {
		scheme := []string{"light", "dark"}[i%2]
		for _, width := range []int64{1280, 360} {
			o.do(scheme, o.colors(scheme), chromedp.EmulateViewport(width, 800))
			o.visit("/console/agents") // a change of the fragment alone is no new page
			o.visit(path)
			if got := o.script(`document.scrollingElement.scrollWidth <= innerWidth`); got != "true" {
				t.Errorf("%s is wider than %d pixels: %s", path, width, o.script(wide))
			}
			o.judged(t, string(axe), fmt.Sprintf("%s at %d, %s", path, width, scheme))
		}
	}
	o.onlyOwn(t)
}
