package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"inbox"
)

func newTokens() *cobra.Command {
	parent := &cobra.Command{
		Use:   "tokens",
		Short: "Create, list or revoke bearer tokens of A2A peers",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newTokensCreate(), newTokensList(), newTokensRevoke())
	return parent
}

func newTokensCreate() *cobra.Command {
	var agent string
	cmd := &cobra.Command{
		Use:   "create [--agent A] NAME",
		Short: "Create a token for the peer NAME",
		Long: `Creates a bearer token and prints it alone on the last line; it is shown once and only its hash is kept.
The peer is then known to agents as @NAME@domain. Without --agent the token opens every agent of this server.`,
		Example: "  inbox tokens create --agent echo partner",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return operate(cmd, func(operator *inbox.Operator) error {
				token, record, err := operator.CreateToken(cmd.Context(), names[0], agent)
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), map[string]any{"id": record.ID, "name": record.Name, "agent": record.Agent, "token": token})
				}
				fmt.Fprintf(cmd.OutOrStdout(), "Token %s for %s. It is shown only now:\n%s\n", record.ID, record.Name, token)
				return nil
			})
		},
	}
	addJSON(cmd)
	cmd.Flags().StringVar(&agent, "agent", "", "the only agent that the token opens")
	return cmd
}

func newTokensList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tokens (never the secrets)",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operate(cmd, func(operator *inbox.Operator) error {
				tokens, err := operator.Tokens(cmd.Context())
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), tokens)
				}
				rows := make([][]string, 0, len(tokens))
				for _, t := range tokens {
					rows = append(rows, []string{t.ID, t.Name, orAll(t.Agent), when(t.CreatedAt), when(t.RevokedAt)})
				}
				return printTable(cmd.OutOrStdout(), "No tokens. Create one with: inbox tokens create NAME",
					[]string{"ID", "NAME", "AGENT", "CREATED", "REVOKED"}, rows)
			})
		},
	}
	addJSON(cmd)
	return cmd
}

func newTokensRevoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID…",
		Short: "Revoke tokens; running servers notice within seconds",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return operate(cmd, func(operator *inbox.Operator) error {
				for _, id := range ids {
					if err := operator.RevokeToken(cmd.Context(), id); err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s is revoked\n", id)
				}
				return nil
			})
		},
	}
}

func orAll(agent string) string {
	if agent == "" {
		return "all"
	}
	return agent
}
