package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// readyTimeout is longer than the server takes for an answer.
const readyTimeout = 5 * time.Second

func newReady() *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "ready",
		Short: "Ask the running server whether it is ready",
		Long: `Asks /readyz of the running server, at admin.listen, or at http.listen if that is not set. It exits with 0 when the server accepts
messages, and with 1 when it does not; then it prints what is missing and what to do. It needs no token and answers within seconds. Use it
for health checks where no other client is available, as in a container. "inbox doctor" checks much more.`,
		Example: "  inbox ready --config /etc/inbox/inbox.toml",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := load(cmd)
			if err != nil {
				return err
			}
			node, err := newRunningNode(config, "")
			if err != nil {
				return err
			}
			if err := node.ready(cmd.Context()); err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), map[string]bool{"ready": true})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "ready")
			return err
		},
	})
}

// ready returns nil when the server takes messages.
func (n *runningNode) ready(ctx context.Context) error {
	// Nothing secret travels, and what is asked is whether it runs: its certificate may be for names by which others come.
	if transport, ok := n.http.Transport.(*http.Transport); ok && transport.TLSClientConfig != nil {
		transport.TLSClientConfig.InsecureSkipVerify, transport.TLSClientConfig.VerifyConnection = true, nil
	}

	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.base+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := n.http.Do(request)
	if failed, is := errors.AsType[*net.OpError](err); is && failed.Op == "dial" {
		return fmt.Errorf("%w at %s", errNoServer, n.base)
	}
	if err != nil {
		return fmt.Errorf("ask the running server: %w", err)
	}
	defer response.Body.Close()

	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of the running server: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		return nil
	}

	var said struct {
		Reason  string `json:"reason"`
		Details []struct {
			Name     string `json:"name"`
			OK       bool   `json:"ok"`
			Required bool   `json:"required"`
			Reason   string `json:"reason"`
			Remedy   string `json:"remedy"`
		} `json:"details"`
	}
	if json.Unmarshal(body, &said) != nil {
		return fmt.Errorf("the server at %s answered %s", n.base, response.Status)
	}
	reasons := []string{}
	if said.Reason != "" {
		reasons = append(reasons, said.Reason)
	}
	for _, check := range said.Details {
		if check.Required && !check.OK {
			reasons = append(reasons, strings.TrimSuffix(check.Name+": "+check.Reason+": "+check.Remedy, ": "))
		}
	}
	return errors.New("not ready: " + strings.Join(reasons, "; "))
}
