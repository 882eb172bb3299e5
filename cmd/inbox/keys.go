package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator"
)

func newKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "The keys with which this server vouches for its agents",
		Long: `Our agents take signed evidence along when they call agents elsewhere. Other servers find the public keys at
/.well-known/adapter-card, did.json and jwks.json of this domain. Keys of mail (DKIM) and of the fediverse are others.`,
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
		Long: `Makes a new key. With --actor it is the key with which an agent's account in the fediverse signs: it has a new id, the
old one can be looked up for a week, and followers and recent peers are told by the running server. The ids of accounts
never change. The name may be the domain, for the server's own account.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if actor != "" {
				return withServer(cmd, func(ctx context.Context, server *inbox.Server) error {
					key, err := server.RotateActorKey(ctx, actor)
					if err != nil {
						return err
					}
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s signs from now on, on all nodes within a minute\n", key)
					return err
				})
			}
			return operate(cmd, func(o *inbox.Operator) error {
				if err := o.Keys.Rotate(cmd.Context()); err != nil {
					return err
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "A new key is published; it signs within a few minutes, and evidence signed with the old one stays good.")
				return err
			})
		},
	}
	cmd.Flags().StringVar(&actor, "actor", "", "rotate the key of this agent's account in the fediverse instead")
	return cmd
}
