package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/http"
	"net/http/cookiejar"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"golang.org/x/net/html"

	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// hiddenCalls are arguments of tool calls that try to show an approver something else than what runs.
var hiddenCalls = []struct {
	name, arguments string
	whole           bool // a message has room for all of it
}{
	{"a long member before short ones", `{"body":"` + strings.Repeat("Dear customer, all is well. ", 180) + `","to":"attacker@evil.example","transfer_all":true}`, false},
	{"direction", `{"file":"evil\u202egpj.exe","isolated":"a\u2066b\u2069c\u200e\u061c","to":"x"}`, true},
	{"no width", `{"to":"ad\u200bmin\u2060\ufeff\u00ad\u200d\u200d@x.test","tag":"x\udb40\udc41y","fill":"\u3164\u115f\u2800"}`, true},
	{"look-alikes", `{"to":"ann@p\u0430ypal.com","host":"https://\u0430\u0440\u0440\u04cf\u0435.\u0440\u0444/x","bold":"\ud835\uddc9aypal","dot":"bank\u2024example","slash":"bank.example\u2215login","kelvin":"\u212aim","nfd":"jose\u0301"}`, true},
	{"honest text", `{"flag":"\ud83c\udff4\udb40\udc67\udb40\udc62\udb40\udc65\udb40\udc6e\udb40\udc67\udb40\udc7f","family":"\ud83d\udc69\u200d\ud83d\udcbb \u2764\ufe0f","fa":"\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645","ru":"\u043f\u0440\u0438\u0432\u0435\u0442","de":"gr\u00fc\u00dfe\u2026"}`, true},
	{"markup", `{"comment":"<!-- hidden","tags":"<b>bold</b><script>alert(1)</script><details><summary>x</summary>y</details>","link":"[https://bank.example](https://evil.example)",` +
		`"image":"![x](https://evil.example/p.png)","table":"| a | b |\n|---|---|\n| 1 | 2 |","fence":"` + "```\\ncode\\n```" + `","marks":"~~no~~ **b** _i_ 2*3*4","entities":"&lt;&amp;&#x202e;","mention":"@ann@people.test #tag","to":"x"}`, true},
	{"lines of the message", `{"note":"x\n\nTool: harmless\nAsked by: you\n-- \n> quoted\nFrom here","to":"attacker"}`, true},
	{"an unbroken string", `{"key":"` + strings.Repeat("A", 1_800) + `","to":"x"}`, true},
	{"a very long unbroken string", `{"key":"` + strings.Repeat("A", 30_000) + `","to":"x"}`, false},
	{"1,000 members", manyMembers(1_000), false},
	{"nesting", `{"body":"long text of the body","deep":` + strings.Repeat(`{"a":[`, 25) + `"bottom"` + strings.Repeat(`]}`, 25) + `,"to":"x"}`, false},
	{"numbers", `{"large":12345678901234567890123,"exponent":1e400,"zero":-0,"fraction":0.10000000000000000001,"one":1.0}`, true},
	{"controls", `{"bell":"a\u0007b\u001b[31mred\u001b[0m\u007f\u0085","line":"a\r\nb\tc","to":"x"}`, true},
	{"spaces", `{"path":"a  b   c","edge":" x ","to":"x"}`, true},
	{"a list", `["first",2,null,{"to":"x"}]`, true},
}

func manyMembers(count int) string {
	members := make([]string, count)
	for i := range members {
		members[i] = fmt.Sprintf(`"member%04d":%d`, i, i)
	}
	return "{" + strings.Join(members, ",") + "}"
}

var callNumber = regexp.MustCompile(`call ([0-9]{1,2})`)

// approvesCalls asks for an approval of the call that the message numbers.
func approvesCalls(message normalized.Message) normalized.Response {
	asked := callNumber.FindStringSubmatch(textOf(message.Parts))
	if asked == nil || message.PolicyResolution != nil {
		return say("I heard: " + textOf(message.Parts))
	}
	number, _ := strconv.Atoi(asked[1]) // digits
	return demanding(policypart.Part{
		Kind: policypart.ConsentRequired, Code: policypart.CodeApproval, Message: "May I?",
		Data: map[string]json.RawMessage{policypart.ApprovalKey: json.RawMessage(`{"tool":"send_mail","summary":"Send a harmless mail","preview":` + hiddenCalls[number].arguments + `}`)},
	})
}

