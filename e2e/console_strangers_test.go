package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"inbox/e2e/load"
	"inbox/internal/clip"
	"inbox/normalized"
)

// groupBytes is how much of the hostile texts stands in one field, so that names that end at 255 bytes have all of it. A longer text stands alone.
const groupBytes = 240

// grouped are the texts in groups that fit into a name, each text in one.
func grouped(texts []string) (groups []string) {
	for _, text := range texts {
		if last := len(groups) - 1; last >= 0 && len(groups[last])+len(text) < groupBytes {
			groups[last] += " " + text
		} else {
			groups = append(groups, text)
		}
	}
	return groups
}

// strangers bring the texts in every field of mentions, chats and tasks, by the adapters that read them, to agents that say them again. It
// returns the turns of each channel.
func (c *consoleTest) strangers(texts []string) map[string][]string {
	c.t.Helper()
	groups := grouped(texts)
	community := newCommunity(c.t, len(groups), func(load.Arrival) {})
	token, err := c.Token(c.t.Context(), "partner")
	if err != nil {
		c.t.Fatal(err)
	}

	before, err := c.Column(c.t.Context(), "SELECT MAX(id) FROM turns")
	if err != nil {
		c.t.Fatal(err)
	}
	for i, group := range groups {
		c.mentions(community, i, group)
		c.chats(i, group)
		c.asks(token, i, group)
	}

	turns := map[string][]string{}
	for _, via := range []string{normalized.ViaActivityPub, "chat", normalized.ViaA2A} {
		eventually(c.t, "everything by "+via+" is answered", func() bool {
			turns[via], err = c.Column(c.t.Context(), "SELECT id FROM turns WHERE channel = $1 AND state = 'answered' AND id > $2 ORDER BY id", via, before[0])
			return err == nil && len(turns[via]) == len(groups)
		})
	}
	return turns
}

// inID is a text as ids and names of tools may have it: without control characters, and not too long.
func inID(text string) string {
	return clip.Bytes(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, text), groupBytes)
}

// fileName is the name of a file with a text. Of a name with slashes adapters keep what follows the last one.
func fileName(text string) string { return "its-file " + strings.ReplaceAll(text, "/", "|") }

// accepted sends a JSON body and demands that it is taken.
func (c *consoleTest) accepted(path, token string, body jsonObject) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.URL()+path, bytes.NewReader(jsonOf(body)))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("A2A-Version", "1.0")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	said, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK || bytes.Contains(said, []byte(`"error":{`)) {
		c.t.Fatalf("%s: %s %s, %v", path, response.Status, said, err)
	}
}

