package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// mention is a command line in a text, up to what ends it there.
var mention = regexp.MustCompile("(^|[^\\w./-])inbox ([a-z][^`\"\\n|;&)(]*)")

// badMention returns the error in a command line, given without its leading "inbox"; empty = the command exists. With sure the text is code,
// where the first word must be a command; in prose it need not be.
func badMention(line string, sure bool) string {
	root := newRoot()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	command, words := root, strings.Fields(line)
	for len(words) > 0 && command.HasSubCommands() {
		inner := subcommand(command, words[0])
		if inner == nil {
			break
		}
		command, words = inner, words[1:]
	}
	if command == root {
		if !sure || strings.Contains(words[0], "=") {
			return ""
		}
		return fmt.Sprintf("there is no command %q", words[0])
	}
	if len(words) > 0 && command.HasSubCommands() && regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(words[0]) && sure {
		return fmt.Sprintf("%q has no command %q", command.CommandPath(), words[0])
	}
	command.InitDefaultHelpFlag()
	for i, word := range words {
		flag, is := strings.CutPrefix(word, "--")
		if word == "#" || word == "--" || word == "→" || i > 0 && strings.HasSuffix(words[i-1], ",") {
			break
		}
		if !is {
			continue
		}
		flag, _, _ = strings.Cut(strings.TrimRight(flag, ".,:'…]"), "=")
		if flag = regexp.MustCompile(`^[a-z0-9-]+`).FindString(flag); flag == "" {
			continue
		}
		if command.Flags().Lookup(flag) == nil && command.InheritedFlags().Lookup(flag) == nil && command.PersistentFlags().Lookup(flag) == nil {
			return fmt.Sprintf("%q has no flag --%s", command.CommandPath(), flag)
		}
	}
	return ""
}

func subcommand(command *cobra.Command, word string) *cobra.Command {
	for _, inner := range command.Commands() {
		if inner.Name() == strings.TrimRight(word, ".,:'") || inner.HasAlias(word) {
			return inner
		}
	}
	return nil
}

// mentionsIn returns the errors in the command lines of a text.
func mentionsIn(text string, sure bool) (wrong []string) {
	for _, found := range mention.FindAllStringSubmatch(text, -1) {
		if bad := badMention(found[2], sure); bad != "" {
			wrong = append(wrong, fmt.Sprintf("%q: %s", strings.TrimSpace(found[2]), bad))
		}
	}
	return wrong
}

// TestEveryCommandThatIsNamedExists reads the pages, the documents, the texts of the program and the files of releases: a command that
// one of them names can be run, with these flags.
func TestEveryCommandThatIsNamedExists(t *testing.T) {
	const top = "../.."
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			switch name {
			case "node_modules", "testdata", "decisions", "bin", "tools":
				return filepath.SkipDir
			}
			if strings.HasPrefix(name, ".") && name != "." && name != ".." {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_templ.go") || name == "CHANGELOG.md" {
			return nil
		}
		var wrong []string
		switch filepath.Ext(name) {
		case ".md":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, span := range code.FindAllString(string(text), -1) {
				fence := strings.HasPrefix(span, "```")
				for line := range strings.Lines(strings.Trim(span, "`")) {
					line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "$ "))
					sure := !fence || strings.HasPrefix(line, "inbox ") // lines of a log or a dialogue are prose
					wrong = append(wrong, mentionsIn(line, sure)...)
				}
			}
		case ".templ", ".sh", ".service":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			wrong = mentionsIn(string(text), false)
			for _, copied := range regexp.MustCompile(`Copyable\("(inbox [^"]+)"`).FindAllStringSubmatch(string(text), -1) {
				wrong = append(wrong, mentionsIn(copied[1], true)...)
			}
		case ".go":
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if literal, is := node.(*ast.BasicLit); is && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil {
						wrong = append(wrong, mentionsIn(text, false)...)
						for _, span := range regexp.MustCompile("`inbox [^`]+`").FindAllString(text, -1) {
							wrong = append(wrong, mentionsIn(strings.Trim(span, "`"), true)...)
						}
					}
				}
				return true
			})
		}
		for _, one := range wrong {
			t.Errorf("%s: %s", strings.TrimPrefix(path, top+"/"), one)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMissingCommandsAreFound: what the check has to find.
func TestMissingCommandsAreFound(t *testing.T) {
	for text, bad := range map[string]bool{
		"inbox turns list --follow": true, "inbox serve --nothing": true, "inbox held relese": true, "inbox nosuch": true,
		"inbox serve --config inbox.toml": false, "inbox held release ID": false, "inbox held list --agent echo": false, "inbox help serve": false,
		"run inbox serve --help": false, "the inbox.toml serve --nothing": false,
	} {
		if found := mentionsIn(text, true); (len(found) > 0) != bad {
			t.Errorf("%q: %v", text, found)
		}
	}
}
