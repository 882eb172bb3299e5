package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"inbox/agents/runtime/value"
)

// Hash is H(x) of the audit records: "sha256:" and the hexadecimal SHA-256 of the canonical form (agent runtime
// contract, section 4.7).
func Hash(value any) string {
	sum := sha256.Sum256(Canonical(value))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Canonical writes a JSON value so that equal values give equal bytes, whatever the order of their members: no spaces,
// sorted keys, ASCII only, every empty object or list as [] (agent runtime contract, section 4.7). Values that are
// not of JSON are first brought through encoding/json; what cannot be encoded becomes null.
func Canonical(value any) []byte {
	return appendCanonical(make([]byte, 0, 256), value)
}

func appendCanonical(out []byte, given any) []byte {
	switch value := given.(type) {
	case nil:
		return append(out, "null"...)
	case bool:
		return strconv.AppendBool(out, value)
	case string:
		return appendCanonicalText(out, value)
	case json.Number:
		return appendCanonicalNumber(out, value.String())
	case int:
		return strconv.AppendInt(out, int64(value), 10)
	case int64:
		return strconv.AppendInt(out, value, 10)
	case float64:
		return appendCanonicalFloat(out, value)
	case map[string]any:
		return appendCanonicalObject(out, value)
	case []any:
		return appendCanonicalList(out, value)
	}

	plain := value.Plain(given)
	switch plain.(type) {
	case map[string]any, []any, json.Number, string, bool:
		return appendCanonical(out, plain)
	}

	return append(out, "null"...)
}

func appendCanonicalList(out []byte, list []any) []byte {
	out = append(out, '[')
	for index, item := range list {
		if index > 0 {
			out = append(out, ',')
		}
		out = appendCanonical(out, item)
	}
	return append(out, ']')
}

func appendCanonicalObject(out []byte, object map[string]any) []byte {
	keys := canonicalKeys(object)
	if isSequence(keys) {
		out = append(out, '[')
		for index, key := range keys {
			if index > 0 {
				out = append(out, ',')
			}
			out = appendCanonical(out, object[key])
		}
		return append(out, ']')
	}

	out = append(out, '{')
	for index, key := range keys {
		if index > 0 {
			out = append(out, ',')
		}
		out = appendCanonicalText(out, key)
		out = append(out, ':')
		out = appendCanonical(out, object[key])
	}

	return append(out, '}')
}

// canonicalKeys sorts twice, because the comparison by numbers is no total order ("9" < "1e1" < "1f" < "9"): starting
// from byte order, the result depends on the set of keys alone.
func canonicalKeys(object map[string]any) []string {
	keys := make([]string, 0, len(object))
	numeric := 0
	for key := range object {
		keys = append(keys, key)
		if _, ok := value.DecimalText(key); ok {
			numeric++
		}
	}

	sort.Strings(keys)
	if numeric > 1 {
		sort.SliceStable(keys, func(i, j int) bool { return keyLess(keys[i], keys[j]) })
	}

	return keys
}

func keyLess(left, right string) bool {
	leftNumber, leftNumeric := value.DecimalText(left)
	rightNumber, rightNumeric := value.DecimalText(right)
	if leftNumeric && rightNumeric {
		return leftNumber < rightNumber
	}
	return left < right
}

// isSequence reports whether the keys are exactly 0..n-1 in order; such an object is written as a list, which includes
// the empty one.
func isSequence(keys []string) bool {
	for index, key := range keys {
		if key != strconv.Itoa(index) {
			return false
		}
	}
	return true
}

// appendCanonicalNumber keeps integers of 64 bits as they are; everything else is a float.
func appendCanonicalNumber(out []byte, literal string) []byte {
	if literal != "-0" {
		if integer, err := strconv.ParseInt(literal, 10, 64); err == nil {
			return strconv.AppendInt(out, integer, 10)
		}
	}

	number, err := strconv.ParseFloat(literal, 64)
	if err != nil && !math.IsInf(number, 0) {
		return append(out, '0')
	}
	return appendCanonicalFloat(out, number)
}

// appendCanonicalFloat writes the shortest digits that read back as the same number, plain between 1e-4 and 1e17 and
// with an exponent outside. Infinity and NaN are not JSON and become 0.
func appendCanonicalFloat(out []byte, number float64) []byte {
	size := math.Abs(number)
	switch {
	case math.IsInf(number, 0) || math.IsNaN(number):
		return append(out, '0')
	case size == 0 || (size >= 1e-4 && size < 1e17):
		return strconv.AppendFloat(out, number, 'f', -1, 64)
	default:
		return appendExponent(out, number)
	}
}

// appendExponent differs from strconv in two things: a mantissa of one digit gets ".0", an exponent has no leading
// zero.
func appendExponent(out []byte, number float64) []byte {
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(number, 'e', -1, 64), "e")
	out = append(out, mantissa...)
	if !strings.Contains(mantissa, ".") {
		out = append(out, ".0"...)
	}
	out = append(out, 'e', exponent[0])
	return append(out, strings.TrimLeft(exponent[1:], "0")...)
}

const hexDigits = "0123456789abcdef"

func appendCanonicalText(out []byte, text string) []byte {
	out = append(out, '"')
	for index := 0; index < len(text); {
		if char := text[index]; char < utf8.RuneSelf {
			out = appendCanonicalByte(out, char)
			index++
			continue
		}
		point, size := utf8.DecodeRuneInString(text[index:])
		out = appendCanonicalRune(out, point)
		index += size
	}
	return append(out, '"')
}

func appendCanonicalByte(out []byte, char byte) []byte {
	switch char {
	case '"', '\\', '/':
		return append(out, '\\', char)
	case '\b':
		return append(out, '\\', 'b')
	case '\f':
		return append(out, '\\', 'f')
	case '\n':
		return append(out, '\\', 'n')
	case '\r':
		return append(out, '\\', 'r')
	case '\t':
		return append(out, '\\', 't')
	}

	if char < 0x20 {
		return appendUnit(out, rune(char))
	}
	return append(out, char)
}

func appendCanonicalRune(out []byte, point rune) []byte {
	if point < 0x10000 {
		return appendUnit(out, point)
	}
	point -= 0x10000
	return appendUnit(appendUnit(out, 0xd800+point>>10), 0xdc00+point&0x3ff)
}

func appendUnit(out []byte, unit rune) []byte {
	return append(out, '\\', 'u', hexDigits[unit>>12&15], hexDigits[unit>>8&15], hexDigits[unit>>4&15], hexDigits[unit&15])
}
