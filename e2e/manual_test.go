package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"inbox/e2e/instance"
)

// block is a fenced block of a document.
type block struct {
	line     int
	language string
	lines    []string
}

func (b block) text() string { return strings.Join(b.lines, "\n") + "\n" }

// isShell reports whether the block is commands: sh as one would put them into a file, console with a $ before each.
func (b block) isShell() bool {
	return b.language == "sh" || b.language == "bash" || b.language == "shell" || b.language == "console"
}

// command is one command of a document, as it is written there.
type command struct {
	line    int
	text    string
	shown   []string // the lines of the block of text that follows
	answers []string // what the comments below it say that it prints: JSON documents with …, the status before them
}

// manual is a text in Markdown.
type manual struct {
	name   string // from the root of the repository
	text   string // without the blocks
	blocks []block
}

var fence = regexp.MustCompile("^\\s*```\\s*([a-z]*)")

func readManual(t *testing.T, name string) (d manual) {
	t.Helper()
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}

	d.name = name
	var open *block
	var text strings.Builder
	for number, line := range strings.Split(string(content), "\n") {
		match := fence.FindStringSubmatch(line)
		switch {
		case match != nil && open == nil:
			open = &block{line: number + 2, language: match[1]}
		case match != nil:
			d.blocks = append(d.blocks, *open)
			open = nil
		case open != nil:
			open.lines = append(open.lines, line)
		}
		if open == nil && match == nil {
			text.WriteString(line)
		}
		text.WriteByte('\n') // so that line numbers stay
	}
	if open != nil {
		t.Fatalf("%s:%d: the block has no end", name, open.line)
	}
	d.text = text.String()
	return d
}

// guidesOfTheRepository are the documents whose commands are run. Records and contracts describe, they do not teach commands.
func guidesOfTheRepository(t *testing.T) (names []string) {
	t.Helper()
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/agents/*.md", "docs/guides/*.md", "docs/ops/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		for _, file := range found {
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
	}
	return names
}

// commands are those of the blocks, in their order. The shell decides where one ends.
func (d manual) commands(t *testing.T) (all []command) {
	t.Helper()
	for i, block := range d.blocks {
		if block.isShell() {
			all = append(all, block.commands(t, d.name)...)
		}
		if block.language == "text" && i > 0 && d.blocks[i-1].isShell() && len(all) > 0 {
			all[len(all)-1].shown = slices.DeleteFunc(block.lines, func(line string) bool { return strings.TrimSpace(line) == "" })
		}
	}
	return all
}

var (
	hereDocument = regexp.MustCompile(`<<-?\s*['"]?(\w+)['"]?`)
	answerForm   = regexp.MustCompile(`^\s*#\s*((?:[1-5]\d\d )?\{.*\})\s*$`)
)

func (b block) commands(t *testing.T, name string) (all []command) {
	t.Helper()
	var pending []string
	begin, until := 0, ""
	for i, line := range b.lines {
		if b.language == "console" && until == "" && len(pending) == 0 {
			written, is := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			if !is {
				continue // what the command before prints
			}
			line = written
		}
		if len(pending) == 0 {
			begin = b.line + i
			if match := answerForm.FindStringSubmatch(line); match != nil && len(all) > 0 {
				last := &all[len(all)-1]
				last.answers = append(last.answers, match[1])
				continue
			}
			if trimmed := strings.TrimSpace(line); trimmed == "" || strings.HasPrefix(trimmed, "#") {
				continue
			}
		}
		pending = append(pending, line)
		if until == "" {
			if match := hereDocument.FindStringSubmatch(line); match != nil {
				until = match[1]
			}
		} else if strings.TrimSpace(line) == until {
			until = ""
		}
		text := strings.Join(pending, "\n")
		if until != "" || strings.HasSuffix(line, "\\") || exec.CommandContext(t.Context(), "sh", "-n", "-c", text).Run() != nil {
			continue
		}
		all = append(all, command{line: begin, text: text})
		pending = nil
	}
	if pending != nil {
		t.Errorf("%s:%d: the shell does not understand\n%s", name, begin, strings.Join(pending, "\n"))
	}
	return all
}

var inlineForm = regexp.MustCompile("(?s)`(inbox [a-z][^`]*)`")

// inline are the command lines of the program in the running text.
func (d manual) inline() (all []command) {
	for _, place := range inlineForm.FindAllStringSubmatchIndex(d.text, -1) {
		text := strings.Join(strings.Fields(d.text[place[2]:place[3]]), " ")
		all = append(all, command{line: 1 + strings.Count(d.text[:place[0]], "\n"), text: text})
	}
	return all
}

// TestCommandsOfABlock: the shell says where a command ends, and comments with JSON say what it prints.
func TestCommandsOfABlock(t *testing.T) {
	t.Parallel()
	text := "a 'b\nc' \\\n  d # why\n# 202 {\"x\": 1, …}\n\n# a comment\nfor i in 1 2; do\n  echo $i\ndone\ncat <<'E'\n`(\nE\n"
	got := block{line: 10, language: "sh", lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}.commands(t, "x.md")
	want := []command{
		{10, "a 'b\nc' \\\n  d # why", nil, []string{`202 {"x": 1, …}`}}, {16, "for i in 1 2; do\n  echo $i\ndone", nil, nil}, {19, "cat <<'E'\n`(\nE", nil, nil},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i].line != want[i].line || got[i].text != want[i].text || strings.Join(got[i].answers, "|") != strings.Join(want[i].answers, "|") {
			t.Errorf("%+v; want %+v", got[i], want[i])
		}
	}
}
