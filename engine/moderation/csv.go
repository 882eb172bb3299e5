package moderation

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
)

// Limits of an import.
const (
	MaxImportLines = 200_000
	maxImportLine  = 16 << 10
	maxReasonBytes = 500
)

// Severities of Mastodon's domain blocks.
const (
	severitySuspend = "suspend"
	severitySilence = "silence"
	severityNoop    = "noop"
)

// Silenced says what becomes of the domains that a list of Mastodon silences. Silencing hides posts from timelines, which
// this server has none of, so that the operator chooses.
const (
	SilencedHold   = "hold"   // their messages wait for the operator (the default)
	SilencedRefuse = "refuse" // as if they were suspended
	SilencedSkip   = "skip"   // they are not imported
)

// ImportOptions say how lines become entries.
type ImportOptions struct {
	List     string // exchange.ListBlock or exchange.ListAllow
	Silenced string // see the Silenced constants; empty = SilencedHold
	Source   string
}

// columns says where a header puts what; -1 = not there.
type columns struct{ domain, severity, comment int }

// ReadImport reads a list of domains and calls take for every entry, without id and time: Mastodon's exports of blocks
// (#domain,#severity,…) and allowances (#domain), with or without a header, GoToSocial's exports of the same form, or one
// host, address or actor a line, a note after it or a hosts file. A domain of Mastodon covers its subdomains, as it does there. Comments, empty lines and
// a byte order mark are passed over; bad lines go to bad and the import goes on. An error of take ends it; what is no text
// at all or too long is fault.Malformed or fault.TooLarge.
func ReadImport(from io.Reader, options ImportOptions, take func(exchange.ListEntry) error, bad func(exchange.BadLine)) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 4<<10), maxImportLine)
	place := columns{domain: 0, severity: -1, comment: -1}
	headed := false
	for number := 1; lines.Scan(); number++ {
		if number > MaxImportLines {
			return fault.Newf(fault.TooLarge, "the file has more than %d lines", MaxImportLines)
		}

		text := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if text == "" {
			continue
		}
		var note string
		if !headed { // in a column a hash is a part of a field
			if text, note = withoutNote(text); text == "" {
				continue
			}
		}

		report := func(why string) { bad(exchange.BadLine{Line: number, Text: beginning(text), Why: why}) }
		if !utf8.ValidString(text) {
			report("is not text")
			continue
		}

		if hosts, is := hostsLine(text); is {
			for _, host := range hosts {
				entry, wanted, err := columns{0, -1, -1}.entry([]string{host}, false, options)
				if err != nil {
					report(err.Error())
				} else if entry.Reason = clip.Marked(note, maxReasonBytes, "…"); wanted {
					if err := take(entry); err != nil {
						return err
					}
				}
			}
			continue
		}

		fields, err := splitLine(text)
		if err != nil {
			report(err.Error())
			continue
		}
		if found, is := header(fields); is {
			place, headed = found, true
			continue
		}
		if strings.HasPrefix(text, "#") {
			continue
		}

		entry, wanted, err := place.entry(fields, headed, options)
		if entry.Reason == "" {
			entry.Reason = clip.Marked(note, maxReasonBytes, "…")
		}
		switch {
		case err != nil:
			report(err.Error())
		case wanted:
			if err := take(entry); err != nil {
				return err
			}
		}
	}

	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fault.Newf(fault.TooLarge, "a line is longer than %d bytes: this is no list of domains", maxImportLine)
	}

	return lines.Err()
}

// withoutNote takes a note off the end of a line: a blank, #, and text. In quotes it is a part of a field.
func withoutNote(text string) (line, note string) {
	for at := 1; at < len(text); at++ {
		if text[at] == '#' && (text[at-1] == ' ' || text[at-1] == '\t') && strings.Count(text[:at], `"`)%2 == 0 {
			return strings.TrimSpace(text[:at]), strings.TrimSpace(text[at+1:])
		}
	}
	return text, ""
}

// hostsLine reads a line of a hosts file, which leads hosts to an address that no one answers: 0.0.0.0 spam.example. The names of the machine
// itself are left out.
func hostsLine(text string) (hosts []string, is bool) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return nil, false
	}
	address, err := netip.ParseAddr(words[0])
	if err != nil || !address.IsUnspecified() && !address.IsLoopback() {
		return nil, false
	}
	for _, word := range words[1:] {
		if _, err := netip.ParseAddr(word); err != nil && strings.Contains(word, ".") && !strings.HasPrefix(word, "localhost.") {
			hosts = append(hosts, word)
		}
	}
	return hosts, true
}

// splitLine reads one line of CSV (RFC 4180). A field never spans lines in these lists: an open quote is a bad line and
// does not swallow the rest of the file.
func splitLine(text string) ([]string, error) {
	reader := csv.NewReader(strings.NewReader(text))
	reader.FieldsPerRecord, reader.TrimLeadingSpace = -1, true
	fields, err := reader.Read()
	if parse := new(csv.ParseError); errors.As(err, &parse) {
		return nil, fmt.Errorf("is not CSV: %w", parse.Err)
	}
	return fields, err
}

// header knows a line that names columns: its first one is #domain, or domain beside others.
func header(fields []string) (columns, bool) {
	place := columns{-1, -1, -1}
	for i, field := range fields {
		switch strings.ToLower(strings.TrimPrefix(strings.TrimSpace(field), "#")) {
		case "domain":
			place.domain = i
		case "severity":
			place.severity = i
		case "public_comment", "comment", "reason":
			place.comment = i
		}
	}

	first := strings.TrimSpace(fields[0])
	return place, place.domain >= 0 && (strings.HasPrefix(first, "#") || len(fields) > 1 || strings.EqualFold(first, "domain"))
}

func (c columns) entry(fields []string, headed bool, options ImportOptions) (entry exchange.ListEntry, wanted bool, err error) {
	if !headed && len(fields) > 1 {
		c.severity = 1 // Mastodon's order
	}

	get := func(i int) string {
		if i < 0 || i >= len(fields) {
			return ""
		}
		return strings.TrimSpace(fields[i])
	}

	entry = exchange.ListEntry{List: options.List, Source: options.Source, Reason: clip.Marked(get(c.comment), maxReasonBytes, "…")}
	if entry.Kind, entry.Target, err = ParseTarget(get(c.domain)); err != nil {
		return entry, false, err
	}

	mastodon := headed || len(fields) > 1
	if mastodon && entry.Kind == exchange.TargetHost && !strings.HasPrefix(entry.Target, subdomains) {
		if below, err := ParseHost(subdomains + entry.Target); err == nil {
			entry.Target = below
		}
	}

	if options.List != exchange.ListBlock {
		return entry, true, nil
	}

	entry.Effect, wanted, err = effectOf(get(c.severity), options.Silenced)
	return entry, wanted, err
}

func effectOf(severity, silenced string) (effect string, wanted bool, err error) {
	switch strings.ToLower(severity) {
	case "", severitySuspend:
		return exchange.EffectRefuse, true, nil
	case severityNoop: // media or reports of the domain are refused, which changes nothing here
		return "", false, nil
	case severitySilence, "limit":
		switch silenced {
		case SilencedRefuse:
			return exchange.EffectRefuse, true, nil
		case SilencedSkip:
			return "", false, nil
		}
		return exchange.EffectHold, true, nil
	}
	return "", false, fmt.Errorf("the severity %q is not suspend, silence or noop", beginning(severity))
}

func beginning(text string) string { return clip.Marked(text, 80, "…") }