// mentions has a person of a community write a note. What looks like markup is text in one part of it, and markup in another one.
func (c *consoleTest) mentions(community *load.Community, number int, group string) {
	c.t.Helper()
	person, elsewhere := community.Persons[number], "https://x.test/"+url.PathEscape(group)
	err := community.Present(person, jsonObject{
		"name": "its-name " + group, "preferredUsername": "user " + group, "summary": group, "url": elsewhere,
		"icon":       jsonObject{"type": "Image", "mediaType": group, "url": elsewhere},
		"attachment": []jsonObject{{"type": "PropertyValue", "name": group, "value": group}},
		"tag":        []jsonObject{{"type": "Emoji", "name": group, "icon": jsonObject{"type": "Image", "url": elsewhere}}},
	})
	if err != nil {
		c.t.Fatal(err)
	}

	mention, err := person.Mention(c.Actor("echo"), "1", html.EscapeString(group)+group).With(jsonObject{
		"summary": "its-warning " + group, "name": "title " + group, "sensitive": true,
		"attachment": []jsonObject{
			{"type": "Document", "mediaType": "image/png", "url": elsewhere, "name": "its-picture " + group},
			{"type": "Document", "mediaType": group, "url": "https://x.test/b", "name": group},
			{"type": "Link", "href": elsewhere + "?link", "name": "its-link " + group},
		},
		"tag": []jsonObject{
			{"type": "Mention", "href": c.Actor("echo"), "name": group}, {"type": "Mention", "href": elsewhere, "name": group},
			{"type": "Hashtag", "href": elsewhere, "name": group}, {"type": "Emoji", "name": group, "icon": jsonObject{"type": "Image", "url": elsewhere}},
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if status := do(c.t, delivery(c.t, person, c.Actor("echo")+"/inbox", mention, load.Signature{})); status != http.StatusAccepted {
		c.t.Fatalf("mention %d was answered %d", number, status)
	}
}

// chats has a guest of the chat send a message with files and with the call of a tool of its page.
func (c *consoleTest) chats(number int, group string) {
	c.t.Helper()
	c.accepted("/v1/chat", "", jsonObject{
		"agent": "open", "message": fmt.Sprintf("its-text %d %s", number, group), "run_id": fmt.Sprintf("its-run %d %s", number, inID(group)), "client_context": jsonObject{group: group},
		"attachments": []jsonObject{
			{"name": fileName(group), "mimeType": "text/plain", "bytes": base64.StdEncoding.EncodeToString([]byte(group))},
			{"name": group, "mimeType": "image/png", "uri": "https://x.test/" + url.PathEscape(group)},
		},
		"history": []jsonObject{{"role": "user", "content": group}, {"role": "assistant", "content": group}},
		"input_messages": []jsonObject{
			{"role": "assistant", "content": group, "metadata": jsonObject{"type": "tool_call", "tool_name": "its-tool " + inID(group)}},
			{"role": "tool", "content": "its-result " + group, "metadata": jsonObject{"type": "tool_result", "tool_name": "its-tool " + inID(group)}},
		},
	})
}

// asks has another program send a task.
func (c *consoleTest) asks(token string, number int, group string) {
	c.t.Helper()
	c.accepted("/a2a/open", token, jsonObject{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": jsonObject{
		"message": jsonObject{
			"messageId": fmt.Sprintf("its-message %d %s", number, inID(group)), "contextId": fmt.Sprintf("context %d %s", number, inID(group)), "role": "ROLE_USER",
			"metadata": jsonObject{group: group, "mentionable": jsonObject{"topic": group}},
			"parts": []jsonObject{
				{"text": "its-text " + group, "metadata": jsonObject{group: group}}, {"data": jsonObject{group: jsonObject{group: []string{group}}}, "filename": "its-data " + fileName(group)},
				{"raw": base64.StdEncoding.EncodeToString([]byte(group)), "filename": fileName(group), "mediaType": "text/plain"},
				{"url": "https://x.test/" + url.PathEscape(group), "filename": group, "mediaType": "image/png"},
			},
		},
		"metadata": jsonObject{group: group},
	}})
}

// shown are the beginnings of the fields that a page of a message has to have, by channel: without them the texts stand nowhere, and the
// test proves nothing. A field of which an adapter keeps nothing would hide all texts of its group.
var shown = map[string][]string{
	normalized.ViaActivityPub: {"its-name ", "its-warning ", "its-picture ", "its-link "},
	"chat":                    {"its-text ", "its-file ", "its-tool ", "its-result ", "its-run "},
	normalized.ViaA2A:         {"its-text ", "its-data ", "its-file ", "its-message "},
}

// showsStrangers looks at what other channels than mail brought, on every page that shows it.
func (c *consoleTest) showsStrangers(t *testing.T) {
	turns := c.strangers(hostile())
	c.small()
	looked := map[string]bool{}
	for via, list := range turns {
		for _, turn := range list {
			path := "/console/messages/" + turn
			c.visit(path)
			c.harmless(path)
			words := c.script(`document.querySelector('main').textContent`)
			for _, field := range shown[via] {
				if !strings.Contains(words, field) {
					t.Errorf("%s, a message by %s, lacks the field that begins with %q: %.300s", path, via, field, words)
				}
			}
			beside := []string{path + "/raw"}
			for _, link := range []string{"Everything from this sender", "Conversation"} {
				beside = append(beside, c.leadsTo(link))
			}
			for _, other := range beside {
				if !looked[other] {
					c.visit(other)
					c.harmless(other)
				}
				looked[other] = true
			}
		}
	}

	for _, path := range []string{"/console/inbox", "/console/inbox?channel=" + normalized.ViaActivityPub, "/console/inbox?text=script", "/@echo"} {
		c.visit(path)
		c.harmless(path)
		if path == "/console/inbox" {
			c.press("Older")
			c.harmless("the second page of the inbox")
		}
	}
	if note := c.script(`document.querySelector('main a[href*="/o/"]')?.href ?? ''`); note == "" {
		t.Error("the profile shows no note that answers a stranger")
	} else {
		c.visit(strings.TrimPrefix(note, c.URL()))
		c.harmless(note)
	}
	c.onlyOwn(t)
}
