package message

import (
	"net/mail"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func written(boxes []Mailbox) []string {
	var list []string
	for _, box := range boxes {
		list = append(list, strings.TrimSpace(box.Name+" <"+box.Address()+">"))
	}
	return list
}

// TestOneOddAddressHidesNoOther: what cannot be read is left out of a list, and nothing else.
func TestOneOddAddressHidesNoOther(t *testing.T) {
	const agent = "<agent@agents.test>"
	for value, want := range map[string][]string{
		"agent@agents.test;":                                                 {agent},
		"agent@agents.test;;":                                                {agent},
		"bob@they.test; agent@agents.test":                                   {"<bob@they.test>", agent},
		"Bob <bob@they.test>; The Agent <agent@agents.test>;":                {"Bob <bob@they.test>", "The Agent " + agent},
		"root, agent@agents.test":                                            {agent},
		"root,agent@agents.test,":                                            {agent},
		"Smith, Bob <bob@they.test>, agent@agents.test":                      {"Smith, Bob <bob@they.test>", agent},
		"agent@agents.test, Smith, Bob <bob@they.test>":                      {agent, "Smith, Bob <bob@they.test>"},
		"agent@agents.test, not-an-address":                                  {agent},
		"agent@agents.test, <>":                                              {agent},
		"agent@agents.test, @":                                               {agent},
		"agent@agents.test, bob@":                                            {agent},
		"agent@agents.test, bob@[127.0.0.1":                                  {agent},
		"agent@agents.test, bob@they..test":                                  {agent},
		"agent@agents.test, b ob@they.test":                                  {agent, "b <ob@they.test>"},
		"agent@agents.test bob@they.test":                                    {agent, "<bob@they.test>"},
		"agent@agents.test <agent@agents.test>":                              {agent},
		"bob@they.test <agent@agents.test>":                                  {agent},
		"Bob <via list> <agent@agents.test>":                                 {"Bob <via list> " + agent},
		"<bob@they.test> <agent@agents.test>":                                {"<bob@they.test>", agent},
		"<<agent@agents.test>>":                                              {agent},
		"The Agent <agent@agents.test":                                       {"The Agent " + agent},
		"The Agent <agent@agents.test, Bob <bob@they.test>":                  {"The Agent " + agent, "Bob <bob@they.test>"},
		"agent@agents.test>":                                                 {agent},
		"[Help] The Agent <agent@agents.test>":                               {"[Help] The Agent " + agent},
		"'agent@agents.test'; 'Bob' <'bob@they.test'>":                       {agent, "'Bob' <bob@they.test>"},
		"<mailto:agent@agents.test>":                                         {agent},
		"mailto:agent@agents.test?subject=x":                                 {agent},
		"agent@agents.test [mailto:agent@agents.test]":                       {agent, agent},
		"undisclosed-recipients:; agent@agents.test":                         {agent},
		"Team: root, agent@agents.test;":                                     {agent},
		"Team: root, bob@they.test; agent@agents.test":                       {"<bob@they.test>", agent},
		"Re: The Agent <agent@agents.test>":                                  {"Re: The Agent " + agent},
		"agent: agent@agents.test":                                           {"agent: " + agent},
		"root, (agent) agent@agents.test (x, y@z.test)":                      {agent},
		"agent@agents.test (not closed":                                      {"(not closed " + agent},
		`"agent@agents.test"`:                                                {agent},
		`"The Agent agent@agents.test`:                                       {"The Agent " + agent},
		`"Bob <bob@they.test>, agent@agents.test`:                            {"Bob <bob@they.test>", agent},
		`"Bob <bob@they.test>, agent@agents.test, "Ann" <ann@x.test>`:        {"Bob <bob@they.test>", agent, "Ann <ann@x.test>"},
		`5" screen <bob@they.test>, agent@agents.test, "A" <a@x.test>`:       {"5 screen <bob@they.test>", agent, "A <a@x.test>"},
		`root, "Smith, Bob" <bob@they.test>, agent@agents.test`:              {"root, Smith, Bob <bob@they.test>", agent},
		`root, "ann@x.test, y" <bob@they.test>, agent@agents.test`:           {"<bob@they.test>", agent},
		"root, =?utf-8?q?B=C3=B6b=2C?= x <bob@they.test>, agent@agents.test": {"root, Böb, x <bob@they.test>", agent},
		"root, =?utf-8?q?ann=40x.test?= <agent@agents.test>":                 {agent},
		"root, =?utf-8?q?agent=40agents.test?=":                              {agent},
		"root, < agent @ agents.test >":                                      {"root, " + agent},
		"root, agent @agents.test":                                           {agent},
		"root, <@relay.test,@other.test:agent@agents.test>":                  {agent},
		"ann..b.@docomo.test, .c@docomo.test, agent@agents.test":             {"<ann..b.@docomo.test>", "<.c@docomo.test>", agent},
		`root, "ann..b."@docomo.test, <"c."@docomo.test>`:                    {"<ann..b.@docomo.test>", "<c.@docomo.test>"},
	} {
		fields, _, err := Split([]byte("To: " + value + "\r\n\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, written(fields.Addresses("To"))); diff != "" {
			t.Errorf("%s: %s", value, diff)
		}
	}
}

// TestFromIsOneMailboxInEveryReading: the field decides who speaks, so each program must find the same mailbox in it.
func TestFromIsOneMailboxInEveryReading(t *testing.T) {
	for value, want := range map[string]string{ // "" = refused
		"Kock, Arne <a@they.test>":                                "Kock, Arne <a@they.test>",
		"[List] My List <a@they.test>":                            "[List] My List <a@they.test>",
		"a@they.test <a@they.test>":                               "<a@they.test>",
		"A@they.test <a@THEY.test>":                               "<a@they.test>",
		"<a@they.test> <a@they.test>":                             "<a@they.test>",
		"a@they.test, Ann <a@they.test>":                          "<a@they.test>",
		"ann..b.@docomo.test":                                     "<ann..b.@docomo.test>",
		`"ann..b."@docomo.test`:                                   "<ann..b.@docomo.test>",
		`Ann <"ann..b."@docomo.test>`:                             "Ann <ann..b.@docomo.test>",
		"a@they.test;":                                            "<a@they.test>",
		"Ann a@they.test":                                         "Ann <a@they.test>",
		"Ann <a@they.test":                                        "Ann <a@they.test>",
		"Support: Ann <a@they.test>":                              "Support: Ann <a@they.test>",
		"Ann @work <a@they.test>":                                 "<a@they.test>", // a name with an @ is not shown
		"Ann <sales> <a@they.test>":                               "Ann <sales> <a@they.test>",
		`"Ann <a@they.test>`:                                      "Ann <a@they.test>",
		"Dr. Ann, M.D. <a@they.test>":                             "Dr. Ann, M.D. <a@they.test>",
		"=?utf-8?q?K=C3=B6ck=2C?= Arne [x] <a@they.test>":         "Köck, Arne [x] <a@they.test>",
		`"b@else.test" <a@they.test>`:                             "<a@they.test>", // within the grammar: a quoted name
		"a@they.test (b@else.test)":                               "<a@they.test>",
		"'a@they.test' <a@they.test>":                             "<a@they.test>",
		"O'Neil, Pat <o'neil@they.test>":                          "O'Neil, Pat <o'neil@they.test>",
		"Ann, ''a@they.test <a@they.test>":                        "",
		"a@they.test, b@else.test":                                "",
		"b@else.test <a@they.test>":                               "",
		"b@else.test, Arne <a@they.test>":                         "",
		"<b@else.test> <a@they.test>":                             "",
		"a@they.test b@else.test":                                 "",
		`a@they.test "<b@else.test>"`:                             "",
		`Kock, Arne "b@else.test" <a@they.test>`:                  "",
		`Kock, Arne (b@else.test) <a@they.test>`:                  "",
		`Kock, "b"@else.test <a@they.test>`:                       "",
		`Kock, b\@else.test <a@they.test>`:                        "",
		"Kock, b @ else.test <a@they.test>":                       "",
		"Kock, b@[10.0.0.1] <a@they.test>":                        "",
		"b@intranet, Arne <a@they.test>":                          "",
		"=?utf-8?q?b=40else=2Etest=2C?= Kock, Arne <a@they.test>": "",
		"Kock, =?utf-8?b?YkBlbHNlLnRlc3QsIA==?= <a@they.test>":    "",
		"a. ceo@they.test":                                        "",
		"a .ceo@they.test":                                        "",
		"a.(x)ceo@they.test":                                      "",
		"a.(x (y)) ceo@they.test":                                 "",
		"<a. ceo@they.test>":                                      "",
		"Kock, Arne <a. ceo@they.test>":                           "",
		"a@they.test .else.test":                                  "",
		"a@they.test. else.test":                                  "",
		"a@they.test (x) .else.test":                              "",
		"=?utf-8?q?b=2E?= a@they.test":                            "",
		"b (x)@they.test, <a@they.test>":                          "",
		"Dr. Kock, A. <a@they.test>":                              "Dr. Kock, A. <a@they.test>",
		"Kock, (x) a@they.test":                                   "<a@they.test>",
		"a@they.test@else.test":                                   "",
		"Team: a@they.test;":                                      "",
		"<@relay.test:a@they.test>":                               "",
		"Kock, Arne":                                              "",
		"undisclosed-sender:;":                                    "",
		"Kock, \x07Arne <a@they.test>":                            "",
		"":                                                        "",
	} {
		fields, _, err := Split([]byte("From: " + value + "\r\n\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		box, err := ParseFrom(fields)
		if err == nil {
			got = written([]Mailbox{box})[0]
		}
		if got = strings.Replace(strings.Replace(got, "A@", "a@", 1), "THEY", "they", 1); got != want {
			t.Errorf("%s: %q, %v; want %q", value, got, err, want)
		}
	}
}

// TestListsTakeTimeByTheirLength: what a stranger writes into a field costs no more than its bytes. A reader that goes back would need hours here,
// longer than tests may take.
func TestListsTakeTimeByTheirLength(t *testing.T) {
	for _, piece := range []string{"<", "(", `"`, ` "`, ":", ";", ",", "@", "@ ", "a@", "<a@b.test> ", `"a@`, "=?", "=?utf-8?q?=22?= ", `\`, "> <", `"x"y `} {
		value := strings.Repeat(piece, 1_000_000/len(piece))
		fields := Header{{Name: "To", value: []byte("root, " + value)}}
		if boxes := fields.Addresses("To"); len(boxes) > maxListed {
			t.Errorf("%q gives %d", piece, len(boxes))
		}
	}
}

func FuzzAddresses(f *testing.F) {
	for _, seed := range []string{
		"Smith, Bob <bob@x.test>; agent@y.test", `"a@b.test" <c@d.test>, x`, "Team: a@b.test;", "a (b (c) <d@e.test>", `"a"b <c@d.test>`, "=?utf-8?q?a=40b?= <c@d.test>",
		`"a..b."@c.test`, "<a@b.test> <c@d.test>", "a @ b.test", "<mailto:a@b.test?x>",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		fields := Header{{Name: "To", value: []byte(value)}, {Name: "From", value: []byte(value)}}
		boxes := fields.Addresses("To")
		for _, box := range boxes {
			again, err := ParseMailbox(box.Address())
			if err != nil || again.Key() != box.Key() || strings.ContainsAny(box.Name, "@\r\n") || strings.ContainsAny(box.Address(), " \r\n<>,;") {
				t.Errorf("%q gives %+v, which gives %+v, %v", value, box, again, err)
			}
			listed, err := mail.ParseAddress(FormatAddress(box.Name, box.Address()))
			if IsASCII(box.Address()) && (err != nil || !strings.EqualFold(listed.Address, box.Address())) {
				t.Errorf("%+v is written as %q: %v", box, FormatAddress(box.Name, box.Address()), err)
			}
		}

		from, err := ParseFrom(fields[1:])
		if err != nil {
			return
		}
		for _, box := range boxes {
			if box.Key() != from.Key() {
				t.Errorf("%q is from %+v, and lists %+v", value, from, box)
			}
		}
	})
}
