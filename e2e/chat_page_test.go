package e2e

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"inbox/e2e/instance"
)

// attacks are what an answer must not do to a page: each would set pwned.
var attacks = []string{
	`<script>pwned=1</script>`, `<img src=x onerror=pwned=1>`, `<svg onload=pwned=1>`, `<svg><script>pwned=1</script></svg>`,
	`<iframe srcdoc="<script>parent.pwned=1</script>"></iframe>`, `<details open ontoggle=pwned=1>x</details>`, `<body onload=pwned=1>`,
	`[a](javascript:pwned=1)`, `[b](JaVaScRiPt:pwned=1)`, `[c](&#106;avascript:pwned=1)`, `[d](data:text/html,<script>pwned=1</script>)`, `<javascript:pwned=1>`,
	`![e](x" onerror="pwned=1)`, `[f](https://x.test "x" onmouseover="pwned=1")`, `<a href="https://x.test" onclick="pwned=1">g</a>`,
	`<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=pwned=1&gt;">`,
	`<noscript><p title="</noscript><img src=x onerror=pwned=1>">`, `<style>*{display:none}</style>`, `<input autofocus onfocus=pwned=1>`,
	`<form action=https://x.test><button>h</button></form>`, "`<img src=x onerror=pwned=1>`", `<base href=https://x.test>`, `<link rel=stylesheet href=https://x.test>`,
}

// writes makes an agent that always answers with the parts.
func writes(t *testing.T, name string, parts ...jsonObject) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".json")
	if err := os.WriteFile(file, jsonOf(jsonObject{"parts": parts}), 0o600); err != nil {
		t.Fatal(err)
	}
	return "[[agents]]\nname = \"" + name + "\"\nkind = \"command\"\nunverified = \"answer\"\naccess = \"public\"\n[agents.command]\nprogram = \"/bin/cat\"\narguments = [\"" + file + "\"]\n"
}

func markdownPart(content string) jsonObject {
	return jsonObject{"kind": "text", "mime": "text/markdown", "content": content}
}

// pixel is a PNG.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func inlineFile(name, mime, encoded string) jsonObject {
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		panic(err)
	}
	return jsonObject{"kind": "file", "mime": mime, "name": name, "size": len(content), "bytes_ref": jsonObject{"kind": "inline", "data_base64": encoded}}
}

// answers opens the page of an agent, writes something and waits for the answer.
func (b *chromium) answers(s *server, agent, text string) {
	b.Helper()
	b.opens(s, agent)
	b.says(text)
	b.answered()
}

func (b *chromium) opens(s *server, agent string) {
	b.Helper()
	b.do("open", chromedp.Navigate(s.URL()+"/@"+agent+"/chat"))
	b.until("the chat is there", `chat !== undefined && chat.querySelector('form') !== null`)
}

func (b *chromium) answered() {
	b.Helper()
	b.until("the answer is whole", `chat.querySelector('[role=log] > li.assistant:last-child:not([aria-busy])') !== null && !chat.querySelector('button[type=submit]').disabled`)
}

// TestWebChatShowsMarkdown: structure and files are shown, links say nothing of the page, and the reload shows the same.
func TestWebChatShowsMarkdown(t *testing.T) {
	s := start(t, instance.Settings{Agents: writes(t, "writer",
		markdownPart("# Head\n\n**bold** and `code`\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[link](https://a.example/x) ![cat](https://a.example/cat.png)"),
		inlineFile("dot.png", "image/png", pixel), inlineFile("notes.html", "text/html", "PGI+aGk8L2I+"))})
	b := startChromium(t)
	b.answers(s, "writer", "show")
	for range 2 {
		for what, expression := range map[string]string{
			"the heading":                 `chat.querySelector('.rich h3').textContent === 'Head'`,
			"bold and code":               `chat.querySelector('.rich strong') !== null && chat.querySelector('.rich code') !== null`,
			"the list and the table":      `chat.querySelectorAll('.rich li').length === 2 && chat.querySelectorAll('.rich td').length === 2`,
			"an image is a link":          `chat.querySelector('.rich img') === null && [...chat.querySelectorAll('.rich a')].some((a) => a.href === 'https://a.example/cat.png')`,
			"links open elsewhere":        `[...chat.querySelectorAll('a')].every((a) => a.target === '_blank' && ['noopener', 'nofollow', 'noreferrer'].every((word) => a.relList.contains(word)))`,
			"the files":                   `[...chat.querySelectorAll('.files a')].map((a) => a.textContent).join() === 'dot.png (70 bytes),notes.html (9 bytes)'`,
			"the picture is shown":        `chat.querySelectorAll('.files img').length === 1`,
			"nothing stands beside files": `!chat.querySelector('.rich').textContent.includes('dot.png')`,
		} {
			if got := b.script(expression); got != "true" {
				t.Errorf("%s: %s in %s", what, got, b.script(`chat.querySelector('[role=log]').innerHTML`))
			}
		}
		b.until("the picture came", `chat.querySelector('.files img')?.naturalWidth === 1`)
		b.do("reload", chromedp.Reload())
		b.until("the answer is back", `chat?.querySelector('.rich h3') !== null`)
	}
	for len(b.problems) > 0 {
		t.Errorf("the console says: %s", <-b.problems)
	}
}

