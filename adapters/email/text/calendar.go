package text

import (
	"cmp"
	"fmt"
	"strings"

	"inbox/adapters/email/message"
)

// Bounds of what is read from an invitation.
const (
	maxCalendarBytes = 256 << 10
	maxEvents        = 20
)

// calendarLabels are the properties of RFC 5545 that a person reads first, in the order of the summary.
var calendarLabels = []struct{ name, label string }{
	{"SUMMARY", "What"}, {"DTSTART", "Begins"}, {"DTEND", "Ends"}, {"DURATION", "Lasts"}, {"DUE", "Due"}, {"RRULE", "Repeats"},
	{"LOCATION", "Where"}, {"ORGANIZER", "Organizer"}, {"STATUS", "Status"}, {"UID", "UID"}, {"DESCRIPTION", "Description"},
}

var calendarMethods = map[string]string{
	"REQUEST": "Invitation", "CANCEL": "Cancelled event", "REPLY": "Answer to an invitation", "COUNTER": "Proposal of another time",
	"PUBLISH": "Event", "REFRESH": "Question for an event", "DECLINECOUNTER": "Refused proposal", "ADD": "Further dates of an event",
}

// calendarText makes an invitation readable. It never answers one: what is accepted is the agent's to say in words.
func calendarText(text string) string {
	if len(text) > maxCalendarBytes {
		text = strings.ToValidUTF8(text[:maxCalendarBytes], "")
	}

	method, events := readCalendar(text)
	var out strings.Builder
	for _, event := range events {
		if out.Len() > 0 {
			out.WriteString("\n\n")
		}
		out.WriteString(cmp.Or(calendarMethods[method], "Event"))
		for _, one := range calendarLabels {
			if value := event[one.name]; value != "" {
				fmt.Fprintf(&out, "\n%s: %s", one.label, value)
			}
		}
	}

	return out.String()
}

// readCalendar collects the properties of events and tasks. Those of alarms and time zones are left out. go-ical loses a
// whole invitation for one line without a colon or a missing end (TestCalendarsAreReadAsFarAsTheyGo).
func readCalendar(text string) (method string, events []map[string]string) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.NewReplacer("\n ", "", "\n\t", "").Replace(text) // folded lines
	var event map[string]string
	inside := 0 // components within the event
	for line := range strings.SplitSeq(text, "\n") {
		name, parameters, value := calendarLine(line)
		switch kind := strings.ToUpper(strings.TrimSpace(value)); {
		case name == "METHOD" && event == nil:
			method = kind
		case name == "BEGIN" && event != nil:
			inside++
		case name == "BEGIN" && (kind == "VEVENT" || kind == "VTODO"):
			event, inside = map[string]string{}, 0
		case name == "END" && event != nil && inside > 0:
			inside--
		case name == "END" && event != nil:
			if events, event = append(events, event), nil; len(events) == maxEvents {
				return method, events
			}

		case event != nil && inside == 0 && event[name] == "":
			event[name] = calendarValue(name, parameters, value)
		}
	}

	return method, events
}

// calendarLine cuts name;parameter=…:value, where a quoted parameter may hold a colon.
func calendarLine(line string) (name, parameters, value string) {
	quoted := false
	for i := range len(line) {
		switch {
		case line[i] == '"':
			quoted = !quoted
		case line[i] == ':' && !quoted:
			name, parameters, _ = strings.Cut(line[:i], ";")
			return strings.ToUpper(strings.TrimSpace(name)), parameters, line[i+1:]
		}
	}

	return "", "", ""
}

func calendarValue(name, parameters, value string) string {
	switch name {
	case "DTSTART", "DTEND", "DUE":
		return calendarTime(value, calendarParameter(parameters, "TZID"))
	case "ORGANIZER":
		address := strings.TrimPrefix(strings.TrimPrefix(value, "mailto:"), "MAILTO:")
		if person := calendarParameter(parameters, "CN"); person != "" && message.DisplayName(person) != "" {
			return message.Clean(message.DisplayName(person)+" <"+address+">", 300)
		}
		return message.Clean(address, 300)
	}

	value = strings.NewReplacer(`\n`, "\n", `\N`, "\n", `\,`, ",", `\;`, ";", `\\`, `\`).Replace(value)
	if name == "DESCRIPTION" {
		return message.Clip(Readable(value), 4000)
	}

	return message.Clean(value, 500)
}

func calendarParameter(parameters, name string) string {
	for one := range strings.SplitSeq(parameters, ";") {
		if key, value, found := strings.Cut(one, "="); found && strings.EqualFold(strings.TrimSpace(key), name) {
			return message.Clean(strings.Trim(value, `"`), 200)
		}
	}
	return ""
}

// calendarTime writes 20261123T100000Z as a person would.
func calendarTime(value, zone string) string {
	value = message.Clean(value, 40)
	day, clock, timed := strings.Cut(value, "T")
	if len(day) != 8 || strings.Trim(day, "0123456789") != "" {
		return value
	}

	out := day[:4] + "-" + day[4:6] + "-" + day[6:]
	if timed && len(clock) >= 6 {
		out += " " + clock[:2] + ":" + clock[2:4]
		if strings.HasSuffix(clock, "Z") {
			zone = "UTC"
		}
	}

	if zone != "" {
		out += " " + zone
	}

	return out
}
