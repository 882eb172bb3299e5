package normalized

import (
	"encoding/json"
	"maps"
)

//go:generate go run schema_generate.go

// schema is one JSON Schema (draft 2020-12).
type schema map[string]any

const schemaDialect = "https://json-schema.org/draft/2020-12/schema"

// Patterns are written in the part of the regular expression language that every validator knows. Lengths count
// characters there and bytes in Validate, so a schema may accept a little more than the server, never less.
const (
	patternMachine = `^[^\x00-\x1f\x7f-\x9f]+$`
	patternProse   = `\S`
	patternAddress = `^@[^@<>"(),:;\\\[\]\x00-\x20\x7f-\x9f]+@[a-z0-9.:\[\]-]+$`
	patternAgent   = `^@[A-Za-z0-9_-]([A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?@[a-z0-9.:\[\]-]+$`
	patternTime    = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`
	patternHTTPS   = `^https://[^@/?#\x00-\x20]+([/?#].*)?$`
	patternWeb     = `^[hH][tT][tT][pP][sS]?://`
	patternScheme  = `^[A-Za-z][A-Za-z0-9+.-]*:`
	patternDigest  = `^[0-9a-f]{64}$`
	patternRef     = `^sha256:[0-9a-f]{64}$`
	patternBase64  = `^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`
	patternMedia   = `^[^/\s]+/[^/\s]+`
	patternReverse = `^[^.]+(\.[^.]+)+$`
)

// Schemas returns the JSON Schemas of the contract by file name, as docs/schema holds them. They describe what the
// encoder writes under the default limits; readers ignore keys that are not listed.
func Schemas() map[string][]byte {
	files := map[string]schema{
		"message.json":     messageSchema(),
		"response.json":    responseSchema(),
		"delta.json":       deltaSchema(),
		"part.json":        partSchema(),
		"policy-part.json": policySchema(),
		"evidence.json":    evidenceSchema(),
	}
	written := make(map[string][]byte, len(files))
	for name, s := range files {
		s["$schema"] = schemaDialect
		body, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			panic("normalized: schema " + name + ": " + err.Error()) // literals of this package
		}
		written[name] = append(body, '\n')
	}
	return written
}

// record is an object with some required fields; all other keys are allowed and ignored.
func record(required []string, properties schema, rules ...schema) schema {
	s := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	if len(rules) > 0 {
		s["allOf"] = rules
	}
	return s
}

func titled(title string, s schema) schema {
	s = maps.Clone(s)
	s["title"] = title
	return s
}

func ref(target string) schema { return schema{"$ref": target} }

func machineText(longest int) schema {
	return schema{"type": "string", "maxLength": longest, "pattern": patternMachine}
}

// prose is text for people; it may be empty.
func prose(longest int) schema { return schema{"type": "string", "maxLength": longest} }

func requiredProse(longest int) schema {
	return schema{"type": "string", "maxLength": longest, "pattern": patternProse}
}

func matching(pattern string, longest int) schema {
	return schema{"type": "string", "maxLength": longest, "pattern": pattern}
}

func addressSchema() schema { return matching(patternAddress, DefaultLimits().Address) }

func instantSchema() schema {
	return schema{"type": "string", "format": "date-time", "pattern": patternTime}
}

func constant(value any) schema { return schema{"const": value} }

func among(values ...string) schema { return schema{"enum": values} }

func listOf(items schema, most int) schema {
	return schema{"type": "array", "items": items, "maxItems": most}
}

func natural() schema { return schema{"type": "integer", "minimum": 0} }

func boolean() schema { return schema{"type": "boolean"} }

// having matches objects whose field has the value.
func having(field string, value any) schema {
	return schema{"required": []string{field}, "properties": schema{field: constant(value)}}
}

// when adds a rule to objects that match a condition.
func when(condition, rule schema) schema { return schema{"if": condition, "then": rule} }

func unless(condition, rule schema) schema { return schema{"if": condition, "else": rule} }

func needs(fields ...string) schema { return schema{"required": fields} }

func not(s schema) schema { return schema{"not": s} }
