package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
)

func newTokens() *cobra.Command {
	parent := &cobra.Command{
		Use:   "tokens",
		Short: "Create, list or revoke bearer tokens of A2A peers and of operators",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newTokensCreate(), newTokensList(), newTokensRevoke())
	return parent
}

func newTokensCreate() *cobra.Command {
	var agent string
	var read, work, admin, pull, tools, bridge, tasks, results bool
	var expires string
	var scopes []string
	cmd := &cobra.Command{
		Use:   "create [--agent A [--pull | --tools] | --read | --work | --admin | --bridge [--scopes …] [--agent A] | --tasks [--results] [--agent A]] NAME",
		Short: "Create a token for the peer or operator NAME",
		Long: `Creates a bearer token and prints it alone on the last line; it is shown once, and the server stores only its hash.
The peer is then known to agents as @NAME@domain. Without --agent the token opens every agent of this server.
With --read, --work or --admin it is an operator's: it signs in at the console and opens the operator API below /api/v1, and no agent.
--read looks at everything and changes nothing; --work also decides about waiting work, retries, edits and withdraws answers; --admin does everything.
With --expires the token expires.
With --pull it is for the program behind an agent of kind pull: it takes the agent's messages and answers in its name.
With --tools it is for a program that executes the client tools of the agent: it reads their calls and hands in results.
With --bridge it is for a program that writes to agents for others and fetches the answers from its queue; NAME is then the
id of its client, and tokens of one name share the queue. --scopes limits what the token opens.
With --tasks it is for a program that runs tasks on the targets of this server, of all or those of one agent, and sees their status;
with --results it also reads their results.`,
		Example: "  inbox tokens create --agent echo partner\n  inbox tokens create --agent helper --pull laptop\n  inbox tokens create --agent helper --tools desk\n  inbox tokens create --admin --expires 90d laptop\n  inbox tokens create --read wall\n  inbox tokens create --bridge relay\n  inbox tokens create --bridge --scopes pending,ack relay\n  inbox tokens create --tasks --results nightly",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			ofOperator := read || work || admin
			if ofOperator && (agent != "" || read && work || read && admin || work && admin) {
				return usageError{fmt.Errorf("--read, --work, --admin and --agent exclude each other\nRun '%s --help'", cmd.CommandPath())}
			}
			if pull && agent == "" {
				return usageError{fmt.Errorf("--pull needs --agent\nRun '%s --help'", cmd.CommandPath())}
			}
			if tools && (agent == "" || pull) {
				return usageError{fmt.Errorf("--tools needs --agent, and excludes --pull\nRun '%s --help'", cmd.CommandPath())}
			}
			if bridge && (ofOperator || pull || tools) || !bridge && cmd.Flags().Changed("scopes") {
				return usageError{fmt.Errorf("--bridge excludes --read, --work, --admin, --pull and --tools, and --scopes needs it\nRun '%s --help'", cmd.CommandPath())}
			}
			if tasks && (ofOperator || pull || tools || bridge) || results && !tasks {
				return usageError{fmt.Errorf("--tasks excludes --read, --work, --admin, --pull, --tools and --bridge, and --results needs it\nRun '%s --help'", cmd.CommandPath())}
			}

			end, err := operator.Ahead("expires", expires, time.Now())
			if err != nil {
				return usageError{err}
			}
			return operate(cmd, func(o *inbox.Operator) error {
				var token string
				var record exchange.Token
				tokens := o.Tokens.Until(end)
				switch {
				case bridge:
					token, record, err = tokens.CreateBridge(cmd.Context(), names[0], agent, scopes)
				case tasks:
					token, record, err = tokens.CreateTasks(cmd.Context(), names[0], agent, results)
				case read:
					token, record, err = tokens.CreateOperator(cmd.Context(), names[0], exchange.RoleRead)
				case work:
					token, record, err = tokens.CreateOperator(cmd.Context(), names[0], exchange.RoleWork)
				case admin:
					token, record, err = tokens.CreateAdmin(cmd.Context(), names[0])
				case pull:
					token, record, err = tokens.CreatePull(cmd.Context(), names[0], agent)
				case tools:
					token, record, err = tokens.CreateTools(cmd.Context(), names[0], agent)
				default:
					token, record, err = tokens.Create(cmd.Context(), names[0], agent)
				}

				switch {
				case err != nil:
					return err
				case wantsJSON(cmd):
					return printJSON(cmd.OutOrStdout(), struct {
						exchange.Token

						Secret string `json:"token"`
					}{record, token})
				}

				fmt.Fprintf(cmd.OutOrStdout(), "Token %s for %s. It is shown only now:\n%s\n", record.ID, record.Name, token)
				return nil
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&agent, "agent", "", "the only agent that the token opens")
	cmd.Flags().BoolVar(&read, "read", false, "for an operator who only looks")
	cmd.Flags().BoolVar(&work, "work", false, "for an operator who does the daily work")
	cmd.Flags().BoolVar(&admin, "admin", false, "for an operator who may do everything")
	cmd.Flags().StringVar(&expires, "expires", "", "when the token ends: an age such as 90d or 12h, or a time (RFC 3339)")
	cmd.Flags().BoolVar(&pull, "pull", false, "for the program behind the agent, which is of kind pull")
	cmd.Flags().BoolVar(&bridge, "bridge", false, "for a program that writes to agents and fetches the answers from its queue")
	cmd.Flags().StringSliceVar(&scopes, "scopes", exchange.AllBridgeScopes(), "what the token of a bridge opens: send, pending, ack")
	completeWords(cmd, "scopes", exchange.AllBridgeScopes()...)
	cmd.Flags().BoolVar(&tasks, "tasks", false, "for a program that runs tasks on the targets of this server")
	cmd.Flags().BoolVar(&results, "results", false, "also reads the results of its tasks, not only their status")
	cmd.Flags().BoolVar(&tools, "tools", false, "for a program that executes the agent's client tools")
	return cmd
}

func newTokensList() *cobra.Command {
	var filter operator.TokenFilter
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tokens (never the secrets)",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown := table[exchange.Token]{"No tokens. Create one with: inbox tokens create NAME", []string{"ID", "NAME", "OPENS", "CREATED", "USED", "EXPIRES", "REVOKED"}, func(t exchange.Token) []string {
				return []string{t.ID, t.Name, opens(t), when(t.CreatedAt), when(t.LastUsedAt), when(t.ExpiresAt), when(t.RevokedAt)}
			}}
			return printPage(cmd, limit, shown, func(t exchange.Token) string { return t.ID }, func(o *inbox.Operator, size int) ([]exchange.Token, error) {
				filter.Limit = size
				return o.Tokens.Select(cmd.Context(), filter)
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&filter.Agent, "agent", "", "only tokens that open this agent alone")
	cmd.Flags().StringVar(&filter.Name, "name", "", "only tokens of this name")
	cmd.Flags().StringVar(&filter.Scope, "scope", "", "only tokens for this: peer, read, work, admin, pull, tools, tasks, tasks:results or bridge")
	completeWords(cmd, "scope", "peer", "read", "work", "admin", "pull", "tools", "tasks", "tasks:results", "bridge")
	addChoice(cmd, &filter.Status, "status", "only these", operator.TokenValid, operator.TokenRevoked, operator.TokenExpired)
	addPaging(cmd, &filter.Before, &limit)
	return cmd
}

func newTokensRevoke() *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use:     "revoke ID…",
		Short:   "Revoke tokens, and end at all nodes what is open with them",
		Example: "  inbox tokens list\n  inbox tokens revoke 019a…",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return each(cmd, ids, "is revoked", func(o *inbox.Operator, id string) error {
				return o.Tokens.Revoke(cmd.Context(), id)
			})
		},
	}), tokenIDs)
}

