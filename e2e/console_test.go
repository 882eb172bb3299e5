package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"image/png"
	"net/smtp"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/normalized"
)

// screenshots is where make screenshots wants the pictures of the documentation.
var screenshots = flag.String("screenshots", "", "directory into which TestConsole writes pictures of its pages; empty = none")

// consoleTest is a server for mail with a browser in which an operator works.
type consoleTest struct {
	*chromium
	*post
	held []string // turns that stay held, for the lists of pages
	link string   // of a demand that is open
}

// TestConsole works as operators do: one server, one browser, from the first login to pages full of what strangers wrote.
func TestConsole(t *testing.T) {
	desk := startScripted(t, func(m normalized.Message) normalized.Response { return say("We open at eight.") })
	booker := startScripted(t, asksForConsent)
	shop := startScripted(t, refunds)
	away, back := outOfService(t)
	p := startPostWith(t, "", agents+booker.table("booker", "access = \"public\"")+desk.table("desk", `approve_replies = "always"`)+shop.table("shop", "")+
		"[[agents]]\nname = \"guide\"\nkind = \"echo\"\naccess = \"public\"\nunverified = \"answer\"\ndisplay_name = \"Guide\"\nsummary = \"Answers questions about opening hours and orders.\"\n",
		func(s *instance.Settings) { s.Smarthost = "smtp://" + away })
	c := &consoleTest{chromium: startChromium(t), post: p}
	c.do("a wide window", chromedp.EmulateViewport(1200, 800))

	c.bring(p.sender, "lost@sender.test", load.Mail{To: "echo@inbox.test", MessageID: "lost@sender.test", Subject: "Lost", Body: "Is anybody there?"})
	eventually(t, "the answer is given up", func() bool {
		return strings.Contains(p.inbox("deliveries", "list", "--state", "dead"), "lost@sender.test")
	})
	back()
	sink, err := load.NewSink(away, p.outbox.arrived)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sink.Close)
	c.unproven("bo@shop.test", load.Mail{To: "echo@inbox.test", MessageID: "held@shop.test", Subject: "Parcel", Body: "Where is my parcel?"})
	c.unproven("cy@shop.test", load.Mail{To: "echo@inbox.test", MessageID: "stays@shop.test", Subject: "Invoice", Body: "Please send the invoice again."})

	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"sign in by keyboard", c.signsInByKeyboard},
		{"release by keyboard", c.releasesByKeyboard},
		{"retry a dead letter", c.retries},
		{"edit and send an approval", c.approves},
		{"take over and hand back", c.takesOver},
		{"search an attachment", c.searches},
		{"a new agent answers", c.addsAgent},
		{"without scripts", c.readsWithoutScripts},
		{"colours", c.choosesDark},
		{"pictures", c.takesPictures},
		{"hostile texts on every page", c.showsNoMarkup},
		{"hostile texts by every channel", c.showsStrangers},
		{"every page for everybody", c.suitsEverybody},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			chromium, post := c.T, c.t
			c.T, c.t = t, t
			defer func() { c.T, c.t = chromium, post }()
			step.do(t)
		}) {
			break // what follows begins where this ended
		}
	}
}

// unproven brings a mail that nothing signed.
func (c *consoleTest) unproven(from string, mail load.Mail) {
	c.t.Helper()
	mail.From = from
	if err := smtp.SendMail(c.Settings.SMTP, nil, from, []string{mail.To}, mail.Bytes()); err != nil {
		c.t.Fatal(err)
	}
}

// comes waits for an expression to be true in a document that may be replaced meanwhile.
func (c *consoleTest) comes(what, expression string) {
	c.t.Helper()
	eventually(c.t, what, func() bool {
		got, err := chromedp.Run(c.page, chromedp.Evaluate[bool](`Boolean(`+expression+`)`))
		return err == nil && got
	})
}

const (
	leaving   = `document.documentElement.dataset.left = '1'`
	thenThere = `document.documentElement.dataset.left === undefined && document.readyState === 'complete'`
)

