package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// chromium is a headless Chromium with one page.
type chromium struct {
	*testing.T
	page     context.Context
	problems chan string // what its console says is wrong
}

func startChromium(t *testing.T) *chromium {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		t.Fatal("no Chromium was found: run scripts/install-test-dependencies (Debian package chromium)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(390, 800), chromedp.Flag("disable-dev-shm-usage", true))
	allocated, release := chromedp.NewExecAllocator(context.Background(), options...)
	b := &chromium{T: t, problems: make(chan string, 64)}
	page, shut := chromedp.NewContext(allocated, chromedp.WithListener(b.listen))
	limited, stop := context.WithTimeout(page, 5*time.Minute)
	t.Cleanup(func() {
		stop()
		_ = chromedp.Cancel(page) // waits until the browser is gone, so that its directory can be removed
		shut()
		release()
	})
	b.page = limited
	return b
}

// listen keeps what the page's scripts fail with.
func (b *chromium) listen(event any) {
	if thrown, is := event.(*runtime.EventExceptionThrown); is {
		select {
		case b.problems <- fmt.Sprintf("%+v", thrown):
		default:
		}
	}
}

func (b *chromium) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.page, steps...); err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

// shadow finds the chat of the page for the expressions below.
const shadow = `const chat = document.querySelector('.inbox-chat')?.shadowRoot;`

func (b *chromium) script(expression string) string {
	b.Helper()
	text, err := chromedp.Run(b.page, chromedp.Evaluate[string](`(() => { `+shadow+` return String(`+expression+`); })()`))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return text
}

// until waits for an expression to be true.
func (b *chromium) until(what, expression string) {
	b.Helper()
	eventually(b.T, what, func() bool { return b.script(expression) == "true" })
}

// says writes a message with the keyboard alone.
func (b *chromium) says(text string) {
	b.Helper()
	b.script(`chat.querySelector('textarea').focus()`)
	b.do("write", chromedp.KeyEvent(text+kb.Enter))
}

const chatLog = `[...chat.querySelectorAll('[role=log] > li')].map((item) => item.textContent.trim()).join(' | ')`

// TestWebChat talks to an agent from its page: send, stream, reload and resume, an error that is shown.
func TestWebChat(t *testing.T) {
	model := startChatModel(t)
	settings := model.agents()
	settings.Lease = "1s"
	s := start(t, settings)
	b := startChromium(t)
	b.do("open", chromedp.Navigate(s.URL()+"/@counter/chat"))
	b.until("the chat is there", `chat !== undefined && chat.querySelector('form') !== null`)
	for what, expression := range map[string]string{
		"the conversation is a log":        `chat.querySelector('[role=log]').getAttribute('aria-live') === 'polite'`,
		"the state is told":                `chat.querySelector('[role=status]') !== null && chat.querySelector('[role=alert]') !== null`,
		"everything has a name":            `[...chat.querySelectorAll('section, textarea, form, [role=log]')].every((part) => part.getAttribute('aria-label'))`,
		"the page fits on a phone":         `document.documentElement.scrollWidth <= innerWidth`,
		"nothing is loaded from elsewhere": `performance.getEntriesByType('resource').every((one) => one.name.startsWith(location.origin))`,
		"the styles are in force":          `getComputedStyle(chat.querySelector('form')).display === 'flex'`,
	} {
		if got := b.script(expression); got != "true" {
			t.Errorf("%s: %s", what, got)
		}
	}

	b.says("count slowly")
	b.until("the answer grows", chatLog+` === 'You: count slowly | Counter: One, two' && chat.querySelector('li[aria-busy]') !== null`)
	if busy := b.script(`chat.querySelector('button[type=submit]').disabled`); busy != "true" {
		t.Error("a second message could be sent meanwhile")
	}
	b.do("reload", chromedp.Reload())
	b.until("the conversation is back and goes on", chatLog+` === 'You: count slowly | Counter: One, two'`)
	model.release()
	b.until("the answer is whole", chatLog+` === 'You: count slowly | Counter: One, two, three.' && chat.querySelector('li[aria-busy]') === null`)
	if asked := model.asked.Load(); asked != 1 {
		t.Errorf("the model was asked %d times", asked)
	}

	b.says("now fail")
	b.until("the error is shown", `!chat.querySelector('.error').hidden && chat.querySelector('[role=alert]').textContent !== ''`)

	b.says("go on slowly")
	b.until("the next answer grows", chatLog+`.endsWith('go on slowly | Counter: One, two')`)
	s.killed()
	b.until("it begins again after the server was killed", chatLog+`.endsWith('Counter: One, two')`)
	eventually(t, "the model is asked again", func() bool { return model.asked.Load() >= 4 })
	model.release()
	b.until("and ends", chatLog+`.endsWith('go on slowly | Counter: One, two, three.')`)
	if double := b.script(`[...chat.querySelectorAll('[role=log] > li')].filter((item) => item.textContent.includes('go on slowly')).length`); double != "1" {
		t.Errorf("the message stands there %s times", double)
	}
	for len(b.problems) > 0 {
		t.Errorf("the console says: %s", <-b.problems)
	}
}

// TestEmbeddedWebChat puts the chat into a page of another site with one tag. A site that the operator did not name is
// refused by the browser, and a server that is away is told to the person.
func TestEmbeddedWebChat(t *testing.T) {
	var s *server
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		agent := strings.TrimPrefix(r.URL.Path, "/")
		_, _ = w.Write([]byte(`<!doctype html><title>shop</title><p>Ask us:</p><script src="` + s.URL() + `/chat.js" data-agent="` + agent + `"></script><p>Bye</p>`))
	}))
	defer site.Close()
	settings := startChatModel(t).agents()
	settings.More = "[chat]\nallowed_origins = [\"" + site.URL + "\"]\n"
	s = start(t, settings)
	b := startChromium(t)
	b.do("open", chromedp.Navigate(site.URL+"/echo"))
	b.until("the chat is there", `chat !== undefined`)
	b.says("hello <b>there</b> https://example.com/x")
	b.until("the answer is there", chatLog+` === 'You: hello <b>there</b> https://example.com/x | echo: hello <b>there</b> https://example.com/x'`)
	if links := b.script(`[...chat.querySelectorAll('a')].map((link) => link.href + link.rel).join()`); !strings.Contains(links, "https://example.com/xnoopener") {
		t.Errorf("links %s", links)
	}
	b.do("open", chromedp.Navigate(site.URL+"/closed"))
	b.until("the chat is there", `chat !== undefined`)
	b.says("let me in")
	b.until("the refusal is shown and the words are not lost",
		`chat.querySelector('[role=alert]').textContent.includes('bearer token') && chat.querySelector('textarea').value === 'let me in'`)
}
