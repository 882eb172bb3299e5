package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// AgentTable is what a program writes into a new table [[agents]]; what is empty is not written.
type AgentTable struct {
	Name    string
	Domain  string // one of [[domains]]; empty = that at the top
	Kind    string
	Backend string // url of a webhook, base_url of a model, program of a command, card_url of an agent elsewhere
	Access  string
	Summary string

	Provider, Model string // of kind llm

	SecretFile string // with the secret of a webhook, the key of a model's provider or the token for an agent elsewhere
}

// Text returns the table as lines of a file.
func (t AgentTable) Text() string {
	var text strings.Builder
	text.WriteString("[[agents]]\n")
	writeKeys(&text, "name", t.Name, "domain", t.Domain, "kind", t.Kind, "summary", t.Summary, "access", t.Access)

	kind := KindNamed(t.Kind)
	if kind.BackEnd != "" {
		fmt.Fprintf(&text, "\n[agents.%s]\n", kind.Name)
		writeKeys(&text, "provider", t.Provider, "model", t.Model, kind.BackEnd, t.Backend, kind.Secret, t.SecretFile)
	}
	return text.String()
}

func writeKeys(text *strings.Builder, pairs ...string) {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[0] != "" && pair[1] != "" {
			fmt.Fprintf(text, "%s = %s\n", pair[0], Quote(pair[1]))
		}
	}
}

// Quote returns a text as a basic string of TOML: those of JSON are such strings, but for the character DEL.
func Quote(text string) string {
	var quoted strings.Builder
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		panic(err) // impossible for a string
	}
	return strings.ReplaceAll(strings.TrimSuffix(quoted.String(), "\n"), "\x7f", `\u007f`)
}

// AddAgent writes a table [[agents]] at the end of a document and changes nothing else in it; RemoveAgent takes it out again, to the
// byte. The path is that of the file, for errors; environ are the variables beside it. A *Problem says what is in the way and where.
func AddAgent(path, document string, environ []string, table AgentTable) (string, error) {
	before, err := treeOf(path, document)
	if err != nil {
		return "", err
	}
	if err := refuseList(path, document); err != nil {
		return "", err
	}
	if index := agentIndex(before, table.Name, table.Domain); index >= 0 {
		return "", problemAt(path, document, element("agents", index), fmt.Sprintf("%q is there already", table.Name), "write another name, or change this table")
	}
	written, _ := tables(before["agents"])
	if err := refuseNumbered(environ, len(written)); err != nil {
		return "", err
	}

	// The text that is added ends as the document does, which tells RemoveAgent what stood before it.
	end, added := lineEnd(document), strings.TrimSuffix(table.Text(), "\n")
	added = strings.ReplaceAll(added, "\n", end)
	changed := added + end
	switch {
	case strings.HasSuffix(document, "\n"):
		changed = document + end + added + end
	case document != "":
		changed = document + end + end + added
	}

	after, err := treeOf(path, changed)
	if err != nil {
		return "", err
	}

	agents, _ := tables(after["agents"])
	if len(agents) == 0 || !reflect.DeepEqual(without(after, len(agents)-1), before) {
		return "", &Problem{Place: filepath.Base(path), Key: "agents", Message: "the table cannot be written at the end of this file", Remedy: "write it by hand"}
	}
	return changed, nil
}

// RemoveAgent takes the table [[agents]] of a name, with the tables inside of it, out of a document; comments around it and all else stay.
// The domain is one of [[domains]], empty for that at the top; environ are the variables beside the file. A *Problem says what is in the way
// and where.
func RemoveAgent(path, document string, environ []string, name, domain string) (string, error) {
	before, err := treeOf(path, document)
	if err != nil {
		return "", err
	}
	index := agentIndex(before, name, domain)
	if index < 0 {
		return "", &Problem{Place: filepath.Base(path), Key: "agents", Message: fmt.Sprintf("there is no agent %q", name), Remedy: "inbox agents list names those there are"}
	}
	if err := refuseList(path, document); err != nil {
		return "", err
	}
	if err := refuseNumbered(environ, index); err != nil {
		return "", err
	}

	own, changed := element("agents", index), document
	for _, part := range slices.Backward(sectionsOf(document)) {
		if part.path == own || strings.HasPrefix(part.path, own+".") {
			changed = cutLines(changed, part)
		}
	}

	after, err := treeOf(path, changed)
	if err != nil || !reflect.DeepEqual(after, without(before, index)) {
		return "", problemAt(path, document, own, "this table cannot be taken out without changing others", "remove it by hand")
	}
	return changed, nil
}

