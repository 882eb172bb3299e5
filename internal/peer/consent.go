package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/html"
)

// Demand is what an agent asked back before it went on.
type Demand struct {
	MessageID string   // of the message that carried it: note IRI, Message-ID without angle brackets, A2A task id
	Text      string   // as received
	URL       string   // the page that shows it and takes the decision; the address is the secret
	Evidence  []string // what was checked about it, one sentence each
}

// policyLink finds the address of a demand in the text that a person reads.
var policyLink = regexp.MustCompile(`https?://[^\s<>"]+/policy/[A-Za-z0-9_-]+`).FindString

// inquiry is a question under way, by mail or in the fediverse.
type inquiry struct {
	waiting      *waiting
	author       string // who has to answer
	home         string // origin of the author's server, where its pages are; empty = not known
	replyTo      string // the id that answers name
	arrival      <-chan answer
	forget       func()
	started      time.Time
	conversation Conversation
}

func (i *inquiry) next(ctx context.Context) (answer, error) {
	got, err := i.waiting.await(ctx, i.author, i.arrival)
	if err != nil {
		return got, fmt.Errorf("wait for the answer to <%s>: %w", i.replyTo, err)
	}
	return got, nil
}

func (i *inquiry) finish(got answer) Conversation {
	i.conversation.Answer, i.conversation.Evidence = got.text, got.evidence
	i.conversation.Took = time.Since(i.started)
	return i.conversation
}

// consent waits for a demand, agrees to it and waits for the answer to the same question.
func (i *inquiry) consent(ctx context.Context) (Demand, Conversation, error) {
	first, err := i.next(ctx)
	if err != nil {
		return Demand{}, Conversation{}, err
	}

	demand, err := i.readDemand(first)
	if err != nil {
		return demand, Conversation{}, err
	}

	seen, err := agree(ctx, demand.URL)
	if err != nil {
		return demand, Conversation{}, fmt.Errorf("agree to the demand: %w", err)
	}

	demand.Evidence = append(demand.Evidence, seen...)
	second, err := i.next(ctx)
	switch {
	case err != nil:
		return demand, Conversation{}, err
	case second.id == first.id:
		return demand, Conversation{}, fmt.Errorf("demand and answer have the same id %q", first.id)
	case policyLink(second.text) != "":
		return demand, Conversation{}, errors.New("the agent asks again after it was granted what it asked for")
	}

	return demand, i.finish(second), nil
}

// readDemand takes an answer as a demand, which has a link and is for the asker alone.
func (i *inquiry) readDemand(got answer) (Demand, error) {
	demand := Demand{MessageID: got.id, Text: got.text, URL: policyLink(got.text)}
	switch {
	case demand.URL == "":
		return demand, fmt.Errorf("the agent asked nothing back, it answered %q", got.text)
	case i.home != "" && origin(demand.URL) != i.home:
		return demand, fmt.Errorf("the demand leads to %s and not to %s", origin(demand.URL), i.home)
	case got.others != "":
		return demand, fmt.Errorf("the demand was sent to others, too: %s", got.others)
	}

	demand.Evidence = append(slices.Clone(got.evidence), "addressed to the asker alone")
	return demand, nil
}

// agree opens the page of a demand twice, as mail scanners do, and then presses the button that grants it.
func agree(ctx context.Context, address string) ([]string, error) {
	client := newHTTPClient()
	defer client.CloseIdleConnections()

	for _, method := range []string{http.MethodHead, http.MethodGet} {
		if _, err := visit(ctx, client, method, address, nil); err != nil {
			return nil, err
		}
	}

	page, err := visit(ctx, client, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}

	form, err := grantForm(page)
	if err != nil {
		return nil, fmt.Errorf("the page %s: %w", origin(address), err)
	}

	target, err := url.Parse(address)
	if err == nil {
		target, err = target.Parse(form.action)
	}
	if err != nil || origin(target.String()) != origin(address) {
		return nil, fmt.Errorf("the form leads to %q", form.action)
	}
	if _, err := visit(ctx, client, http.MethodPost, target.String(), form.fields); err != nil {
		return nil, err
	}

	return []string{"opening the link decided nothing: the page still asked afterwards", "the form on the page took the decision"}, nil
}

// visit makes one request as a browser does. The errors leave out the path, which is a secret.
func visit(ctx context.Context, client *http.Client, method, address string, form url.Values) (string, error) {
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}

	request, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return "", errors.New("the address of the demand is no URL")
	}

	request.Header.Set("Accept", "text/html")
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Origin", origin(address))
		request.Header.Set("Sec-Fetch-Site", "same-origin")
	}

	response, err := client.Do(request)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return "", fmt.Errorf("%s %s: %w", method, origin(address), err)
	}

	page, err := readBody(response)
	if err == nil && response.StatusCode != http.StatusOK && (form == nil || response.StatusCode != http.StatusSeeOther) {
		err = fmt.Errorf("%s %s answered %s", method, origin(address), response.Status)
	}

	return string(page), err
}

// decisionForm is a form as its button would send it.
type decisionForm struct {
	action string
	fields url.Values
}

// grantForm finds the form with a button whose value is "grant".
func grantForm(page string) (decisionForm, error) {
	document, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return decisionForm{}, err
	}

	for node := range document.Descendants() {
		if node.Data != "form" || !strings.EqualFold(attribute(node, "method"), "post") {
			continue
		}
		if found, ok := readForm(node); ok {
			return found, nil
		}
	}
	return decisionForm{}, errors.New("there is no form that grants the demand")
}

func readForm(node *html.Node) (form decisionForm, grants bool) {
	form = decisionForm{action: attribute(node, "action"), fields: url.Values{}}
	for field := range node.Descendants() {
		name, value := attribute(field, "name"), attribute(field, "value")
		button := field.Data == "button" || field.Data == "input" && attribute(field, "type") == "submit"
		switch {
		case button && value == "grant" && !grants:
			form.fields.Set(name, value)
			grants = true
		case field.Data == "input" && attribute(field, "type") == "hidden":
			form.fields.Set(name, value)
		}
	}
	return form, grants
}

func attribute(node *html.Node, name string) string {
	for _, one := range node.Attr {
		if one.Key == name {
			return one.Val
		}
	}
	return ""
}
