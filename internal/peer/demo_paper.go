package peer

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"inbox/identity"
)

// How much of a text is printed: characters of a line, and lines.
const (
	maxShownText  = 400
	maxShownLines = 8
)

// paper is what the demo is printed on.
type paper struct {
	out     io.Writer
	colours bool
	err     error // the first failure to print
}

func newPaper(out io.Writer) *paper {
	return &paper{out: out, colours: isTerminal(out) && os.Getenv("NO_COLOR") == ""}
}

// isTerminal reports whether out is a character device of a terminal that understands colours.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (p *paper) linef(format string, args ...any) {
	if _, err := fmt.Fprintf(p.out, format+"\n", args...); err != nil && p.err == nil {
		p.err = fmt.Errorf("print the demo: %w", err)
	}
}

// The codes are those of ECMA-48, section 8.3.117.
func (p *paper) bold(text string) string  { return p.coloured("1", text) }
func (p *paper) faint(text string) string { return p.coloured("2", text) }
func (p *paper) green(text string) string { return p.coloured("32", text) }
func (p *paper) red(text string) string   { return p.coloured("31", text) }

func (p *paper) coloured(code, text string) string {
	if !p.colours {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p *paper) opening(address string) {
	p.linef("%s is one agent with one address on three networks.", p.bold(address))
}

func (p *paper) scene(s *scene) {
	p.linef("\n%s", p.bold(s.title))
	if s.err != nil {
		p.linef("  %s %s", p.red("✗"), shown(s.err.Error()))
		return
	}

	talk := s.conversation
	width := max(len(talk.From), len(talk.To))
	p.said(talk.From, width, talk.Question)

	if asked := s.demand; asked.URL != "" {
		p.said(talk.To, width, strings.ReplaceAll(asked.Text, asked.URL, secretless(asked.URL)))
		p.said(talk.From, width, "(a scanner opens the link: nothing happens; Alice presses the button)")
	}

	p.said(talk.To, width, talk.Answer)
	p.linef("  The agent's server checked who asked:")

	for _, one := range s.evidence {
		p.proof(one.Subject)
		p.linef("      %s", p.faint(shown(how(one))))
	}

	p.linef("  %s:", s.proven)
	for _, one := range talk.Evidence {
		p.proof(one)
	}
}

// said prints the first lines of a text beside the one who said it.
func (p *paper) said(who string, width int, text string) {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return shown(line) == "" })
	for _, line := range lines[:min(len(lines), maxShownLines)] {
		p.linef("  %-*s  %s", width, who, shown(line))
		who = ""
	}
}

func (p *paper) proof(text string) { p.linef("    %s %s", p.green("✓"), shown(text)) }

// how tells by which method and key a sender was proven.
func how(one identity.Evidence) string {
	text := "by " + strings.TrimSuffix(strings.TrimPrefix(one.Method, "urn:mentionable:auth:"), ":v0.1")
	if one.Proof.KeyID != "" {
		text += " with the key " + one.Proof.KeyID
	}
	return text
}

// secretless cuts the state out of the address of a demand: the one who reads it may decide.
func secretless(address string) string {
	return address[:strings.LastIndexByte(address, '/')+1] + "…"
}

func (p *paper) ending(answers int, took time.Duration) error {
	p.linef("\n%s", p.green(fmt.Sprintf("All %s answers verify, after %d ms.", counted(answers), took.Milliseconds())))
	p.linef("\nTry it yourself:")
	p.linef("  %s             your own server on this machine, with three commands to talk to it", p.bold("inbox serve"))
	p.linef("  %s  your own agent in twenty lines of Go or Python", p.bold("docs/agents/webhook.md"))
	return p.err
}

// shown makes text of others fit for a terminal: one line, nothing but printable characters, not too long.
func shown(text string) string {
	printable := strings.Map(func(char rune) rune {
		if unicode.IsPrint(char) {
			return char
		}
		return ' '
	}, text)

	short := []rune(strings.Join(strings.Fields(printable), " "))
	if len(short) > maxShownText {
		return string(short[:maxShownText]) + "…"
	}
	return string(short)
}

// counted writes a small number as a word.
func counted(number int) string {
	if words := []string{"no", "one", "two", "three", "four"}; number < len(words) {
		return words[number]
	}
	return strconv.Itoa(number)
}