// HasAgent reports whether a document names an agent of the domain at the top.
func HasAgent(document, name string) bool {
	tree, err := treeOf("", document)
	return err == nil && agentIndex(tree, name, "") >= 0
}

func treeOf(path, document string) (map[string]any, error) {
	tree := map[string]any{}
	if _, err := toml.Decode(document, &tree); err != nil {
		return nil, fileProblem(path, err)
	}
	return tree, nil
}

// refuseNumbered refuses a change that gives tables of agents from a number on to other agents, if a variable sets one of these tables:
// the secret and the access of an agent would become those of its neighbour.
func refuseNumbered(environ []string, from int) error {
	for _, v := range ours(environ) {
		text, inside := strings.CutPrefix(v.name, prefix+"AGENTS_")
		text, _, _ = strings.Cut(text, "_")
		number, err := strconv.Atoi(text)
		if inside && err == nil && number >= from {
			return &Problem{
				Place: v.name, Message: fmt.Sprintf("sets agent number %d, and this change would give the number to another agent", number),
				Remedy: "write the setting into the file and remove the variable, or make both changes by hand",
			}
		}
	}
	return nil
}

// refuseList refuses agents that are written as one value, agents = [{…}], to which no table can be added.
func refuseList(path, document string) error {
	for _, part := range sectionsOf(document) {
		if part.path == "agents[0]" {
			return nil
		}
	}
	if keyLines(document)["agents"] == 0 {
		return nil
	}
	return problemAt(path, document, "agents", "the agents are written as one list", "write each as a table [[agents]], or change the list by hand")
}

func problemAt(path, document, key, message, remedy string) error {
	place := filepath.Base(path)
	if line := keyLines(document)[key]; line > 0 {
		place = fmt.Sprintf("%s:%d", place, line)
	}
	return &Problem{Place: place, Key: key, Message: message, Remedy: remedy}
}

// agentIndex finds the table of an agent of one of [[domains]]; an empty domain is that at the top.
func agentIndex(tree map[string]any, name, domain string) int {
	further, _ := tables(tree["domains"])
	homeOf := func(agent map[string]any) string {
		written, _ := agent["domain"].(string)
		for _, table := range further {
			if one, _ := table["name"].(string); sameDomain(written, one) {
				return one
			}
		}
		return "" // that at the top, or one that Load refuses
	}

	agents, _ := tables(tree["agents"])
	return slices.IndexFunc(agents, func(agent map[string]any) bool {
		text, _ := agent["name"].(string)
		home := homeOf(agent)
		return strings.EqualFold(text, name) && (home == domain || sameDomain(home, domain))
	})
}

// without is a tree without one agent.
func without(tree map[string]any, index int) map[string]any {
	rest := make(map[string]any, len(tree))
	maps.Copy(rest, tree)

	agents, _ := tables(tree["agents"])
	if len(agents) == 1 {
		delete(rest, "agents")
	} else if index >= 0 {
		rest["agents"] = slices.Delete(slices.Clone(agents), index, index+1)
	}
	return rest
}

// section is a table as it stands in a document: from its header to its last key.
type section struct {
	path        string
	first, last int // lines from 0
}

// sectionsOf returns the tables of a document that was parsed without error.
func sectionsOf(document string) []section {
	s := &lineScanner{lines: map[string]int{}, counts: map[string]int{}}
	var found []section
	for number, line := range strings.Split(document, "\n") {
		line = strings.TrimSpace(line)
		inside := s.until != "" || s.depth > 0
		s.scan(line, number+1)
		switch {
		case !inside && strings.HasPrefix(line, "["):
			found = append(found, section{s.table, number, number})
		case len(found) > 0 && (inside || line != "" && line[0] != '#'):
			found[len(found)-1].last = number
		}
	}
	return found
}

// cutLines removes a table, and the empty line before it.
func cutLines(document string, part section) string {
	lines := strings.SplitAfter(document, "\n")
	before, cut, after := strings.Join(lines[:part.first], ""), strings.Join(lines[part.first:part.last+1], ""), strings.Join(lines[part.last+1:], "")

	switch shorter := withoutLineEnd(before); {
	case after == "" && !strings.HasSuffix(cut, "\n"):
		before = withoutLineEnd(shorter) // neither did what stood before it end with one
	case strings.HasSuffix(shorter, "\n") || shorter == "":
		before = shorter
	}
	return before + after
}

func withoutLineEnd(text string) string {
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
}

// lineEnd is how the lines of a document end.
func lineEnd(document string) string {
	if strings.Contains(document, "\r\n") {
		return "\r\n"
	}
	return "\n"
}
