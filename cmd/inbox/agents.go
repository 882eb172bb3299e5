package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
	"inbox/operator/setup"
)

func newAgents() *cobra.Command {
	parent := &cobra.Command{
		Use:   "agents",
		Short: "List, add, remove, test or pause the agents of this server",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	var filter operator.AgentFilter
	list := &cobra.Command{
		Use:   "list",
		Short: "List agents with their addresses",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := load(cmd)
			if err != nil {
				return err
			}

			agents := operator.ConfiguredAgents(config)
			if operator.HasDatabase(config) {
				if err := operate(cmd, func(o *inbox.Operator) error { return o.Pauses.MarkStates(cmd.Context(), agents) }); err != nil {
					return err
				}
			}
			agents = slices.DeleteFunc(agents, func(one operator.AgentSummary) bool { return !filter.Selects(one) })

			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), exchange.NewList(agents, ""))
			}

			rows := make([][]string, 0, len(agents))
			for _, a := range agents {
				state := "works"
				switch {
				case a.Paused != nil:
					state = "paused since " + when(a.Paused.CreatedAt)
				case a.PausedWithAll != nil:
					state = "all paused since " + when(a.PausedWithAll.CreatedAt)
				case a.Down != nil:
					state = "down since " + when(a.Down.Since)
				}
				rows = append(rows, []string{a.Name, a.Kind, a.Address, state, a.Access, a.Unverified, a.Summary})
			}
			if err := printTable(cmd.OutOrStdout(), "No agents.", []string{"NAME", "KIND", "ADDRESS", "STATE", "ACCESS", "UNVERIFIED", "SUMMARY"}, rows); err != nil {
				return err
			}
			for _, a := range agents {
				if a.Down != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s is down since %s, its messages wait; next attempt %s: %s\n", a.Name, when(a.Down.Since), upcoming(a.Down.Next), printable(a.Down.Reason))
				}
				if len(a.ClosedTools) > 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: no rule of %s opens %s: its model never sees them; inbox doctor names the rules to write\n", a.Name, strings.Join(a.ClosedTools, ", "))
				}
			}
			return nil
		},
	}

	addJSON(list)
	list.Flags().StringVar(&filter.Kind, "kind", "", "only agents of this kind")
	completeWords(list, "kind", setup.KindNames()...)
	addChoice(list, &filter.State, "state", "only agents in this state", operator.AgentWorks, operator.AgentPaused, operator.AgentDown)
	parent.AddCommand(list, newAgentsAdd(), newAgentsRemove(), newAgentsTest(), newAgentsWhy(), newAgentsPause(), newAgentsResume())
	return parent
}

