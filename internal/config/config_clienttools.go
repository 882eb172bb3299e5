package config

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"time"
)

// ClientTool is a tool that a program of yours executes, wherever it runs: it fetches the calls from
// `/v1/tools/<agent>/requests` and hands in the results. The message waits for it.
type ClientTool struct {
	// Name; models and rules know the tool as `client/name`. A lower-case letter, then letters, digits, `_` and `-`.
	Name string `toml:"name" default:"none; required"`
	// What the tool does and when to use it, for the model.
	Description string `toml:"description" default:"none; required"`
	// JSON Schema of its parameters, an object.
	Parameters string `toml:"parameters"`
	// File with that schema instead.
	ParametersFile string `toml:"parameters_file"`
	// How long a call waits for its result; then the model reads that there is none.
	Timeout time.Duration `toml:"timeout"`
	// `direct`, `preview` (each call needs approval first) or `forbidden`. The tables of `llm.actions` come before it.
	Action string `toml:"action"`
	// Whether equal calls for one message are made once.
	AtMostOnce bool `toml:"at_most_once"`
	// Whether results hold texts of strangers (web pages, mails): they are marked as such for the model.
	Untrusted bool `toml:"untrusted"`
	// Whether the chat client that sent the message executes it, such as the page in which the chat stands: the call stands
	// in its answer, and whoever wrote the message can say what comes out.
	Asker bool `toml:"asker"`
}

// setDefaults fills a table [[agents.client_tools]] before its keys are read.
func (t *ClientTool) setDefaults() { *t = ClientTool{Timeout: time.Hour, Action: "direct"} }

// maxSchemaBytes bounds the schema of one tool.
const maxSchemaBytes = 256 << 10

// longestToolWait is how long a message can wait for a tool: what was done so far is remembered for a week.
const longestToolWait = 6 * 24 * time.Hour

var clientToolName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)

func (a *Agent) validateClientTools(p *problems, key string) {
	names := map[string]bool{}
	for i := range a.ClientTools {
		tool, at := &a.ClientTools[i], element(key, i)
		switch {
		case !clientToolName.MatchString(tool.Name):
			p.add(at+".name", fmt.Sprintf("%q cannot be the name of a tool", tool.Name), "write a lower-case letter, then letters, digits, _ and -, at most 64")
		case names[tool.Name]:
			p.add(at+".name", fmt.Sprintf("%q is there twice", tool.Name), "write another name")
		}
		names[tool.Name] = true
		if tool.Description == "" {
			p.add(at+".description", "is missing, so the model would not know when to use the tool", "write a sentence")
		}
		oneOf(p, at+".action", tool.Action, "direct", "preview", "forbidden")
		within(p, at+".timeout", tool.Timeout, time.Second, longestToolWait)
		tool.validateSchema(p, at)
	}
}

func (t *ClientTool) validateSchema(p *problems, key string) {
	if t.Parameters == "" {
		return
	}
	var schema map[string]json.RawMessage
	if err := json.Unmarshal([]byte(t.Parameters), &schema); err != nil || schema == nil {
		p.add(key+".parameters", "is no JSON object", `write a JSON Schema such as '{"type":"object","properties":{"city":{"type":"string"}}}'`)
	}
}

// readSchema reads the file of the parameters.
func (t *ClientTool) readSchema(key string, found *problems) {
	if t.ParametersFile == "" {
		return
	}
	if t.Parameters != "" {
		found.add(key+".parameters_file", "the schema is there twice", "write parameters or parameters_file, not both")
		return
	}
	info, err := os.Stat(t.ParametersFile)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxSchemaBytes) {
		err = fmt.Errorf("%s is not a file of at most %d bytes", t.ParametersFile, maxSchemaBytes)
	}
	var content []byte
	if err == nil {
		content, err = os.ReadFile(t.ParametersFile)
	}
	if err != nil {
		found.add(key+".parameters_file", err.Error(), "make the file readable for the server")
		return
	}
	t.Parameters = string(content)
}
