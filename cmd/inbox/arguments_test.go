package main

import (
	"math"
	"slices"
	"testing"
)

// TestPositionals: the arguments that a line of use demands, without its options, their values and their alternatives.
func TestPositionals(t *testing.T) {
	const many = math.MaxInt / 4
	for use, want := range map[string]struct {
		required []string
		most     int
	}{
		"list":                    {nil, 0},
		"show ID":                 {[]string{"ID"}, 1},
		"why AGENT ADDRESS":       {[]string{"AGENT", "ADDRESS"}, 2},
		"edit ID [FILE]":          {[]string{"ID"}, 2},
		"test NAME [WORDS…]":      {[]string{"NAME"}, many},
		"remove TARGET…":          {[]string{"TARGET…"}, many},
		"resume NAME… | --all":    {[]string{"NAME…"}, many},
		"pause [NAME… | --all]":   {nil, many},
		"record --to DIR [ID…]":   {nil, many},
		"unlink WHO… [--agent A]": {[]string{"WHO…"}, many},
		"export PERSON [--out DIR | --out FILE.zip] [--dry-run]":             {[]string{"PERSON"}, 1},
		"import {--client C | --connector C} [--agent A] FILE":               {[]string{"FILE"}, 1},
		"run [--target T] [--require …] [--wait] INSTRUCTIONS…":              {[]string{"INSTRUCTIONS…"}, many},
		"create [--agent A [--pull | --tools] | --bridge [--scopes …]] NAME": {[]string{"NAME"}, 1},
		"bridge --agent A [--resume | --session ID] [MESSAGE…] | --listen":   {nil, many},
	} {
		required, most := positionals(use)
		if !slices.Equal(required, want.required) || most != want.most && (most < many || want.most < many) {
			t.Errorf("%q: %v and at most %d, want %v and %d", use, required, most, want.required, want.most)
		}
	}
}
