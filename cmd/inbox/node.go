package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/internal/bearer"
	"inbox/operator"
)

// errNoServer is that of a server which does not run where the configuration says.
var errNoServer = errors.New("no server answers")

const (
	nodeTimeout = 2 * time.Minute // a move asks another server
	nodeDial    = 3 * time.Second
	maxAnswer   = 1 << 20
)

// runningNode asks the server that runs with a configuration, by its operator API.
type runningNode struct {
	base  string
	host  string // by which a further domain is told apart; empty = that of base
	token func(ctx context.Context) (string, error)
	http  *http.Client
}

var _ operator.Node = (*runningNode)(nil)

// newRunningNode finds the server of this machine: at admin.listen, else at http.listen. Another address may be given.
func newRunningNode(config *inbox.Config, server string) (*runningNode, error) {
	listen, secure := config.HTTP.Listen, config.HTTP.TLS != "off"
	if config.Admin.Listen != "" {
		listen, secure = config.Admin.Listen, secure && !config.Admin.IsLocal()
	}

	dialer := &net.Dialer{Timeout: nodeDial}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	node := &runningNode{base: strings.TrimSuffix(server, "/"), http: &http.Client{Transport: transport, Timeout: nodeTimeout}}
	node.token = func(ctx context.Context) (string, error) { return operatorToken(config) }
	node.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token goes nowhere else
	if config.HostedBy != "" {
		node.host = config.PublicHost()
	}
	if server != "" {
		return node, nil
	}

	if network, place := operator.Reach(listen); network == "unix" {
		node.base, transport.DialContext = "http://localhost", dialing(network, place)
		return node, nil
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}

	node.base = "http://" + net.JoinHostPort(host, port)
	if secure {
		node.base = "https://" + net.JoinHostPort(host, port)
		transport.TLSClientConfig = ownTLS(config)
	}
	return node, nil
}

// dialing connects to one place, whatever it is asked for.
func dialing(network, place string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: nodeDial}).DialContext(ctx, network, place)
	}
}

// ownTLS is for connections to the server of a configuration, whose certificates are looked up in its database where no authority is known.
func ownTLS(config *inbox.Config) *tls.Config {
	return operator.OwnTLS(config.PublicHost(), config.HTTP.CertFile, func(ctx context.Context) ([]*x509.Certificate, error) {
		if config.HTTP.TLS != "acme" {
			return nil, nil
		}
		return inbox.IssuedCertificates(ctx, config)
	})
}

// operatorToken is the operator's: that of the environment, or the first one, which the server wrote into its data directory.
func operatorToken(config *inbox.Config) (string, error) {
	if token := os.Getenv("INBOX_TOKEN"); token != "" {
		return token, nil
	}
	path := filepath.Join(config.DataDir, operator.AdminTokenFile)
	content, err := os.ReadFile(path)
	token := strings.TrimSpace(string(content))
	if err != nil || !bearer.WellFormed(token) {
		return "", fmt.Errorf("an operator's token is needed, and %s has none: write one of \"inbox tokens create --admin\" into INBOX_TOKEN", path)
	}
	return token, nil
}

// call asks for one operation. errNoServer where nothing listens.
func (n *runningNode) call(ctx context.Context, method, path string, body, into any) error {
	token, err := n.token(ctx)
	if err != nil {
		if !n.listens(ctx) {
			return fmt.Errorf("%w at %s", errNoServer, n.base)
		}
		return err
	}

	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, n.base+path, content)
	if err != nil {
		return err
	}
	request.Host = n.host
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")

	response, err := n.http.Do(request)
	if failed, is := errors.AsType[*net.OpError](err); is && failed.Op == "dial" {
		return fmt.Errorf("%w at %s", errNoServer, n.base)
	}
	if err != nil {
		return fmt.Errorf("ask the running server: %w", err)
	}
	defer response.Body.Close()

	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of the running server: %w", err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return nodeRefusal(n.base, response.Status, answer)
	}
	if into == nil || len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("the answer of %s is none of an inbox server: %w", n.base, err)
	}
	return nil
}

// listens reports whether someone takes connections at the server's address.
func (n *runningNode) listens(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.base+"/healthz", nil)
	if err != nil {
		return false
	}
	response, err := n.http.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return true
}

// nodeRefusal is what the server says, without the form in which it travels.
func nodeRefusal(base, status string, answer []byte) error {
	var said struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &said) != nil || said.Error.Message == "" {
		return fmt.Errorf("the server at %s answered %s", base, status)
	}
	return &refusedRequest{said.Error.Code, said.Error.Message}
}