// TestWebChatShowsNoMarkup tries hostile texts, in an answer of each form and in the words of the visitor, on a phone.
func TestWebChatShowsNoMarkup(t *testing.T) {
	texts := hostile()
	all := strings.Join(texts, "\n\n")
	html := jsonObject{"kind": "text", "mime": "text/html", "content": strings.Join(texts, "")}
	s := start(t, instance.Settings{Agents: writes(t, "evil", markdownPart(all), jsonObject{"kind": "text", "mime": "text/plain", "content": all}, html)})
	b := startChromium(t)
	b.do("a small screen", chromedp.EmulateViewport(360, 740))
	text, err := json.Marshal(strings.ReplaceAll(all, "\n\n", " "))
	if err != nil {
		t.Fatal(err)
	}
	b.opens(s, "evil")
	b.script(`chat.querySelector('textarea').value = ` + string(text)) // keys bring no control characters
	b.says("")
	b.answered()
	for range 2 {
		for what, expression := range map[string]string{
			"nothing ran":           `window.pwned === undefined`,
			"one's own words":       `chat.querySelector('li.user .body').textContent.replace(/[\x07\x1b]/g, '') === ` + string(text) + `.replace(/[\x07\x1b]/g, '')`, // the server keeps no control characters
			"known elements":        `[...chat.querySelectorAll('[role=log] > li .body *')].map((one) => one.localName).filter((name) => !'p br hr strong b em i del s code pre blockquote h3 h4 h5 h6 ul ol li table thead tbody tr th td a'.split(' ').includes(name)).join() === ''`,
			"known attributes":      `[...chat.querySelectorAll('.body *')].flatMap((one) => one.getAttributeNames()).filter((name) => !['href', 'rel', 'target', 'start', 'tabindex'].includes(name)).join() === ''`,
			"it fits the screen":    `document.scrollingElement.scrollWidth <= innerWidth && chat.querySelector('[role=log]').scrollWidth <= chat.querySelector('[role=log]').clientWidth`,
			"links lead elsewhere":  `[...chat.querySelectorAll('a[href]')].every((a) => /^(https?|mailto):/.test(a.href))`,
			"the page is untouched": `document.querySelectorAll('main script').length === 1 && document.querySelectorAll('base, iframe, style, main link').length === 0`,
		} {
			if got := b.script(expression); got != "true" {
				t.Errorf("%s: %s in %s", what, got, b.script(`chat.querySelector('[role=log]').innerHTML`))
			}
		}
		b.script(`[...chat.querySelectorAll('a')].forEach((a) => a.dispatchEvent(new MouseEvent('mouseover', {bubbles: true})))`)
		b.do("reload", chromedp.Reload())
		b.until("the answer is back", `chat?.querySelector('li.assistant .rich') !== null`)
	}
}

