// Package markuptest judges HTML that pages made of texts of others: whether such a text became markup, or an address that runs
// something. It is for tests alone.
package markuptest

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// Hostile are texts that try to leave the place where a page puts them: text, attributes in quotes, addresses, scripts, comments.
var Hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)`,
	`" autofocus onfocus="alert(1)`,
	`</title></style></textarea></script></noscript><svg onload=alert(1)>`,
	"javascript:alert(1)",
	"JaVaScRiPt&colon;alert(1)",
	" \x01javascript:alert(1)",
	"java\nscript:alert(1)",
	"data:text/html,<script>alert(1)</script>",
	"vbscript:msgbox(1)",
	`--><script>alert(1)</script><!--`,
	"{{.}} {children...} ${1} `\\u003cscript\\u003e",
	"\x00<b\x00>",
}

// Fill returns a copy of a value with text in the place of every text inside of it that is not empty.
func Fill[T any](value T, text string) T {
	filled := reflect.New(reflect.TypeFor[T]()).Elem()
	filled.Set(filledWith(reflect.ValueOf(&value).Elem(), text))
	return filled.Interface().(T)
}

func filledWith(value reflect.Value, text string) reflect.Value {
	copied := reflect.New(value.Type()).Elem()
	copied.Set(value)
	switch value.Kind() {
	case reflect.String:
		if value.String() != "" {
			copied.SetString(text)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			if copied.Field(i).CanSet() {
				copied.Field(i).Set(filledWith(value.Field(i), text))
			}
		}
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 || value.IsNil() {
			break
		}
		copied.Set(reflect.MakeSlice(value.Type(), value.Len(), value.Len()))
		for i := range value.Len() {
			copied.Index(i).Set(filledWith(value.Index(i), text))
		}
	}
	return copied
}

// Skeleton returns the elements of a page with the names of their attributes, in order. Texts never change it. An error names an
// address that is neither relative nor http, https or mailto, and an attribute that runs something.
func Skeleton(page string) ([]string, error) {
	document, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return nil, err
	}

	var elements []string
	for node := range document.Descendants() {
		switch node.Type {
		case html.CommentNode:
			return nil, fmt.Errorf("a comment: %q", node.Data)
		case html.ElementNode:
		default:
			continue
		}

		element := []string{node.Data}
		for _, attribute := range node.Attr {
			element = append(element, attribute.Key)
			if strings.HasPrefix(attribute.Key, "on") || attribute.Key == "style" || attribute.Key == "srcdoc" {
				return nil, fmt.Errorf("<%s %s=%q> runs something", node.Data, attribute.Key, attribute.Val)
			}
			if slices.Contains([]string{"href", "src", "action", "formaction", "data", "poster"}, attribute.Key) && !harmless(attribute.Val) {
				return nil, fmt.Errorf("<%s %s=%q> leads to a program", node.Data, attribute.Key, attribute.Val)
			}
		}
		elements = append(elements, strings.Join(element, " "))
	}
	return elements, nil
}

// harmless reads an address as browsers do: without spaces and control characters before it, and without line ends and tabs inside
// (URL standard, section 4.4).
func harmless(address string) bool {
	address = strings.TrimLeftFunc(address, func(r rune) bool { return r <= ' ' })
	address = strings.NewReplacer("\n", "", "\r", "", "\t", "").Replace(address)
	if address == "about:invalid#TemplFailedSanitizationURL" {
		return true
	}
	scheme, _, found := strings.Cut(address, ":")
	if !found || strings.ContainsAny(scheme, "/?#") {
		return true
	}
	if _, err := url.Parse(scheme + ":"); err != nil {
		return true // not a scheme, so the address is relative
	}
	return slices.Contains([]string{"http", "https", "mailto"}, strings.ToLower(scheme))
}