func opens(token exchange.Token) string {
	scopes, isBridge := token.BridgeScopes()
	switch {
	case isBridge && token.Agent != "":
		return "bridge to " + token.Agent + " (" + strings.Join(scopes, ", ") + ")"
	case isBridge:
		return "bridge (" + strings.Join(scopes, ", ") + ")"
	case token.Role() > exchange.RoleNone:
		return "operator API (" + token.Scope + ")"
	case token.Scope == exchange.TokenPull:
		return "messages of " + token.Agent
	case token.Scope == exchange.TokenTools:
		return "tools of " + token.Agent
	case token.Scope == exchange.TokenTasks:
		return "tasks" + onTargetsOf(token.Agent)
	case token.Scope == exchange.TokenTaskResults:
		return "tasks and results" + onTargetsOf(token.Agent)
	case token.Agent == "":
		return "all agents"
	}

	return token.Agent
}

func onTargetsOf(agent string) string {
	if agent == "" {
		return ""
	}
	return " of " + agent
}

func newKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "The keys with which this server signs evidence for its agents",
		Long: `Agents of this server carry signed evidence when they call agents elsewhere. Other servers find the public keys at
/.well-known/adapter-card, did.json and jwks.json of this domain. Mail (DKIM) and the fediverse have other keys.`,
	}
	cmd.AddCommand(newKeysList(), newKeysRotate())
	return cmd
}

func newKeysList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the published keys",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printList(cmd, "There is no key yet; the first use makes it.", []string{"KEY", "PUBLISHED"}, func(o *inbox.Operator) ([]operator.PublishedKey, error) {
				return o.Keys.List(cmd.Context())
			}, func(key operator.PublishedKey) []string {
				until := "in use"
				if !key.NotAfter.IsZero() {
					until = "until " + key.NotAfter.UTC().Format(time.DateTime) + " UTC"
				}
				return []string{key.ID, until}
			})
		},
	}

	addJSON(cmd)
	return cmd
}

func newKeysRotate() *cobra.Command {
	var actor string
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Make a new key; the old one stays published for a day",
		Long: `Makes a new key. With --actor it is the signing key of an agent's account on the fediverse: it has a new id, the
old one stays available for a week, and the running server tells followers and recent peers. The ids of accounts
never change. The name may be the domain, for the server's own account.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if actor != "" {
				return withNode(cmd, func(ctx context.Context, node operator.Node) error {
					key, err := node.RotateActorKey(ctx, actor)
					if err != nil {
						return err
					}
					return printDone(cmd, key, key+" signs from now on, on all nodes within a minute")
				})
			}
			return operate(cmd, func(o *inbox.Operator) error {
				if err := o.Keys.Rotate(cmd.Context()); err != nil {
					return err
				}
				keys, err := o.Keys.List(cmd.Context())
				if err != nil || len(keys) == 0 {
					return err
				}
				return printDone(cmd, keys[0].ID, "A new key is published; it signs within a few minutes, and evidence signed with the old one stays good.")
			})
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&actor, "actor", "", "rotate the key of this agent's account in the fediverse instead")
	completeFlag(cmd, "actor", agentNames)
	return cmd
}
