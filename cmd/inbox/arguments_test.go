package main

import (
	"slices"
	"testing"
)

// TestPositionals: the arguments that a line of use demands, without its options, their values and their alternatives.
func TestPositionals(t *testing.T) {
	for use, want := range map[string]struct {
		required []string
		optional []string
	}{
		"list":                    {nil, nil},
		"show ID":                 {[]string{"ID"}, nil},
		"why AGENT ADDRESS":       {[]string{"AGENT", "ADDRESS"}, nil},
		"edit ID [FILE]":          {[]string{"ID"}, []string{"FILE"}},
		"test NAME [WORDS…]":      {[]string{"NAME"}, []string{"WORDS…"}},
		"remove TARGET…":          {[]string{"TARGET…"}, nil},
		"resume NAME… | --all":    {[]string{"NAME…"}, nil},
		"pause [NAME… | --all]":   {nil, []string{"NAME…"}},
		"record --to DIR [ID…]":   {nil, []string{"ID…"}},
		"unlink WHO… [--agent A]": {[]string{"WHO…"}, nil},
		"export PERSON [--out DIR | --out FILE.zip] [--dry-run]":             {[]string{"PERSON"}, nil},
		"import {--client C | --connector C} [--agent A] FILE":               {[]string{"FILE"}, nil},
		"run [--target T] [--require …] [--wait] INSTRUCTIONS…":              {[]string{"INSTRUCTIONS…"}, nil},
		"create [--agent A [--pull | --tools] | --bridge [--scopes …]] NAME": {[]string{"NAME"}, nil},
		"bridge --agent A [--resume | --session ID] [MESSAGE…] | --listen":   {nil, []string{"MESSAGE…"}},
	} {
		required, optional := positionals(use)
		if !slices.Equal(required, want.required) || !slices.Equal(optional, want.optional) {
			t.Errorf("%q: %v and perhaps %v, want %v and %v", use, required, optional, want.required, want.optional)
		}
	}
}
