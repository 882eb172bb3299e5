package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"inbox"
)

// withServer builds the server without letting it listen, for commands that need its adapters.
func withServer(cmd *cobra.Command, work func(context.Context, *inbox.Server) error) error {
	config, err := load(cmd)
	if err != nil {
		return err
	}
	server, err := inbox.New(cmd.Context(), config)
	if err != nil {
		return err
	}
	return errors.Join(work(cmd.Context(), server), server.Close())
}

func newMove() *cobra.Command {
	var undo bool
	cmd := &cobra.Command{
		Use:   "move AGENT TARGET",
		Short: "Move an agent's account in the fediverse to one on another server",
		Long: `Tells the followers of an agent that it is another account now; their servers let them follow that one. TARGET is an
address (@name@server.example) or the address of an actor. The other account must name this agent as an alias
(alsoKnownAs) first. The running server sends the news. Mail and A2A of the agent stay as they are.`,
		Example: "  inbox move helper @helper@new.example\n  inbox move --undo helper",
		Args: arguments(func(cmd *cobra.Command, given []string) error {
			if undo {
				return cobra.ExactArgs(1)(cmd, given)
			}
			return cobra.ExactArgs(2)(cmd, given)
		}),
		RunE: func(cmd *cobra.Command, given []string) error {
			return withServer(cmd, func(ctx context.Context, server *inbox.Server) error {
				if undo {
					if err := server.UnmoveAgent(ctx, given[0]); err != nil {
						return err
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s is here again; followers who went stay where they are\n", given[0])
					return nil
				}
				target, err := server.MoveAgent(ctx, given[0], given[1])
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s moves to %s; its followers are told\n", given[0], target)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "let the agent be here again")
	return cmd
}
