package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox/exchange"
)

// completionTime bounds how long a shell waits for the words of the running server.
const completionTime = time.Second

// completed is a list of the running server whose rows complete an argument or a flag.
type completed struct {
	path  string   // of the list in the operator API, with its filters
	word  string   // member of a row that is the word; dots lead into objects
	about []string // members that say to a person what the row is
	front string   // what is written before the word

	local func(cmd *cobra.Command) []string // words that need no server, instead of a list
}

// What the arguments of commands name.
var (
	agentNames     = completed{path: "/api/v1/agents", word: "name", about: []string{"summary"}}
	messageIDs     = completed{path: "/api/v1/turns", word: "id", about: []string{"agent", "state", "message.sender.address"}}
	threadIDs      = completed{path: "/api/v1/threads", word: "thread_id", about: []string{"agent", "sender"}}
	chatAgents     = completed{path: "/api/v1/agents", word: "name", about: []string{"summary"}, front: "@"}
	heldIDs        = completed{path: "/api/v1/held", word: "id", about: []string{"agent", "message.sender.address"}}
	droppedIDs     = completed{path: "/api/v1/held?dropped=true", word: "id", about: []string{"agent", "message.sender.address"}}
	failedIDs      = completed{path: "/api/v1/failed", word: "id", about: []string{"agent", "reason"}}
	deadDeliveries = completed{path: "/api/v1/deliveries?state=dead", word: "id", about: []string{"address", "reason"}}
	openDeliveries = completed{path: "/api/v1/deliveries?state=pending", word: "id", about: []string{"address", "reason"}}
	approvalIDs    = completed{path: "/api/v1/approvals", word: "id", about: []string{"code", "agent", "summary"}}
	demandIDs      = completed{path: "/api/v1/demands", word: "id", about: []string{"agent", "kind", "message"}}
	jobIDs         = completed{path: "/api/v1/jobs", word: "id", about: []string{"kind", "reason"}}
	tokenIDs       = completed{path: "/api/v1/tokens?status=valid", word: "id", about: []string{"name", "scope"}}
	sessionIDs     = completed{path: "/api/v1/sessions", word: "id", about: []string{"name", "address"}}
	requestIDs     = completed{path: "/api/v1/tool-requests", word: "request_id", about: []string{"tool_name", "agent"}}
	takeoverIDs    = completed{path: "/api/v1/takeovers", word: "thread_id", about: []string{"agent", "holder"}}
	answeredIDs    = completed{path: "/api/v1/turns?state=answered", word: "reply_id", about: []string{"agent", "message.sender.address"}}
	mailIDs        = completed{path: "/api/v1/mail", word: "id", about: []string{"mailbox", "subject"}}
	suppressed     = completed{path: "/api/v1/mail/suppressed", word: "address", about: []string{"kind"}}
	openBreakers   = completed{path: "/api/v1/breakers", word: "target", about: []string{"kind", "state"}}
	blocked        = completed{path: "/api/v1/blocks", word: "target", about: []string{"effect", "reason"}}
	allowed        = completed{path: "/api/v1/allows", word: "target", about: []string{"reason"}}
	waitingActors  = completed{path: "/api/v1/follows", word: "actor", about: []string{"agent", "state"}}
	linkedPeople   = completed{path: "/api/v1/people", word: "subject", about: []string{"agent", "address"}}
	erasureIDs     = completed{path: "/api/v1/erasures", word: "id", about: []string{"stage"}}
	connectorIDs   = completed{path: "/api/v1/connectors", word: "connector_id", about: []string{"display_name"}}
	bridgeClients  = completed{path: "/api/v1/tokens?status=valid&scope=bridge", word: "name"}
	holders        = completed{path: "/api/v1/takeovers", word: "holder"}
	taskRuns       = completed{path: "/v1/tasks", word: "run_id", about: []string{"status"}}
	taskTargets    = completed{path: "/v1/targets", word: "id", about: []string{"label"}}
)

// completing completes the arguments of a command: the first list is that of the first argument, and the last one that of all which follow. A
// list without a path is an argument that no list has, such as a text.
func completing(cmd *cobra.Command, lists ...completed) *cobra.Command {
	required, optional := positionals(cmd.Use)
	names := slices.Concat(required, optional)
	repeated := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "…")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, given []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(given) >= len(names) && !repeated {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found := lists[min(len(given), len(lists)-1)].words(cmd, begun)
		return slices.DeleteFunc(found, func(one cobra.Completion) bool {
			word, _, _ := strings.Cut(one, "\t")
			return slices.Contains(given, word)
		}), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// completeFlag completes the value of a flag.
func completeFlag(cmd *cobra.Command, flag string, list completed) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) { // fails without the flag alone
		return list.words(cmd, begun), cobra.ShellCompDirectiveNoFileComp
	})
}

// commonFlags are flags that mean the same in every command that has them.
var commonFlags = map[string]completed{"agent": agentNames, "turn": messageIDs, "thread": threadIDs, "connector": connectorIDs, "receipt": erasureIDs, "target": taskTargets, "allow": taskTargets, "client": bridgeClients, "holder": holders}

// completeCommonFlags completes the flags that mean the same everywhere, in a command and all below it.
func completeCommonFlags(cmd *cobra.Command) {
	for flag, list := range commonFlags {
		if cmd.Flags().Lookup(flag) == nil {
			continue
		}
		if _, has := cmd.GetFlagCompletionFunc(flag); !has {
			completeFlag(cmd, flag, list)
		}
	}
	for _, child := range cmd.Commands() {
		completeCommonFlags(child)
	}
}

// words asks the running server for the rows of the list. Where no server answers in time there are no words: a shell shows no errors.
func (c completed) words(cmd *cobra.Command, begun string) []cobra.Completion {
	if c.local != nil {
		found := c.local(cmd)
		slices.Sort(found)
		return slices.Compact(slices.DeleteFunc(found, func(word string) bool { return !strings.HasPrefix(word, begun) }))
	}
	if c.path == "" {
		return nil
	}
	config, err := load(cmd)
	if err != nil {
		return nil
	}
	node, err := newRunningNode(config, "")
	if err != nil {
		return nil
	}
	ctx := cmd.Context()
	if ctx == nil { // a shell's request is made without one
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()

	var answer struct {
		exchange.List[map[string]any]

		Runs    []map[string]any `json:"runs"` // the lists of tasks have the members of their contract
		Targets []map[string]any `json:"targets"`
	}
	if node.call(ctx, http.MethodGet, c.path, nil, &answer) != nil {
		return nil
	}
	var words []cobra.Completion
	for _, row := range slices.Concat(answer.Items, answer.Runs, answer.Targets) {
		word := memberOf(row, c.word)
		if word != "" {
			word = c.front + word
		}
		if word == "" || !strings.HasPrefix(word, begun) {
			continue
		}
		var about []string
		for _, member := range c.about {
			if text := memberOf(row, member); text != "" {
				about = append(about, excerpt(text))
			}
		}
		words = append(words, cobra.CompletionWithDesc(oneLine(word), strings.Join(about, ", ")))
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// memberOf returns a text of a row; dots lead into objects. Text that is not on one line is no word that a shell could complete.
func memberOf(row map[string]any, path string) string {
	name, rest, deeper := strings.Cut(path, ".")
	if deeper {
		inner, _ := row[name].(map[string]any)
		return memberOf(inner, rest)
	}
	text, _ := row[name].(string)
	if strings.ContainsFunc(text, breaksLine) {
		return oneLine(text)
	}
	return text
}