// visit opens a page of the server.
func (c *consoleTest) visit(path string) {
	c.t.Helper()
	c.do("open "+path, chromedp.Navigate(c.URL()+path))
}

// press presses the first button or link in the content that is called so, and waits for the page that it leads to.
func (c *consoleTest) press(name string) {
	c.t.Helper()
	named, err := json.Marshal(name)
	if err != nil {
		c.t.Fatal(err)
	}
	found := c.script(`(() => { const one = [...document.querySelectorAll('main button, main a, .side button')].find((one) => one.textContent.trim() === ` + string(named) +
		`); if (!one) return document.querySelector('main').innerText; ` + leaving + `; one.click(); return ''; })()`)
	if found != "" {
		c.t.Fatalf("no button %q in:\n%s", name, found)
	}
	c.comes("the page behind "+name, thenThere)
}

// leadsTo returns the path to which the first link in the content leads that is called so.
func (c *consoleTest) leadsTo(name string) string {
	c.t.Helper()
	named, err := json.Marshal(name)
	if err != nil {
		c.t.Fatal(err)
	}
	path := c.script(`[...document.querySelectorAll('main a')].find((one) => one.textContent.trim() === ` + string(named) + `)?.getAttribute('href') ?? ''`)
	if !strings.HasPrefix(path, "/console/") {
		c.t.Fatalf("no link %q in:\n%s", name, c.script(`document.querySelector('main').innerText`))
	}
	return path
}

// fill puts a text into a field.
func (c *consoleTest) fill(selector, text string) {
	c.t.Helper()
	encoded, err := json.Marshal(text)
	if err != nil {
		c.t.Fatal(err)
	}
	c.script(`document.querySelector('` + selector + `').value = ` + string(encoded))
}

// shows demands that the page has a text.
func (c *consoleTest) shows(want string) {
	c.t.Helper()
	if got := c.script(`document.querySelector('main').innerText`); !strings.Contains(got, want) {
		c.t.Fatalf("%q is not in:\n%s", want, got)
	}
}

func (c *consoleTest) signIn(token string) {
	c.t.Helper()
	c.visit("/console/login")
	c.fill("#token-field", token)
	c.press("Sign in")
	c.comes("the console is there", `document.querySelector('.side') !== null`)
}

func (c *consoleTest) signOut() {
	c.t.Helper()
	c.press("Sign out")
}

// tabTo presses Tab until an element has the focus, which must be seen.
func (c *consoleTest) tabTo(what, isThere string) {
	c.t.Helper()
	for range 60 {
		c.do("tab", chromedp.KeyEvent(kb.Tab))
		if c.script(`(() => { const one = document.activeElement; return `+isThere+`; })()`) == "true" {
			if seen := c.script(`(() => { const one = document.activeElement, how = getComputedStyle(one); return one.matches(':focus-visible') && (how.outlineStyle !== 'none' || how.boxShadow !== 'none'); })()`); seen != "true" {
				c.t.Errorf("the focus on %s is not seen", what)
			}
			return
		}
	}
	c.t.Fatalf("Tab never leads to %s", what)
}

// enter presses Enter and waits for the next page.
func (c *consoleTest) enter(what string) {
	c.t.Helper()
	c.script(`(() => { ` + leaving + `; return ''; })()`)
	c.do("enter", chromedp.KeyEvent(kb.Enter))
	c.comes(what, thenThere)
}

func (c *consoleTest) signsInByKeyboard(t *testing.T) {
	c.visit("/console/work/held")
	if got := c.script(`location.pathname`); got != "/console/login" {
		t.Fatalf("who is not signed in is on %s", got)
	}
	c.tabTo("the field of the token", `one.id === 'token-field'`)
	c.do("write a wrong token", chromedp.KeyEvent("wrong"))
	c.enter("the refusal")
	if got := c.script(`document.querySelector('.notice.bad') !== null && document.querySelector('.side') === null`); got != "true" {
		t.Fatal("a wrong token is not refused on the page")
	}
	c.tabTo("the field of the token", `one.id === 'token-field'`)
	c.do("write the token", chromedp.KeyEvent(c.adminToken()))
	c.enter("the page that was asked for")
	if got := c.script(`location.pathname + location.search`); got != "/console/work?list=held" {
		t.Errorf("after the login the page is %s", got)
	}
}