func newAgentsPause() *cobra.Command {
	var reason string
	var all bool
	cmd := &cobra.Command{
		Use:   "pause [NAME… | --all]",
		Short: "Pause agents: they accept nothing, and accepted messages wait",
		Long: `Pauses agents until "resume". Mail to them is refused with 550 5.2.1; other senders get 503 and a time
to come again; accepted messages without an answer wait. A running server notices within seconds.
Without NAME it shows the paused agents.

--all pauses every agent of every node: messages are still accepted, and their turns wait until "resume --all", also
across a restart. Runs that have begun end, and finished answers leave. /readyz shows it and stays ready.`,
		Example: "  inbox agents pause helper --reason 'new model'\n  inbox pause --all --reason 'the model answers nonsense'",
		RunE: func(cmd *cobra.Command, names []string) error {
			switch {
			case all && len(names) > 0:
				return usageError{fmt.Errorf("--all and NAME exclude each other\nRun '%s --help'", cmd.CommandPath())}
			case all:
				return onEachDomain(cmd, "all agents are paused; messages are accepted and wait", func(o *inbox.Operator) error {
					_, err := o.Pauses.BeginAll(cmd.Context(), reason)
					return err
				})
			case len(names) == 0:
				return printList(cmd, "No agent is paused.", []string{"NAME", "SINCE", "REASON"}, func(o *inbox.Operator) ([]exchange.ListEntry, error) {
					return o.Pauses.List(cmd.Context())
				}, func(p exchange.ListEntry) []string {
					return []string{nameOfPaused(p), when(p.CreatedAt), excerpt(p.Reason)}
				})
			}
			return each(cmd, names, "is paused", func(o *inbox.Operator, name string) error {
				return o.Pauses.Begin(cmd.Context(), name, reason)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, agentNames)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.Flags().BoolVar(&all, "all", false, "all agents of all nodes: they accept messages and do not work on them")
	return cmd
}

// nameOfPaused names who rests.
func nameOfPaused(p exchange.ListEntry) string {
	if p.Kind == exchange.TargetAll {
		return "(all)"
	}
	return p.Target
}

func newAgentsResume() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "resume NAME… | --all", Short: "Let paused agents work again",
		Long:    `Lets paused agents work again. --all ends the pause that "pause --all" began; agents that were paused by name stay paused.`,
		Example: "  inbox resume helper\n  inbox resume --all",
		Args: arguments(func(cmd *cobra.Command, names []string) error {
			if all {
				return cobra.NoArgs(cmd, names)
			}
			return cobra.MinimumNArgs(1)(cmd, names)
		}),
		RunE: func(cmd *cobra.Command, names []string) error {
			if all {
				return onEachDomain(cmd, "all agents work again", func(o *inbox.Operator) error { return o.Pauses.EndAll(cmd.Context()) })
			}
			return each(cmd, names, "works again", func(o *inbox.Operator, name string) error {
				return o.Pauses.End(cmd.Context(), name)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, agentNames)
	cmd.Flags().BoolVar(&all, "all", false, "end the pause of all agents")
	return cmd
}

func newFollows() *cobra.Command {
	parent := &cobra.Command{
		Use: "follows", Short: "List, accept or reject follow requests of an agent", Args: arguments(cobra.NoArgs),
		Long: `Where an agent's setting says follows = "hold", follow requests wait for you.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newFollowsList(), newFollowsDecide("accept", "Let actors follow an agent", true), newFollowsDecide("reject", "Refuse followers", false))
	return parent
}

func newFollowsList() *cobra.Command {
	filter := operator.FollowFilter{State: operator.FollowWaiting}
	var limit int
	cmd := &cobra.Command{
		Use: "list [AGENT]", Short: "List follow requests and followers of an agent", Args: arguments(cobra.MaximumNArgs(1)),
		Example: "  inbox follows list\n  inbox follows list --state following echo",
		RunE: func(cmd *cobra.Command, names []string) error {
			filter.Agent = strings.Join(names, "")
			shown := table[operator.Follow]{"Nobody.", []string{"AGENT", "ACTOR", "STATE", "SINCE"}, func(f operator.Follow) []string {
				return []string{f.Agent, oneLine(f.Actor), f.State, when(f.Since)}
			}}
			return printPage(cmd, limit, shown, operator.Follow.Cursor, func(o *inbox.Operator, size int) ([]operator.Follow, error) {
				filter.Limit = size
				return o.Follows.List(cmd.Context(), filter)
			})
		},
	}

	addJSON(cmd)
	completing(cmd, agentNames)
	addChoice(cmd, &filter.State, "state", "those who wait, or those who follow", operator.FollowWaiting, operator.FollowFollowing)
	cmd.Flags().StringVar(&filter.Actor, "actor", "", "only this actor")
	completeFlag(cmd, "actor", waitingActors)
	addPaging(cmd, &filter.After, &limit)
	return cmd
}

func newFollowsDecide(use, short string, accept bool) *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use: use + " AGENT ACTOR…", Short: short, Args: arguments(cobra.MinimumNArgs(2)),
		Example: "  inbox follows " + use + " helper https://social.example/users/ana",
		RunE: func(cmd *cobra.Command, names []string) error {
			said := map[bool]string{true: "is accepted", false: "is rejected"}[accept]
			return each(cmd, names[1:], said, func(o *inbox.Operator, actor string) error {
				return o.Follows.Decide(cmd.Context(), names[0], actor, accept)
			})
		},
	}), agentNames, waitingActors)
}

func newReports() *cobra.Command {
	parent := &cobra.Command{
		Use: "reports", Short: "List complaints of other servers", Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	var agent, before string
	var limit int
	list := &cobra.Command{
		Use: "list", Short: "List reports, newest first", Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown := table[exchange.AuditRecord]{"Nobody complained.", []string{"AT", "AGENT", "BY", "TURN", "COMMENT"}, func(r exchange.AuditRecord) []string {
				return []string{when(r.At), r.Agent, oneLine(r.Principal), r.TurnID, oneLine(r.Detail)}
			}}
			return printPage(cmd, limit, shown, auditCursor, func(o *inbox.Operator, size int) ([]exchange.AuditRecord, error) {
				return o.Audit.Reports(cmd.Context(), agent, before, size)
			})
		},
	}

	addJSON(list)
	list.Flags().StringVar(&agent, "agent", "", "only about this agent")
	addPaging(list, &before, &limit)
	parent.AddCommand(list)
	return parent
}

// moved is what --json prints of a move.
type moved struct {
	done

	Target string `json:"target"` // address of the actor that the agent is now
}

func newMove() *cobra.Command {
	var undo bool
	cmd := &cobra.Command{
		Use:   "move AGENT TARGET",
		Short: "Move an agent's account in the fediverse to one on another server",
		Long: `Tells the followers of an agent that it is now another account; their servers let them follow that one. TARGET is an
address (@name@server.example) or the address of an actor. The other account must name this agent as an alias
(alsoKnownAs) first. The running server tells the followers. Mail and A2A of the agent stay as they are.`,
		Example: "  inbox move helper @helper@new.example\n  inbox move --undo helper",
		Args: arguments(func(cmd *cobra.Command, given []string) error {
			if undo {
				return cobra.ExactArgs(1)(cmd, given)
			}
			return cobra.ExactArgs(2)(cmd, given)
		}),
		RunE: func(cmd *cobra.Command, given []string) error {
			return withNode(cmd, func(ctx context.Context, node operator.Node) error {
				if undo {
					if err := node.UnmoveAgent(ctx, given[0]); err != nil {
						return err
					}
					return printDone(cmd, given[0], given[0]+" is here again; followers who went stay where they are")
				}

				target, err := node.MoveAgent(ctx, given[0], given[1])
				if err != nil {
					return err
				}

				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), moved{doneBy(cmd, given[0]), target})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s moves to %s; its followers are told\n", given[0], target)
				return err
			})
		},
	}

	addJSON(cmd)
	completing(cmd, agentNames, completed{})
	cmd.Flags().BoolVar(&undo, "undo", false, "let the agent be here again")
	return cmd
}
