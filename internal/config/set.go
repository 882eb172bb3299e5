package config

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// setField is setValue that also takes the short form of a table.
func setField(field reflect.Value, raw any, fromText bool) error {
	text, isText := raw.(string)
	if table, ok := reflect.TypeAssert[short](field.Addr()); ok && isText {
		table.setShort(text)
		return nil
	}
	return setValue(field, raw, fromText)
}

// setValue puts a TOML value, or the text of an environment variable, into a field. The error says what is wanted.
func setValue(field reflect.Value, raw any, fromText bool) error {
	if field.Kind() == reflect.Slice {
		return setList(field, raw, fromText)
	}

	switch target := field.Addr().Interface().(type) {
	case *time.Duration:
		return setParsed(target, raw, parseDuration)
	case *Size:
		if number, ok := raw.(int64); ok {
			raw = strconv.FormatInt(number, 10)
		}
		return setParsed(target, raw, parseSize)
	case *netip.Prefix:
		return setParsed(target, raw, parsePrefix)
	case *time.Time:
		return setTime(target, raw)
	case *bool:
		return setScalar(target, raw, fromText, parseBool, "write true or false")
	case **bool:
		*target = new(bool)
		return setScalar(*target, raw, fromText, parseBool, "write true or false")
	case *int:
		return setInt(target, raw, fromText)
	case *float64:
		return setFloat(target, raw, fromText)
	case **float64:
		*target = new(float64)
		return setFloat(*target, raw, fromText)
	}

	text, ok := raw.(string)
	if !ok {
		return errors.New(`write a text in quotes`)
	}

	field.SetString(text)
	return nil
}

func setParsed[T any](target *T, raw any, parse func(string) (T, error)) error {
	text, ok := raw.(string)
	if !ok {
		text = "" // every parser says what it wants
	}
	value, err := parse(strings.TrimSpace(text))
	if err == nil {
		*target = value
	}
	return err
}

func setScalar[T any](target *T, raw any, fromText bool, parse func(string) (T, error), want string) error {
	if fromText {
		return setParsed(target, raw, parse)
	}
	value, ok := raw.(T)
	if !ok {
		return errors.New(want)
	}
	*target = value
	return nil
}

func setInt(target *int, raw any, fromText bool) error {
	var number int64
	if err := setScalar(&number, raw, fromText, parseInt, "write a whole number"); err != nil {
		return err
	}
	*target = int(number)
	return nil
}

func setFloat(target *float64, raw any, fromText bool) error {
	if whole, is := raw.(int64); is {
		raw = float64(whole)
	}
	return setScalar(target, raw, fromText, parseFloat, "write a number")
}

// setList reads a TOML array, or a text with commas from the environment.
func setList(field reflect.Value, raw any, fromText bool) error {
	items, ok := raw.([]any)
	if text, isText := raw.(string); isText && fromText {
		items, ok = split(text), true
	}
	if !ok {
		return errors.New("write a list: [a, b]")
	}

	list := reflect.MakeSlice(field.Type(), len(items), len(items))
	for i, item := range items {
		if err := setValue(list.Index(i), item, fromText); err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
	}

	field.Set(list)
	return nil
}

func split(text string) []any {
	var items []any
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// parseDuration also takes days of 24 hours, "30d", which time.ParseDuration does not know.
func parseDuration(text string) (time.Duration, error) {
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		if count, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(count) * 24 * time.Hour, nil
		}
	}

	value, err := time.ParseDuration(text)
	if err != nil || value < 0 {
		return 0, errors.New(`write a time such as "15s", "10m", "24h" or "30d"`)
	}
	return value, nil
}

func parseSize(text string) (Size, error) {
	size, err := ParseSize(text)
	if err != nil {
		return 0, errors.New(`write a number of bytes, or a size such as "25MiB"`)
	}
	return size, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, errors.New(`write a network such as "10.0.0.0/8" or a single address`)
	}
	return network.Masked(), nil
}

// setTime takes a TOML date or time, or the text of one from the environment. Without a zone it is in UTC.
func setTime(target *time.Time, raw any) error {
	value, ok := raw.(time.Time)
	if text, isText := raw.(string); isText {
		value, ok = parseTime(text)
	}
	if !ok || value.Year() < 1970 {
		return errors.New("write a date such as 2030-12-31 or a time such as 2030-12-31T12:00:00Z")
	}

	if strings.HasSuffix(value.Location().String(), "-local") { // how the TOML library marks what has no zone
		value = time.Date(value.Year(), value.Month(), value.Day(), value.Hour(), value.Minute(), value.Second(), 0, time.UTC)
	}

	*target = value.UTC()
	return nil
}

func parseTime(text string) (time.Time, bool) {
	for _, layout := range []string{time.DateOnly, time.RFC3339, "2006-01-02T15:04:05"} {
		if value, err := time.Parse(layout, strings.TrimSpace(text)); err == nil {
			return value, true
		}
	}
	return time.Time{}, false
}

func parseBool(text string) (bool, error) {
	value, err := strconv.ParseBool(text)
	if err != nil {
		return false, errors.New("write true or false")
	}
	return value, nil
}

func parseFloat(text string) (float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, errors.New("write a number")
	}
	return value, nil
}

func parseInt(text string) (int64, error) {
	value, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, errors.New("write a whole number")
	}
	return value, nil
}