func (c *consoleTest) releasesByKeyboard(t *testing.T) {
	c.visit("/console/work/held")
	c.tabTo("the message", `one.localName === 'a' && one.textContent.includes('bo@shop.test')`)
	c.enter("the held message")
	c.shows("Where is my parcel?")
	c.tabTo("the release", `one.localName === 'button' && one.textContent.trim() === 'Release'`)
	c.enter("the list")
	c.shows("1 message was released")
	c.outbox.await(t, "held@shop.test")
	if state := c.state("stays@shop.test"); state != exchange.StateHeld {
		t.Errorf("the other message is %s", state)
	}
}

func (c *consoleTest) retries(t *testing.T) {
	for _, open := range decodedAs[struct{ Breakers []struct{ Target string } }](t, c.inbox("waiting", "--json")).Breakers {
		c.inbox("breakers", "close", open.Target)
	}
	c.visit("/console/work/deliveries")
	c.press("Choose all on this page")
	c.press("Try what is chosen again")
	c.shows("1 delivery is tried again.")
	c.outbox.await(t, "lost@sender.test")
	c.visit("/console/work/deliveries")
	c.shows("Every answer is on its way")
}

func (c *consoleTest) approves(t *testing.T) {
	const id = "hours@sender.test"
	c.bring(c.sender, "ann@sender.test", load.Mail{To: "desk@inbox.test", MessageID: id, Subject: "Hours", Body: "When do you open?"})
	c.waiting(id)
	c.visit("/console/work/approvals")
	c.script(`(() => { ` + leaving + `; document.querySelector('main tbody a').click(); return ''; })()`)
	c.comes("the approval", thenThere)
	c.shows("We open at eight.")
	c.fill("#text", "We open at nine.")
	c.press("Compare with the old text")
	c.shows("Nothing is stored or sent so far.")
	if got := c.script(`[document.querySelector('del')?.textContent, document.querySelector('ins')?.textContent].join()`); !strings.Contains(got, "eight") || !strings.Contains(got, "nine") {
		t.Errorf("compared: %s", got)
	}
	c.press("Save and send")
	if answer := plain(c.outbox.await(t, id).Raw); !strings.Contains(answer, "We open at nine.") || strings.Contains(answer, "eight") {
		t.Errorf("sent: %s", answer)
	}
}

// conversation is the page of the conversation of a mail.
func (c *consoleTest) conversation(id string) {
	c.t.Helper()
	c.visit("/console/messages/" + c.turn(id))
	c.press("Conversation")
}

// turn is the id of the turn of a mail.
func (c *consoleTest) turn(id string) string {
	c.t.Helper()
	found, err := c.Column(c.t.Context(), "SELECT id FROM turns WHERE native_id = $1", id)
	if err != nil || len(found) != 1 {
		c.t.Fatalf("turns of %s: %v, %v", id, found, err)
	}
	return found[0]
}