// Reload implements operator.Node.
func (n *runningNode) Reload(ctx context.Context) (answer operator.Reloaded, err error) {
	return answer, n.call(ctx, http.MethodPost, "/api/v1/reload", nil, &answer)
}

// Stop implements operator.Node.
func (n *runningNode) Stop(ctx context.Context) error {
	return n.call(ctx, http.MethodPost, "/api/v1/stop", nil, nil)
}

// RotateActorKey implements operator.Node.
func (n *runningNode) RotateActorKey(ctx context.Context, name string) (string, error) {
	var answer struct{ Key string }
	err := n.call(ctx, http.MethodPost, "/api/v1/actors/"+url.PathEscape(name)+"/key", nil, &answer)
	return answer.Key, err
}

// MoveAgent implements operator.Node.
func (n *runningNode) MoveAgent(ctx context.Context, agent, target string) (string, error) {
	var answer struct{ Target string }
	err := n.call(ctx, http.MethodPut, "/api/v1/agents/"+url.PathEscape(agent)+"/move", map[string]string{"target": target}, &answer)
	return answer.Target, err
}

// UnmoveAgent implements operator.Node.
func (n *runningNode) UnmoveAgent(ctx context.Context, agent string) error {
	return n.call(ctx, http.MethodDelete, "/api/v1/agents/"+url.PathEscape(agent)+"/move", nil, nil)
}

// withNode lets the running server do something, or a server that does not listen where none runs, for what needs its adapters.
func withNode(cmd *cobra.Command, work func(context.Context, operator.Node) error) error {
	config, err := load(cmd)
	if err != nil {
		return err
	}

	node, err := newRunningNode(config, "")
	if err == nil {
		err = work(cmd.Context(), node)
	}
	if !errors.Is(err, errNoServer) {
		return err
	}

	var level slog.Level
	if err := level.UnmarshalText([]byte(config.Log.Level)); err == nil && level < slog.LevelWarn {
		config.Log.Level = slog.LevelWarn.String() // the log would stand between the command's own output
	}
	server, err := inbox.New(cmd.Context(), config)
	if err != nil {
		return err
	}
	return errors.Join(work(cmd.Context(), server.Operator().Node), server.Close())
}

func newReload() *cobra.Command {
	var server string
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Let the running server read its configuration again",
		Long: `Makes the running server read its configuration file again, with the environment of its start. Reloadable settings apply at once;
those that need a restart keep their old values and are named. A bad file changes nothing, and its mistakes are
listed. docs/operating.md has the table. The signal SIGHUP does the same, and logs the result.

The command asks at admin.listen, or at http.listen if that is not set. The server reads the file of its own machine: with several
nodes run the command on each, or give their addresses by --server. The operator's token is in INBOX_TOKEN, or in
admin-token in data_dir.`,
		Example: "  inbox reload\n  INBOX_TOKEN=… inbox reload --server http://10.0.0.2:8080",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, err := nodeFor(cmd, server)
			if err != nil {
				return err
			}
			answer, err := node.Reload(cmd.Context())
			if errors.Is(err, errNoServer) {
				return fmt.Errorf("%w: start it with \"inbox serve\", or say where it is by --server", err)
			}
			if err != nil {
				return err
			}

			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), answer)
			}
			return tellReloaded(cmd.OutOrStdout(), node.base, answer)
		},
	}

	addJSON(cmd)
	cmd.Flags().StringVar(&server, "server", "", "address of the server that reads its configuration again")
	return cmd
}

// nodeFor returns the server at an address, or that of the configuration. A file that the server refuses must not keep the command from
// reaching it: then the address has to be given.
func nodeFor(cmd *cobra.Command, server string) (*runningNode, error) {
	config, err := load(cmd)
	if err != nil && server == "" {
		return nil, fmt.Errorf("nothing was changed, and no server was asked: %w", err)
	}
	if err != nil {
		config = &inbox.Config{}
	}
	return newRunningNode(config, server)
}

func tellReloaded(out io.Writer, base string, answer operator.Reloaded) error {
	if len(answer.Changed)+len(answer.UnchangedUntilRestart) == 0 {
		_, err := fmt.Fprintf(out, "The server at %s read its configuration again: nothing is different.\n", base)
		return err
	}

	fmt.Fprintf(out, "The server at %s read its configuration again.\n", base)
	for _, key := range answer.Changed {
		fmt.Fprintf(out, "  %s: changed\n", key)
	}
	for _, key := range answer.UnchangedUntilRestart {
		fmt.Fprintf(out, "  %s: needs a restart, keeps its old value\n", key)
	}
	return nil
}
