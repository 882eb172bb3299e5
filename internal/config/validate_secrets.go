package config

import (
	"reflect"
	"strings"
	"unicode"
)

const wantsSecret = "write a long random text, or remove the line"

// validateSecrets refuses secrets without a character that can be seen. They are in the file, so they count as set, and everyone can guess them.
func (c *Config) validateSecrets(p *problems) { blankSecrets(p, reflect.ValueOf(c).Elem(), "") }

func blankSecrets(p *problems, table reflect.Value, path string) {
	for i := range table.NumField() {
		key := keyOf(table.Type().Field(i))
		field := table.Field(i)
		switch full := join(path, key); {
		case key == "":
		case field.Type() == reflect.TypeFor[Secret]():
			if secret := field.String(); secret != "" && blank(secret) {
				p.add(full, "is blank", wantsSecret)
			}
		case isTable(field.Type()):
			blankSecrets(p, field, full)
		case isTableList(field.Type()):
			for n := range field.Len() {
				blankSecrets(p, field.Index(n), element(full, n))
			}
		}
	}
}

// blank reports whether a text has white space, control characters and characters without a form alone.
func blank(text string) bool {
	return strings.TrimFunc(text, func(char rune) bool {
		return unicode.IsSpace(char) || unicode.IsControl(char) || unicode.Is(unicode.Cf, char)
	}) == ""
}