func (c *consoleTest) takesOver(t *testing.T) {
	const first, second = "talk-1@sender.test", "talk-2@sender.test"
	c.bring(c.sender, "dee@sender.test", load.Mail{To: "echo@inbox.test", MessageID: first, Subject: "Order 17", Body: "I want to change my order."})
	reply := c.outbox.await(t, first)
	token := func(name string) string {
		lines := strings.Fields(c.inbox("tokens", "create", "--work", name))
		return lines[len(lines)-1]
	}
	c.conversation(first)
	c.signOut()
	c.signIn(token("anna"))
	c.conversation(first)
	c.press("Take over")
	c.shows("The agent is silent in this conversation.")
	c.bring(c.sender, "dee@sender.test", load.Mail{
		To: "echo@inbox.test", MessageID: second, Subject: "Re: Order 17", Body: "Two of them, please.",
		Extra: map[string]string{"In-Reply-To": "<" + reply.Field("Message-ID") + ">", "References": "<" + reply.Field("Message-ID") + ">"},
	})
	c.waiting(second)
	c.signOut()

	c.signIn(token("bert"))
	c.conversation(first)
	c.shows("anna")
	if got := c.script(`document.querySelector('#reply') === null`); got != "true" {
		t.Error("a second operator may write")
	}
	c.press("Take it from anna")
	c.fill("#reply", "Dee, this is a person: two it is.")
	c.press("Send")
	c.shows("Your answer leaves now.")
	if answer := plain(c.outbox.await(t, second).Raw); !strings.Contains(answer, "this is a person") {
		t.Errorf("the mail of the operator: %s", answer)
	}
	c.script(`document.querySelector('#conversation details.fold').open = true`)
	c.press("Hand back")
	c.shows("echo answers again.")
	c.signOut()
	c.signIn(c.adminToken())
}

// withFile writes a mail with a text and attached files.
func withFile(from, to, id, subject, text string, names ...string) []byte {
	var mail bytes.Buffer
	fmt.Fprintf(&mail, "From: %s\r\nTo: %s\r\nSubject: %s\r\nMessage-ID: <%s>\r\nDate: Mon, 23 Nov 2026 12:00:00 +0000\r\nMIME-Version: 1.0\r\n", from, to, subject, id)
	fmt.Fprint(&mail, "Content-Type: multipart/mixed; boundary=limit\r\n\r\n--limit\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n",
		wrapped(text), "\r\n")
	for _, name := range names {
		fmt.Fprintf(&mail, "--limit\r\nContent-Type: text/plain\r\nContent-Disposition: attachment;\r\n filename=\"%s\"\r\n\r\ncontent\r\n", encodedWords(name))
	}
	fmt.Fprint(&mail, "--limit--\r\n")
	return mail.Bytes()
}

// wrapped is base64 in lines.
func wrapped(text string) string {
	lines := slices.Collect(slices.Chunk([]byte(base64.StdEncoding.EncodeToString([]byte(text))), 76))
	return string(bytes.Join(lines, []byte("\r\n")))
}

// encodedWords are encoded words (RFC 2047), also of texts that would do without.
func encodedWords(text string) string {
	var encoded []string
	for some := range slices.Chunk([]rune(text), 10) {
		encoded = append(encoded, "=?utf-8?b?"+base64.StdEncoding.EncodeToString([]byte(string(some)))+"?=")
	}
	return strings.Join(encoded, "\r\n ")
}

// posts brings a mail as it is.
func (c *consoleTest) posts(from, to string, mail []byte) {
	c.t.Helper()
	if err := smtp.SendMail(c.Settings.SMTP, nil, from, []string{to}, mail); err != nil {
		c.t.Fatal(err)
	}
}

func (c *consoleTest) searches(t *testing.T) {
	const id = "plan@sender.test"
	signed, err := c.sender.Sign(withFile(`"Ann Sender" <ann@sender.test>`, "echo@inbox.test", id, "The plan", "Here it is.", "kitchen blueprint.txt"))
	if err != nil {
		t.Fatal(err)
	}
	c.posts("ann@sender.test", "echo@inbox.test", signed)
	c.outbox.await(t, id)
	eventually(t, "the search index has the file name", func() bool {
		c.visit("/console/inbox?text=blueprint")
		return c.script(`document.querySelectorAll('main a.row').length`) != "0"
	})
	c.visit("/console/inbox")
	c.fill("input[name=text]", "blueprint")
	c.script(`(() => { ` + leaving + `; document.querySelector('form.search').requestSubmit(); return ''; })()`)
	c.comes("what was found", thenThere)
	if got := c.script(`[...document.querySelectorAll('main a.row')].map((one) => new URL(one.href).pathname).join()`); got != "/console/messages/"+c.turn(id) {
		t.Errorf("found: %s in %s", got, c.script(`document.querySelector('main').innerText`))
	}
}