// TestWebChatByKeyboard: lines, stopping and trying again without a mouse, and the focus stays where one writes.
func TestWebChatByKeyboard(t *testing.T) {
	model := startChatModel(t)
	s := start(t, model.agents())
	b := startChromium(t)
	b.do("open", chromedp.Navigate(s.URL()+"/@counter/chat"))
	b.until("the chat is there", `chat !== undefined && chat.querySelector('form') !== null`)
	b.script(`chat.querySelector('textarea').focus()`)
	b.do("two lines", chromedp.KeyEvent("count"), chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(8)), chromedp.KeyEvent("slowly"))
	if got := b.script(`JSON.stringify(chat.querySelector('textarea').value)`); got != `"count\nslowly"` {
		t.Errorf("Shift and Enter make %s", got)
	}
	const writing = `chat.activeElement === chat.querySelector('textarea')`
	b.do("send", chromedp.KeyEvent(kb.Enter))
	b.until("the answer grows", `chat.querySelector('li[aria-busy]')?.textContent.includes('One, two') && !chat.querySelector('.stop').hidden`)
	b.do("stop", chromedp.KeyEvent(kb.Escape))
	b.until("it is stopped, and what was said stays", chatLog+`.endsWith('Counter: One, two') && chat.querySelector('.status').textContent === 'Stopped.' && chat.querySelector('.stop').hidden`)
	if got := b.script(writing); got != "true" {
		t.Error("the focus is lost after stopping")
	}
	b.do("reload", chromedp.Reload())
	b.until("the stopped run does not come back", `chat?.querySelectorAll('[role=log] > li').length === 1 && chat.querySelector('.stop').hidden`)
	b.says("now fail")
	b.until("one may try again", `!chat.querySelector('.error').hidden && !chat.querySelector('.again').hidden`)
	asked := model.asked.Load()
	b.script(`chat.querySelector('.again').focus()`)
	b.do("try again", chromedp.KeyEvent(kb.Enter))
	eventually(t, "the model is asked again", func() bool { return model.asked.Load() > asked })
	b.until("the focus is where one writes", writing)
	b.until("it failed again", `!chat.querySelector('.error').hidden && !chat.querySelector('button[type=submit]').disabled`)
	b.script(`chat.querySelector('.anew').focus()`)
	for i, want := range []string{"OL log", "BUTTON copy", "BUTTON copy", "BUTTON again", "BUTTON attach", "TEXTAREA ", "BUTTON "} {
		b.do("tab", chromedp.KeyEvent(kb.Tab))
		if got := b.script(`chat.activeElement?.tagName + ' ' + chat.activeElement?.className`); got != want {
			t.Errorf("tab %d leads to %q, want %q", i, got, want)
		}
	}
}

// faint lists texts whose contrast is below 4.5 : 1 (WCAG 2.2, 1.4.3). Backgrounds are those of the nearest ancestors.
const faint = `(() => {
	const dab = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
	const rgba = (color) => { dab.clearRect(0, 0, 1, 1); dab.fillStyle = color; dab.fillRect(0, 0, 1, 1); return [...dab.getImageData(0, 0, 1, 1).data]; };
	const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const probe = document.body.appendChild(document.createElement('p'));
	probe.style.background = 'Canvas';
	const canvas = rgba(getComputedStyle(probe).backgroundColor);
	probe.remove();
	const behind = (one) => { for (; one; one = one.parentElement ?? one.getRootNode().host) { const c = rgba(getComputedStyle(one).backgroundColor); if (c[3] === 255) return c; } return canvas; };
	const all = [...document.querySelectorAll('main *'), ...chat.querySelectorAll('*')].filter((one) => [...one.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || one.tagName === 'TEXTAREA');
	return all.filter((one) => one.checkVisibility() && !one.disabled).map((one) => {
		const [x, y] = [light(rgba(getComputedStyle(one).color).slice(0, 3)), light(behind(one).slice(0, 3))];
		return [one.localName + '.' + one.className, (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05)];
	}).filter(([, ratio]) => !(ratio >= 4.5)).map((pair) => pair.join(' ')).join('; ');
})()`