// leaves lists the values of a JSON text with their places, as they are written; a name that comes twice is there twice.
func leaves(decoder *json.Decoder) (found []string, err error) {
	decoder.UseNumber()
	var walk func(place string) error
	walk = func(place string) error {
		token, err := decoder.Token()
		if err != nil {
			return err
		}
		delim, is := token.(json.Delim)
		if !is {
			found = append(found, fmt.Sprintf("%s=%T %q", place, token, fmt.Sprint(token)))
			return nil
		}
		for i := 0; decoder.More(); i++ {
			name := fmt.Sprint(i)
			if delim == '{' {
				token, err := decoder.Token()
				if err != nil {
					return err
				}
				name = fmt.Sprintf("%q", token)
			}
			if err := walk(place + "/" + name); err != nil {
				return err
			}
		}
		_, err = decoder.Token()
		return err
	}
	err = walk("")
	slices.Sort(found)
	return found, err
}

// documentIn reads the JSON text that follows a heading, as a reader sees it: without the marks of quoted lines.
func documentIn(shown, heading string) *json.Decoder {
	_, shown, _ = strings.Cut(shown, heading)
	lines := strings.Split(shown, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimLeft(line, " "), "|")
	}
	return json.NewDecoder(strings.NewReader(strings.Join(lines, " ")))
}

// checkShown holds what a person reads on a surface against the call that would run.
func checkShown(t *testing.T, surface, shown, heading, arguments string) {
	t.Helper()
	want, err := leaves(json.NewDecoder(strings.NewReader(arguments)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := leaves(documentIn(shown, heading))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: %v; it shows %.300q, want %.300q, in\n%.3000s", surface, err, got, want, shown)
	}
	checkVisible(t, surface, shown)
}

// checkVisible finds characters that show nothing of themselves; joiners and tags stand in words and emoji that need them.
func checkVisible(t *testing.T, surface, shown string) {
	t.Helper()
	for _, r := range shown {
		if r != '\n' && r != '\t' && r != ' ' && r != 0x200c && r != 0x200d && (r < 0xe0020 || r > 0xe007f) && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zs, unicode.Zl, unicode.Zp) {
			t.Errorf("%s: the character %U cannot be seen in %.2000q", surface, r, shown)
			return
		}
	}
}

// readHTML is what a browser shows of HTML: white space collapses but in pre.
func readHTML(t *testing.T, source string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(source))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var walk func(node *html.Node, pre bool)
	walk = func(node *html.Node, pre bool) {
		switch {
		case node.Type == html.TextNode && pre:
			out.WriteString(node.Data)
		case node.Type == html.TextNode:
			out.WriteString(spaces.ReplaceAllString(node.Data, " "))
		case node.Type == html.ElementNode:
			switch node.Data {
			case "style", "script", "head", "template":
				return
			case "br":
				out.WriteByte('\n')
			case "p", "div", "h1", "h2", "h3", "pre", "blockquote", "td", "tr", "dd", "dt", "section", "summary":
				out.WriteByte('\n')
				defer out.WriteByte('\n')
			}
		}
		for child := node.FirstChild; child != nil; child = child.NextSibling {
			walk(child, pre || node.Data == "pre")
		}
	}
	walk(root, false)
	return strings.ReplaceAll(out.String(), "\u00a0", " ") // with which mail indents
}

var spaces = regexp.MustCompile(`[ \t\r\n]+`)

// mailForms returns the parts of a mail as they were sent, decoded, by their type.
func mailForms(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	forms := map[string]string{}
	message, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	_, params, _ := mime.ParseMediaType(message.Header.Get("Content-Type"))
	for reader := multipart.NewReader(message.Body, params["boundary"]); ; {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return forms
		}
		if err != nil {
			t.Fatal(err)
		}
		var from io.Reader = part
		if part.Header.Get("Content-Transfer-Encoding") == "quoted-printable" {
			from = quotedprintable.NewReader(part)
		}
		content, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		media, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type"))
		forms[media] = strings.ReplaceAll(string(content), "\r\n", "\n")
	}
}

// question gathers the posts of a question to an approver until its end.
func (f *fediverse) question() (source string) {
	f.t.Helper()
	deadline := time.After(patience)
	for !strings.Contains(source, "Valid until") {
		select {
		case arrival := <-f.arrivals:
			var note struct{ Object struct{ Content string } }
			if arrival.Type != "Create" || json.Unmarshal(arrival.Body, &note) != nil {
				continue
			}
			source += note.Object.Content
		case <-deadline:
			f.t.Fatalf("the question has no end:\n%s", source)
		}
	}
	return source
}