// addsAgent writes a new agent into the settings by the form, talks to it in the console, and has a stranger write to its address.
func (c *consoleTest) addsAgent(t *testing.T) {
	c.visit("/console/agents")
	c.press("New agent")
	c.fill("#name", "parrot")
	c.fill("#kind", "echo")
	c.fill("#access", "public")
	c.fill("#summary", "Says it again.")
	c.press("Show what is written")
	c.shows(`name = "parrot"`)
	c.press("Write it and begin")
	c.shows("parrot is there.")
	c.shows("parrot@inbox.test")

	c.fill("#say", "Is anybody in the new house?")
	c.press("Send")
	message := c.script(`location.pathname`)
	if !strings.HasPrefix(message, "/console/messages/") {
		t.Fatalf("a message from the page leads to %s", message)
	}
	eventually(t, "the new agent answers the operator", func() bool {
		c.visit(message)
		return strings.Count(c.script(`document.querySelector('section[aria-labelledby=answer]').innerText`), "Is anybody in the new house?") == 1
	})

	const id = "parrot@sender.test"
	c.bring(c.sender, "ann@sender.test", load.Mail{To: "parrot@inbox.test", MessageID: id, Subject: "Hello", Body: "Do you talk to strangers?"})
	if answer := plain(c.outbox.await(t, id).Raw); !strings.Contains(answer, "Do you talk to strangers?") {
		t.Errorf("the new agent writes: %s", answer)
	}
}

// scripts switches the scripts of pages.
func (b *chromium) scripts(off bool) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: off})
		return err
	})
}

func (c *consoleTest) readsWithoutScripts(t *testing.T) {
	c.do("no scripts", c.scripts(true))
	defer c.do("scripts again", c.scripts(false))
	c.visit("/console/inbox")
	if got := c.script(`window.htmx === undefined`); got != "true" {
		t.Error("scripts run")
	}
	c.shows("Two of them, please.")
	c.script(`(() => { ` + leaving + `; document.querySelector('#rows section[aria-labelledby=unread] a.row, #rows section[aria-label=Conversations] a.row').click(); return ''; })()`)
	c.comes("the conversation", thenThere)
	c.shows("Write as")
}

func (c *consoleTest) choosesDark(t *testing.T) {
	const luminance = `(() => { const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g).map(Number); return (r + g + b) / 3; })()`
	c.visit("/console/inbox")
	for _, scheme := range []string{"dark", "light"} { // the system's wish at the end, which holds without a choice
		c.do(scheme, c.colors(scheme))
		c.comes("the page is "+scheme, fmt.Sprintf(`(%s < 80) === %t`, luminance, scheme == "dark"))
	}
	choose := func(theme string) {
		c.script(`(() => { const one = document.querySelector('[data-theme-choice]'); one.value = '` + theme + `'; one.dispatchEvent(new Event('change', { bubbles: true })); return ''; })()`)
	}
	choose("dark")
	c.visit("/console/work/held")
	c.comes("the choice stays", luminance+` < 80`)
	choose("")
	c.comes("the choice is undone", luminance+` > 175`)
}

// pages is every page that is shown to someone. Pages of further sections are added here.
func (c *consoleTest) pages() []string {
	pages := []string{
		"/", "/@guide", "/@guide/follow", "/@guide/chat", "/@nobody", "/docs", "/docs/configuration", "/docs/search?q=dmarc", "/docs/search?q=nothingofthekind", c.link, "/console/login",
		"/console/inbox", "/console/work", "/console/inbox?text=pwned", "/console/inbox?text=nothingofthekind", "/console/find?text=x", "/console/confirm",
	}
	for _, list := range []string{"held", "approvals", "approvals?status=all", "tools", "demands", "failed", "failed/retry", "deliveries", "deliveries/retry", "jobs", "jobs/retry", "mailbox", "reports", "suppressed", "breakers"} {
		pages = append(pages, "/console/work/"+list) // the former addresses of lists lead to the filter
	}
	for _, path := range []string{"/overview", "/overview?period=30d", "/agents", "/agents/echo", "/agents/tokens", "/agents/new", "/agents/echo/access"} {
		pages = append(pages, "/console"+path)
	}
	for _, part := range []string{"", "/checks", "/senders", "/senders?list=allow", "/records", "/records?part=notices", "/access"} {
		pages = append(pages, "/console/settings"+part)
	}
	return append(pages, "/console/work/held/"+c.held[0])
}

