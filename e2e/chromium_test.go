package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	events "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium is a headless Chromium with one page.
type chromium struct {
	*testing.T
	page     context.Context
	problems chan string // what its console says is wrong, and dialogs

	mu       sync.Mutex
	requests []string // addresses of all that was asked for
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
	ranWith(t, "Chromium", debianPackage("chromium"))
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(390, 800), chromedp.Flag("disable-dev-shm-usage", true))
	allocated, release := chromedp.NewExecAllocator(context.Background(), options...)
	b := &chromium{T: t, problems: make(chan string, 64)}
	tab, shut := chromedp.NewContext(allocated, chromedp.WithListener(b.listen))
	limited, stop := context.WithTimeout(tab, 5*time.Minute)
	t.Cleanup(func() {
		stop()
		_ = chromedp.Cancel(tab) // waits until the browser is gone, so that its directory can be removed
		shut()
		release()
	})
	b.page = limited
	return b
}

// listen keeps what the page's scripts fail with, that they ask the person something, and what the page loads.
func (b *chromium) listen(event any) {
	var problem string
	switch happened := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = fmt.Sprintf("%+v", happened)
	case *events.EventJavascriptDialogOpening:
		problem = "a dialog: " + happened.Message
	case *network.EventRequestWillBeSent:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.requests = append(b.requests, happened.Request.URL)
		return
	default:
		return
	}
	select {
	case b.problems <- problem:
	default:
	}
}

// loaded returns what was asked for since the last call.
func (b *chromium) loaded() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.requests
	b.requests = nil
	return found
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

// colors emulates a wish for light or dark.
func (b *chromium) colors(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}
