package config

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"

	"github.com/BurntSushi/toml"
)

// Document writes the settings as a file would say them: with everything those that follow from others and all defaults, else what
// differs from the defaults. Secrets and passwords are hidden.
func (c *Config) Document(everything bool) ([]byte, error) {
	whole := *c
	whole.Agents = c.Everybody()
	settings, err := asTables(&whole)
	if err != nil {
		return nil, err
	}

	// The tables of other kinds are never read, and writing them is refused.
	agents, _ := settings["agents"].([]map[string]any)
	for _, agent := range agents {
		for _, kind := range kinds {
			if agent["kind"] != kind {
				delete(agent, kind)
			}
		}
	}

	if !everything {
		defaults, err := asTables(Default())
		if err != nil {
			return nil, err
		}
		withoutEqual(settings, defaults)
		for _, agent := range agents {
			var usual Agent
			usual.setDefaults()
			defaults, err := asTables(usual)
			if err != nil {
				return nil, err
			}
			withoutEqual(agent, defaults)
		}
	}

	withoutUnset(settings)
	var text bytes.Buffer
	if err := toml.NewEncoder(&text).Encode(settings); err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	return text.Bytes(), nil
}

// asTables turns settings into what a reader of TOML makes of them.
func asTables(settings any) (read map[string]any, err error) {
	var text bytes.Buffer
	if err := toml.NewEncoder(&text).Encode(settings); err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	if _, err := toml.Decode(text.String(), &read); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	return read, nil
}

// withoutEqual removes what has the same value in others.
func withoutEqual(settings, others map[string]any) {
	for key, value := range settings {
		table, isTable := value.(map[string]any)
		if other, is := others[key].(map[string]any); isTable && is {
			withoutEqual(table, other)
			if len(table) == 0 {
				delete(settings, key)
			}
		} else if reflect.DeepEqual(value, others[key]) {
			delete(settings, key)
		}
	}
}

// withoutUnset removes keys that were not written and have no default: numbers that mean "not set", empty texts and lists.
func withoutUnset(settings map[string]any) {
	for key, value := range settings {
		switch value := value.(type) {
		case int64:
			if value == unset {
				delete(settings, key)
			}
		case string:
			if value == "" || value == strconv.Itoa(unset) {
				delete(settings, key)
			}
		case []any:
			if len(value) == 0 {
				delete(settings, key)
			}
		case map[string]any:
			if withoutUnset(value); len(value) == 0 {
				delete(settings, key)
			}
		case []map[string]any:
			for _, table := range value {
				withoutUnset(table)
			}
		}
	}
}
