package mailtable

import "strings"

func repeated(line string, times int) string {
	return strings.TrimSuffix(strings.Repeat(line+"\n", times), "\n")
}

// recipients is who takes mail at all.
func recipients() []row {
	many := make([]string, 51)
	for i := range many {
		many[i] = "echo@inbox.test"
	}
	return []row{
		{name: "an agent", to: []string{"echo@inbox.test"}},
		{name: "capitals", to: []string{"ECHO@INBOX.test"}},
		{name: "a tag", to: []string{"echo+tag@inbox.test"}},
		{name: "an odd tag", to: []string{"echo+a.b_c-d=e@inbox.test"}},
		{name: "a dot at the end of the domain", to: []string{"echo@inbox.test."}},
		{name: "two agents", to: []string{"echo@inbox.test", "helper@inbox.test"}, head: []string{"To: echo@inbox.test, helper@inbox.test"}},
		{name: "the same agent twice", to: []string{"echo@inbox.test", "echo+x@inbox.test"}},
		{name: "nobody of that name", to: []string{"nobody@inbox.test"}, code: "550 5.1.1"},
		{name: "another domain", to: []string{"echo@example.test"}, code: "550 5.7.1"},
		{name: "a domain below", to: []string{"echo@sub.inbox.test"}, code: "550 5.7.1"},
		{name: "a percent hack", to: []string{"echo%example.test@inbox.test"}, code: "550 5.1.3"},
		{name: "a quoted local part with another domain", to: []string{`"echo@example.test"@inbox.test`}, code: "550"},
		{name: "non-ASCII without SMTPUTF8", to: []string{"ächo@inbox.test"}, code: "553 5.6.7"},
		{name: "a sender without SMTPUTF8", from: "änn@{d}", code: "553 5.6.7"},
		{name: "a sender that is no address", from: "ann@@{d}", code: "5"},
		{name: "postmaster", to: []string{"postmaster@inbox.test"}, state: "absent"},
		{name: "postmaster without a domain", to: []string{"postmaster"}, state: "absent"},
		{name: "abuse without a domain", to: []string{"abuse"}, code: "501"},
		{name: "a long sender", from: "{d}=" + strings.Repeat("v", 90) + "@{d}"},
		{name: "Postmaster in capitals", to: []string{"PostMaster@inbox.test"}, state: "absent"},
		{name: "abuse", to: []string{"abuse@inbox.test"}, state: "absent"},
		{name: "an agent and postmaster", to: []string{"postmaster@inbox.test", "echo@inbox.test"}},
		{name: "bounces with a made-up token", to: []string{"bounce+AAAAAAAAAAAAAAAAAAAA@inbox.test"}, from: "<>", code: "550"},
		{name: "too many recipients", to: many, code: "452 4.5.3"},
	}
}