// TestWebChatForEverybody checks names, roles, order of headings, sizes and contrast, in both schemes, at 320 pixels.
func TestWebChatForEverybody(t *testing.T) {
	s := start(t, instance.Settings{Agents: writes(t, "writer", markdownPart(
		"# Head\n\n`code` [link](https://a.example/x)\n\n```\n"+strings.Repeat("a long line ", 40)+"\n```\n\n| "+strings.Repeat("wide | ", 30)+"\n|"+strings.Repeat("-|", 30)+"\n\n"+strings.Repeat("unbroken", 60)),
		inlineFile("notes.txt", "text/plain", "aGk="))})
	b := startChromium(t)
	b.do("a small screen", chromedp.EmulateViewport(320, 640))
	b.answers(s, "writer", "https://a.example/"+strings.Repeat("x", 200))
	for _, scheme := range []string{"light", "dark"} {
		b.do(scheme, b.colors(scheme))
		b.until("the scheme is in force", `matchMedia('(prefers-color-scheme: `+scheme+`)').matches`)
		if got := b.script(faint); got != "" {
			t.Errorf("%s: too faint: %s", scheme, got)
		}
		dark := b.script(`getComputedStyle(chat.querySelector('textarea')).color === 'rgb(236, 235, 230)'`)
		if (scheme == "dark") != (dark == "true") {
			t.Errorf("%s: the text is light: %s", scheme, dark)
		}
	}
	for what, expression := range map[string]string{
		"the page fits":             `document.documentElement.scrollWidth <= innerWidth`,
		"the answer fits":           `[...chat.querySelectorAll('[role=log] > li')].every((one) => one.getBoundingClientRect().right <= innerWidth)`,
		"it has a language":         `document.documentElement.lang === 'en' && document.title.includes('writer')`,
		"one main and one headline": `document.querySelectorAll('main').length === 1 && document.querySelectorAll('h1').length === 1`,
		"controls have names":       `[...chat.querySelectorAll('button, textarea, form, section, [role=log]')].every((one) => one.getAttribute('aria-label') || one.textContent.trim())`,
		"the hint is found":         `chat.getElementById(chat.querySelector('textarea').getAttribute('aria-describedby')).textContent.includes('Escape')`,
		"the log is polite":         `chat.querySelector('[role=log]').ariaLive === 'polite' && chat.querySelector('[role=status]') !== null && chat.querySelector('[role=alert]') !== null`,
		"who speaks is told":        `[...chat.querySelectorAll('[role=log] > li')].map((one) => one.querySelector('.who').textContent).join('') === 'You: writer: '`,
		"targets are large enough":  `[...chat.querySelectorAll('button:not([hidden]), textarea')].filter((one) => one.checkVisibility()).every((one) => one.offsetWidth >= 24 && one.offsetHeight >= 24)`,
		"what scrolls has focus":    `[...chat.querySelectorAll('pre')].every((one) => one.tabIndex === 0)`,
		"no id is a duplicate":      `new Set([...chat.querySelectorAll('[id]')].map((one) => one.id)).size === chat.querySelectorAll('[id]').length`,
	} {
		if got := b.script(expression); got != "true" {
			t.Errorf("%s: %s", what, got)
		}
	}
}

// TestGuestsWaitInThePage: a message that is held says so, and the answer comes into the open page once it was let pass, also
// after a reload.
func TestGuestsWaitInThePage(t *testing.T) {
	s := start(t, instance.Settings{
		Agents: "[[agents]]\nname = \"echo\"\nkind = \"echo\"\naccess = \"public\"\nunverified = \"hold\"\n", More: "[chat]\nhold_guests = true\nwait = \"2s\"\n",
	})
	b := startChromium(t)
	b.do("open", chromedp.Navigate(s.URL()+"/@echo/chat"))
	b.until("the chat is there", `chat !== undefined && chat.querySelector('form') !== null`)
	const waits = `chat?.querySelector('.status')?.textContent === 'The answer will appear here.' && chat.querySelector('li.assistant')?.textContent.includes('until the operator')`
	for _, reload := range []bool{false, true} {
		b.says("let me in")
		b.until("the page says what it waits for", waits)
		if reload {
			b.do("reload", chromedp.Reload())
			b.until("it still waits", waits)
		}
		var held []struct {
			ID string `json:"id"`
		}
		if err := decodeList(s.inbox("held", "list", "--json"), &held); err != nil || len(held) != 1 {
			t.Fatalf("held: %v, %v", held, err)
		}
		s.inbox("held", "release", held[0].ID)
		b.until("the answer is there", chatLog+` === 'You: let me in | echo: let me in' && chat.querySelector('.status').textContent === ''`)
		b.script(`chat.querySelector('.anew').click()`)
	}
}

// TestWebChatIsDeleted: the words are nowhere afterwards, neither in the page nor in the database.
func TestWebChatIsDeleted(t *testing.T) {
	s := start(t, startChatModel(t).agents())
	b := startChromium(t)
	b.answers(s, "echo", "my-secret-words")
	b.script(`window.confirm = () => false`)
	b.script(`chat.querySelector('.forget').click()`)
	b.script(`window.confirm = () => true`)
	b.script(`chat.querySelector('.forget').click()`)
	b.until("the page is empty", `chat.querySelectorAll('[role=log] > li').length === 0 && chat.querySelector('.status').textContent === 'The conversation is deleted.' && chat.querySelector('.forget').hidden`)
	b.do("reload", chromedp.Reload())
	b.until("it stays empty", `chat?.querySelectorAll('[role=log] > li').length === 0 && localStorage.length === 0`)
	for _, query := range []string{"SELECT message || route FROM turns", "SELECT body FROM events", "SELECT response FROM replies", "SELECT body FROM originals", "SELECT value FROM documents"} {
		rows, err := s.Column(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if strings.Contains(row, "my-secret-words") || strings.Contains(row, "bXktc2VjcmV0LXdvcmRz") {
				t.Errorf("%s: %s", query, row)
			}
		}
	}
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
