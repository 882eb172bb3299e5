package demand

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"inbox/internal/lookalike"
	"inbox/policypart"
)

// maxDepth bounds how deep a document is taken apart. What is deeper is shown as the text that it is.
const maxDepth = 64

// arranged writes a JSON value for the person who decides about it: the same value, in which shorter members stand before longer ones at each
// level, so that no text pushes a recipient or a flag out of sight. Characters that cannot be seen, that turn the direction of what
// follows, or that look like those of the alphabet around them are written as escapes.
func arranged(value json.RawMessage) json.RawMessage {
	if len(value) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	text, err := arrangedNext(decoder, 0)
	if err == nil {
		_, err = decoder.Token() // io.EOF, where nothing stands behind the value
	}
	if !errors.Is(err, io.EOF) { // no JSON: it is shown as the string that it is
		return json.RawMessage(lookalike.JSON(string(value)))
	}
	return json.RawMessage(text)
}

// arrangedMember is a member of an object, written.
type arrangedMember struct{ name, value string }

func arrangedNext(decoder *json.Decoder, depth int) (string, error) {
	if depth > maxDepth {
		var rest json.RawMessage
		err := decoder.Decode(&rest)
		return lookalike.JSON(string(rest)), err
	}
	token, err := decoder.Token()
	if err != nil {
		return "", err
	}

	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			return arrangedList(decoder, depth)
		}
		return arrangedObject(decoder, depth)
	case string:
		return lookalike.JSON(token), nil
	case json.Number:
		return token.String(), nil
	case bool:
		return fmt.Sprint(token), nil
	}
	return "null", nil
}

func arrangedList(decoder *json.Decoder, depth int) (string, error) {
	var elements []string
	for decoder.More() {
		element, err := arrangedNext(decoder, depth+1)
		if err != nil {
			return "", err
		}
		elements = append(elements, element)
	}
	_, err := decoder.Token()
	return "[" + strings.Join(elements, ",") + "]", err
}

// arrangedObject keeps a name that comes twice, because a reader of the call may take either.
func arrangedObject(decoder *json.Decoder, depth int) (string, error) {
	var members []arrangedMember
	for decoder.More() {
		name, err := arrangedNext(decoder, depth+1)
		if err != nil {
			return "", err
		}
		value, err := arrangedNext(decoder, depth+1)
		if err != nil {
			return "", err
		}
		members = append(members, arrangedMember{name, value})
	}
	if _, err := decoder.Token(); err != nil {
		return "", err
	}

	slices.SortStableFunc(members, func(a, b arrangedMember) int { return len(a.name) + len(a.value) - len(b.name) - len(b.value) })
	written := make([]string, len(members))
	for i, member := range members {
		written[i] = member.name + ":" + member.value
	}
	return "{" + strings.Join(written, ",") + "}", nil
}

// document is a value as text: a string as it is, anything else indented.
func document(value json.RawMessage) string {
	var text *string
	if json.Unmarshal(value, &text) == nil && text != nil {
		return lookalike.Visible(*text)
	}
	whole := arranged(value)
	if json.Unmarshal(whole, &text) == nil && text != nil { // no JSON
		return *text
	}
	var out bytes.Buffer
	if json.Indent(&out, whole, "", "  ") != nil {
		return string(whole)
	}
	return out.String()
}

// Hosts beyond ASCII that a page lists, and a message.
const (
	maxHosts  = 100
	toldHosts = 10
)

// hostsOf lists the non-ASCII hosts in an approval in their ASCII form, because readers cannot tell similar letters of two alphabets apart. The
// last line counts the hosts that do not fit.
func hostsOf(i policypart.Issuance, kept notes) []string {
	var texts []string
	if kept.Draft != nil {
		texts = append(texts, draftText(kept.Draft.Response))
	} else {
		asked := i.Part.Approval()
		texts = append(texts, asked.Tool, asked.Summary)
		texts = append(texts, stringsOf(asked.Preview)...)
		texts = append(texts, stringsOf(asked.ApplyInput)...)
	}

	hosts, more := lookalike.Hosts(maxHosts, texts...)
	var lines []string
	for _, host := range hosts {
		lines = append(lines, host.Written+" is "+host.ASCII)
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more, which have no room here", more))
	}
	return lines
}

// stringsOf returns the names and texts of a JSON value.
func stringsOf(value json.RawMessage) (texts []string) {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil {
			return texts
		}
		if text, is := token.(string); is {
			texts = append(texts, text)
		}
	}
}