// takesPictures is the documentation's view of the console.
func (c *consoleTest) takesPictures(t *testing.T) {
	if *screenshots == "" {
		return
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	held := c.turn("stays@shop.test")
	c.visit("/console/messages/" + c.turn("talk-2@sender.test"))
	conversation := c.leadsTo("Conversation")
	for _, picture := range []struct{ name, path, scheme string }{
		{"overview", "/console/overview", "light"}, {"inbox", conversation, "light"}, {"inbox-dark", conversation, "dark"},
		{"message", "/console/messages/" + c.turn("talk-2@sender.test"), "light"}, {"work", "/console/work/held/" + held, "light"},
		{"profile", "/@guide", "light"}, {"chat", "/@guide/chat", "light"},
	} {
		width, height := int64(1100), int64(720)
		if picture.path == conversation {
			width, height = 1200, 560 // three panes
		}
		c.do(picture.scheme, c.colors(picture.scheme), chromedp.EmulateViewport(width, height))
		c.visit(picture.path)
		if picture.name == "overview" { // which counts once a minute
			eventuallyLong(t, "the overview has figures", func() bool {
				c.visit(picture.path)
				return c.script(`document.querySelector('svg.chart') !== null`) == "true"
			})
		}
		if picture.name == "chat" {
			c.until("the chat is there", `chat !== undefined && chat.querySelector('form') !== null`)
			c.says("When do you open on Sunday?")
			c.until("the answer is whole", `chat.querySelector('[role=log] > li.assistant:last-child:not([aria-busy])') !== null && !chat.querySelector('button[type=submit]').disabled`)
		}
		image, err := chromedp.Run(c.page, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		small, err := smallPNG(image)
		if err != nil {
			t.Fatal(err)
		}
		if len(small) > 150<<10 {
			t.Errorf("%s has %d bytes", picture.name, len(small))
		}
		if err := os.WriteFile(filepath.Join(*screenshots, picture.name+".png"), small, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c.do("light", c.colors("light"))
	c.do("a wide window", chromedp.EmulateViewport(1200, 800))
}

// hostile are texts of strangers that try to leave their place: markup of every kind, addresses, templates, directions, sizes.
func hostile() []string {
	return append(slices.Clone(attacks),
		`"><script>pwned=1</script>`, `'><img src=x onerror=pwned=1>`, `</textarea><script>pwned=1</script>`, `</title><script>pwned=1</script>`,
		`</bdi></pre></td></table><script>pwned=1</script>`, `<!--><script>pwned=1</script>-->`, `<![CDATA[<script>pwned=1</script>]]>`, `<script src=//x.test/a.js></script>`,
		`<img src=//x.test/a.png>`, `<video src=//x.test/v autoplay>`, `<object data=//x.test/o></object>`, `<embed src=//x.test/e>`, `<style>@import "//x.test/s.css";</style>`,
		`<p style="background:url(//x.test/b.png)">`, `<meta http-equiv=refresh content="0;url=//x.test">`, `<div hx-get="//x.test" hx-trigger=load>`, `<div data-hx-on="load: pwned=1">`,
		`<a href="javascript:pwned=1" autofocus>x</a>`, `<marquee onstart=pwned=1>`, `<template><script>pwned=1</script></template>`, `<custom-element onclick=pwned=1 tabindex=1 autofocus>`,
		`{{constructor.constructor('pwned=1')()}}`, `${pwned=1}`, `<%= pwned=1 %>`, `{% raw %}`, `{{.CSRF}}`, `javascript:pwned=1`, `data:text/html,<script>pwned=1</script>`,
		"\u202Egnp.exe\u202C", "\u2066\u2067\u2068x", "a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309\u030A", strings.Repeat("W", 400), strings.Repeat("\u200b", 60)+"x",
		"\u0007\u001b[31mred", strings.Repeat("\U0001F469\u200D", 40), strings.Repeat("\u1100", 200), strings.Repeat("\u0915\u094d", 100), "\uFEFF\uFFFE\uFFFD", "&lt;script&gt;pwned=1&lt;/script&gt;", "&#60;img src=x onerror=pwned=1&#62;",
	)
}

// showsNoMarkup brings hostile texts in every field of a mail and looks at them on every page that shows one.
func (c *consoleTest) showsNoMarkup(t *testing.T) {
	payloads := hostile()
	if len(payloads) < 60 {
		t.Fatalf("only %d payloads", len(payloads))
	}
	all := strings.Join(payloads, "\n\n")
	var ids []string
	for i, group := range grouped(payloads) {
		id := fmt.Sprintf("evil-%d@evil.test", i)
		text := group + "\nhttps://x.test/" + url.QueryEscape(group)
		to := "echo@inbox.test"
		if i%6 == 0 {
			text, to = all, "open@inbox.test" // whose answer says it all again
		}
		from := fmt.Sprintf("evil%d@evil.test", i)
		c.posts(from, to, withFile(encodedWords("its-name "+group)+" <"+from+">", to, id, encodedWords("its-subject "+group), text, group+".txt", fileName(group)+".txt"))
		ids = append(ids, id)
	}
	c.bring(c.sender, "eve@sender.test", load.Mail{To: "booker@inbox.test", MessageID: "demand@sender.test", Subject: "pwned", Body: all})
	c.bring(c.sender, "eve@sender.test", load.Mail{To: "shop@inbox.test", MessageID: "approve@sender.test", Subject: "pwned", Body: "refund " + all})
	c.bring(c.sender, "eve@sender.test", load.Mail{To: "desk@inbox.test", MessageID: "draft@sender.test", Subject: "pwned", Body: all})
	c.link = strings.TrimPrefix(findLink(t, plain(c.outbox.await(t, "demand@sender.test").Raw)), c.URL())
	c.waiting("approve@sender.test")
	c.waiting("draft@sender.test")

	var visits []string
	for i, id := range ids {
		state := c.state(id)
		if i%6 != 0 && state != exchange.StateHeld {
			t.Fatalf("%s is %s", id, state)
		}
		turn := c.turn(id)
		visits = append(visits, "/console/messages/"+turn)
		if state == exchange.StateHeld {
			c.held = append(c.held, turn)
			visits = append(visits, "/console/work/held/"+turn)
		}
		visits = append(visits, "/console/messages/"+turn+"/raw", "/console/person?who="+url.QueryEscape(fmt.Sprintf("evil%d@evil.test", i)))
	}
	visits = append(visits, "/console/inbox", "/console/work/held", "/console/work/approvals", "/console/work/demands", c.link)

	c.small()
	look := c.harmless
	for _, path := range visits {
		c.visit(path)
		look(path)
		if strings.HasPrefix(path, "/console/messages/") && !strings.HasSuffix(path, "/raw") {
			for _, field := range []string{"its-name ", "its-file "} {
				c.shows(field)
			}
		}
	}
	for _, id := range ids {
		c.conversation(id)
		look("the conversation of " + id)
	}
	c.onlyOwn(t)
}

// small makes a small screen, and forgets what was loaded before.
func (c *consoleTest) small() {
	c.t.Helper()
	c.do("a small screen", chromedp.EmulateViewport(360, 740))
	c.loaded()
}

// harmless demands of the page that is open that no text of strangers became more than text.
func (c *consoleTest) harmless(path string) {
	c.t.Helper()
	if wrong := c.script(wrongOnPage); wrong != "" {
		c.t.Errorf("%s: %s; too wide: %s", path, wrong, c.script(wide))
	}
}

// wrongOnPage names what a text of a stranger did to a page; empty = nothing.
const wrongOnPage = `Object.entries({
	'a script ran': window.pwned !== undefined,
	'it is wider than the screen': document.scrollingElement.scrollWidth > innerWidth,
	'it has elements': document.querySelector('main :is(script, style, iframe, object, embed, img[src^="//"], base, meta, link, math, template, marquee, video, [onerror], [onload], [hx-get^="//"])') !== null,
	'a link leads elsewhere than to an address': [...document.querySelectorAll('main a[href]')].some((a) => !/^(https?|mailto):/.test(a.href)),
	'it has no content': document.querySelector('main h1') === null,
}).filter(([, is]) => is).map(([what]) => what).join(', ')`

// wide names what is wider than the page.
const wide = `[...document.querySelectorAll('main *')].filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.scroll, pre')).slice(0, 6).map((one) => one.localName + '.' + one.className + ' ' + one.textContent.slice(0, 40)).join(' … ')`

// onlyOwn demands that nothing was loaded from elsewhere and nothing went wrong.
func (c *consoleTest) onlyOwn(t *testing.T) {
	t.Helper()
	loaded := c.loaded()
	if len(loaded) == 0 {
		t.Error("no request was seen; the test proves nothing")
	}
	for _, address := range loaded {
		if !strings.HasPrefix(address, c.URL()+"/") && !strings.HasPrefix(address, "data:") {
			t.Errorf("a page loads %s", address)
		}
	}
	for len(c.problems) > 0 {
		t.Errorf("the console says: %s", <-c.problems)
	}
}

// suitsEverybody asks axe about every page, in light and dark, wide and on a phone.
func (c *consoleTest) suitsEverybody(t *testing.T) {
	axe, err := os.ReadFile("peers/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("run scripts/install-test-dependencies: %v", err)
	}
	pages := append(c.pages(), "/console/messages/"+c.held[0], "/console/messages/"+c.held[0]+"/raw", "/console/messages/"+c.turn("talk-2@sender.test"),
		"/console/person?who="+url.QueryEscape("dee@sender.test"))
	for _, approval := range c.approvals() {
		pages = append(pages, "/console/work/approvals/"+approval.ID)
	}
	for i, path := range pages {
		scheme := []string{"light", "dark"}[i%2]
		c.do(scheme, c.colors(scheme), chromedp.EmulateViewport(360, 740))
		c.visit(path)
		if got := c.script(`document.scrollingElement.scrollWidth <= innerWidth`); got != "true" {
			t.Errorf("%s is wider than 360 pixels: %s", path, c.script(wide))
		}
		if got := c.script(`document.querySelector('main h1') !== null`); got != "true" {
			t.Errorf("%s is no page", path)
		}
		c.judged(t, string(axe), path+" on a phone, "+scheme)
		if i%4 == 0 { // rules about sizes and colours apply alike; what differs is the frame
			scheme = []string{"dark", "light"}[i%2]
			c.do(scheme, c.colors(scheme), chromedp.EmulateViewport(1200, 800))
			c.judged(t, "", path+" on a desk, "+scheme)
		}
	}
	c.onlyOwn(t)
}

// judged reports what axe finds serious or critical on the page that is open. A script is given once a page.
func (c *consoleTest) judged(t *testing.T, axe, where string) {
	t.Helper()
	verdict, err := chromedp.Run(c.page, chromedp.Evaluate[string](axe+`; axe.run(document, { resultTypes: ['violations'] }).then((found) =>
		found.violations.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => one.id + ' at ' + one.nodes.slice(0, 3).map((node) => node.target + ' (' + node.failureSummary + ')').join(', ')).join('; '))`,
		chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("axe on %s: %v", where, err)
	}
	if verdict != "" {
		t.Errorf("%s: %s", where, verdict)
	}
}

// smallPNG writes a picture again, as small as it gets without a loss.
func smallPNG(picture []byte) ([]byte, error) {
	decoded, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	var small bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&small, decoded)
	return small.Bytes(), err
}