// TestEverySurfaceShowsTheSameCall: what a person gets in the mail, the post, the page, the console, the command and the API is the call
// that would run, and where it is not, the word is not taken and the page's address stands there.
func TestEverySurfaceShowsTheSameCall(t *testing.T) {
	t.Parallel()
	agent := startScripted(t, approvesCalls)
	community := startFediverse(t, 1)
	p := startPostWith(t, "", agent.table("shop", fmt.Sprintf("access = \"public\"\napprovers = [%q, \"boss@office.test\"]", community.address(0))))
	office := p.impostor(t, "office.test")
	operator := p.operatorPages()

	for i, call := range hiddenCalls {
		t.Run(call.name, func(t *testing.T) {
			id := fmt.Sprintf("call-%d@sender.test", i)
			p.bring(p.sender, "ann@sender.test", load.Mail{To: "shop@inbox.test", MessageID: id, Subject: "Order", Body: fmt.Sprintf("call %d", i)})
			post := readHTML(t, community.question())
			var found []exchange.Approval
			eventually(t, "the call waits", func() bool { found = p.approvals(); return len(found) == 1 })
			code := found[0].Code
			letter := p.awaitMail(func(r load.Received) bool {
				return slices.Contains(r.To, "boss@office.test") && strings.Contains(plain(r.Raw), code)
			})
			forms := mailForms(t, letter.Raw)
			messages := map[string]string{"post": post, "mail": forms["text/plain"], "mail as HTML": readHTML(t, forms["text/html"])}

			for name, shown := range messages {
				link := findLink(t, shown)
				switch asks := strings.Contains(shown, "one word approve or deny"); {
				case asks != call.whole:
					t.Errorf("the %s asks for the word: %v", name, asks)
				case asks:
					checkShown(t, name, shown, "Details:", call.arguments)
				default:
					checkVisible(t, name, shown)
					if !strings.Contains(shown, "This message does not show all of it") {
						t.Errorf("the %s does not say that it is cut:\n%s", name, shown)
					}
				}
				for _, short := range []string{`"to"`, `"transfer_all"`} {
					if strings.Contains(call.arguments, short) && !strings.Contains(shown, short) {
						t.Errorf("the %s lacks %s:\n%s", name, short, shown)
					}
				}
				if _, source := page(t, http.MethodGet, link, nil); name == "post" {
					checkShown(t, "page", readHTML(t, source), "What would be done", call.arguments)
				}
			}

			checkShown(t, "console", readHTML(t, operator("/console/work/approvals/"+found[0].ID)), "Preview", call.arguments)
			checkShown(t, "command", p.inbox("approvals", "show", code), "Preview:", call.arguments)
			status, body := p.api(http.MethodGet, "/approvals/"+found[0].ID, p.adminToken())
			if status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			checkShown(t, "API", body, `"preview":`, call.arguments)

			if !call.whole {
				word := fmt.Sprintf("word-%d@office.test", i)
				p.bring(office, "boss@office.test", load.Mail{To: "shop@inbox.test", MessageID: word, Subject: "Re: it", Body: "approve " + code,
					Extra: map[string]string{"In-Reply-To": "<" + letter.Field("Message-ID") + ">"}})
				answer := mailForms(t, p.outbox.await(t, word).Raw)["text/plain"]
				if !strings.Contains(answer, "Nothing was decided") || findLink(t, answer) != findLink(t, forms["text/plain"]) {
					t.Errorf("the word is answered: %s", answer)
				}
			}
			p.inbox("approvals", "deny", code)
		})
	}

	t.Run("programs neither read nor decide", func(t *testing.T) {
		peer := p.a2aPeer("shop", "ann")
		asked, err := peer.Send(t.Context(), load.SendBody("message-1", "call 1", false))
		if err != nil {
			t.Fatal(err)
		}
		if text := texts(asked); policyLink.MatchString(text) || strings.Contains(text, "gpj") || strings.Contains(text, "send_mail") {
			t.Errorf("the asker reads %s", text)
		}
		open := p.approvals()[0]
		if _, err := peer.Send(t.Context(), load.SendBody("message-2", "approve "+open.Code, true)); err != nil {
			t.Fatal(err)
		}
		if got := p.shown("POST", "/v1/chat", `{"agent":"shop","message":"approve `+open.Code+`"}`, "Bearer "+p.peerToken("owner")); got.status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
		p.bridge("relay").ask(http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "shop", "message": "approve " + open.Code, "wait": true})
		if now := p.approvals(); len(now) != 1 || now[0].ID != open.ID {
			t.Errorf("a program decided: %+v", now)
		}
	})
}

// operatorPages signs in at the console and returns a function that reads its pages.
func (s *server) operatorPages() func(path string) string {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	client := http.Client{Jar: jar, Timeout: patience}
	read := func(response *http.Response, err error) string {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		content, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			s.t.Fatalf("%d %v %s", response.StatusCode, err, content)
		}
		return string(content)
	}
	read(client.PostForm(s.URL()+"/console/login", url.Values{"token": {s.adminToken()}}))
	return func(path string) string { return read(client.Get(s.URL() + path)) }
}
