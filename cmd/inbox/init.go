package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/operator"
	"inbox/operator/doctor"
	"inbox/operator/setup"
)

// initOptions are the flags of init, which are the answers to its questions.
type initOptions struct {
	setup     setup.Setup
	addresses []string
	yes       bool
}

func newInit() *cobra.Command {
	var options initOptions
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write the files of a first start, and print the DNS records to publish",
		Long: `Asks five questions at a terminal (or takes their answers as flags) and writes into --dir: inbox.toml, secret.key, a unit for
systemd and, for an agent that needs one, its secret. It creates the database with the key that signs mail, so that you can publish
the DNS records that it prints, and shows what to do next. It replaces existing files only with
--force, and never a key.

The addresses of the records are those of this machine's network interfaces. Behind NAT there are none: name the public
ones with --address. It contacts no other service.

Exit codes: 0 written, 1 not written (the message has the reason; no file is left incomplete), 2 an answer is missing.`,
		Example: `  inbox init
  inbox init --yes --domain agents.example --email me@example.org --agent helper --kind webhook --backend http://127.0.0.1:9000/ --mail mx`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return initialize(cmd, &options) },
	}

	flags, answers := cmd.Flags(), &options.setup
	flags.StringVar(&answers.Domain, "domain", "", "part of every address after the last @")
	flags.StringVar(&answers.Hostname, "hostname", "", "public name of this machine (default: the domain)")
	flags.StringVar(&answers.Email, "email", "", "where the certificate authority may write to you; - = nowhere")
	flags.StringVar(&answers.Agent.Name, "agent", "", "name of the first agent")
	addAgentFlags(cmd, &answers.Agent)
	addChoice(cmd, &answers.Mail, "mail", "how mail leaves", setup.MailDirect, setup.MailSmarthost, setup.MailNone)
	flags.StringVar(&answers.Smarthost, "smarthost", "", "relay for --mail smarthost: smtp://user:password@host:587")
	flags.StringVar(&answers.Directory, "dir", ".", "directory for the files")
	flags.StringSliceVar(&options.addresses, "address", nil, "public address of this machine, instead of those of its interfaces")
	flags.BoolVar(&answers.Force, "force", false, "replace inbox.toml and the unit; keys stay")
	flags.BoolVar(&options.yes, "yes", false, "ask nothing: take the defaults for what no flag says")
	addJSON(cmd)
	return cmd
}

// addAgentFlags adds what a table [[agents]] needs beside its name.
func addAgentFlags(cmd *cobra.Command, agent *setup.AgentTable) {
	addChoice(cmd, &agent.Kind, "kind", "what answers for the agent", setup.KindNames()...)
	flags := cmd.Flags()
	flags.StringVar(&agent.Backend, "backend", "", "URL of the webhook, base URL of the model's provider, path of the program, or URL of the agent card")
	flags.StringVar(&agent.Model, "model", "", "name of the model, for --kind llm")
	addChoice(cmd, &agent.Provider, "provider", "wire format of the model's provider", "openai", "anthropic")
	flags.StringVar(&agent.SecretFile, "secret-file", "", "file with the webhook's secret (default: a new one), the provider's key or the remote agent's token")
}

// interview asks what no flag has answered. Where no one can be asked, a question without a default is a usage error.
type interview struct {
	in    *bufio.Reader
	out   io.Writer
	asks  bool
	wrong []string // flags that are missing
}

// ask returns the value of a flag, the answer, or the fallback; empty fallback = it has to be answered.
func (i *interview) ask(value *string, flag, question, fallback string) error {
	switch {
	case *value != "":
		return nil
	case !i.asks && fallback == "":
		i.wrong = append(i.wrong, "--"+flag)
		return nil
	case !i.asks:
		*value = fallback
		return nil
	}

	for *value == "" {
		suffix := ""
		if fallback != "" {
			suffix = " [" + fallback + "]"
		}
		fmt.Fprintf(i.out, "%s%s: ", question, suffix)
		line, err := i.in.ReadString('\n')
		if *value = strings.TrimSpace(line); *value == "" {
			*value = fallback
		}
		if err != nil && *value == "" {
			return usageError{fmt.Errorf("the question for --%s has no answer: %w", flag, err)}
		}
	}
	return nil
}

// choose asks for one of a few words.
func (i *interview) choose(value *string, flag, question, fallback string, words ...string) error {
	for {
		if err := i.ask(value, flag, question+" ("+strings.Join(words, ", ")+")", fallback); err != nil || *value == "" || slices.Contains(words, *value) {
			return err
		}
		fmt.Fprintf(i.out, "  %q is none of them\n", *value)
		*value = ""
	}
}

// backEnd asks for what stands behind an agent of the kind.
func (i *interview) backEnd(agent *setup.AgentTable) error {
	kind, fallback := setup.KindNamed(agent.Kind), ""
	if kind.Optional {
		fallback = "-"
	}
	if kind.BackEnd != "" {
		if err := i.ask(&agent.Backend, "backend", "   "+kind.Asks, fallback); err != nil {
			return err
		}
	}
	if agent.Backend == "-" {
		agent.Backend = "" // the default of its setting
	}
	if kind.Model {
		return i.ask(&agent.Model, "model", "   Name of the model", "")
	}
	return nil
}

func (o *initOptions) complete(cmd *cobra.Command) error {
	asked := &interview{in: bufio.NewReader(cmd.InOrStdin()), out: cmd.ErrOrStderr(), asks: !o.yes && isTerminal(os.Stdin)}
	return asked.run(&o.setup)
}

// run asks the five questions.
func (i *interview) run(s *setup.Setup) error {
	err := i.ask(&s.Domain, "domain", "1. Domain of the addresses, as in @agent@DOMAIN", "")
	if err == nil {
		err = i.ask(&s.Hostname, "hostname", "2. Public name of this machine", s.Domain)
	}
	if err == nil {
		err = i.ask(&s.Email, "email", "3. Your e-mail address, for the certificate authority; - = none", "-")
	}
	if err == nil {
		err = i.ask(&s.Agent.Name, "agent", "4. Name of the first agent", "echo")
	}
	if err == nil {
		err = i.choose(&s.Agent.Kind, "kind", "   What answers for it", "echo", setup.KindNames()...)
	}
	if err == nil {
		err = i.backEnd(&s.Agent)
	}
	if err == nil {
		err = i.choose(&s.Mail, "mail", "5. How mail leaves", setup.MailDirect, setup.MailDirect, setup.MailSmarthost, setup.MailNone)
	}
	if err == nil && s.Mail == setup.MailSmarthost {
		err = i.ask(&s.Smarthost, "smarthost", "   Relay, smtp://user:password@host:587", "")
	}

	if s.Email == "-" {
		s.Email = ""
	}
	if err == nil && len(i.wrong) > 0 {
		err = usageError{fmt.Errorf("%s is missing; at a terminal, and without --yes, it is asked for\nRun 'inbox init --help'", strings.Join(i.wrong, " and "))}
	}
	return err
}

// firstStart is what init prints as JSON.
type firstStart struct {
	Config    string              `json:"config"`
	Files     []setup.File        `json:"files"`
	Addresses []netip.Addr        `json:"addresses"`
	NAT       bool                `json:"nat"` // no interface has a public address
	Records   []doctor.DNSRecord  `json:"records"`
	DMARC     []doctor.Step       `json:"dmarc"`
	Next      []setup.Instruction `json:"next"`
}

func initialize(cmd *cobra.Command, o *initOptions) error {
	if err := o.complete(cmd); err != nil {
		return err
	}
	addresses, nat, err := publicAddresses(o.addresses)
	if err != nil {
		return err
	}

	if o.setup.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find the path of this program: %w", err)
	}
	me, err := user.Current()
	if err != nil {
		return fmt.Errorf("find the name of this user: %w", err)
	}
	if o.setup.User = me.Username; me.Uid == "0" {
		o.setup.User = setup.ServiceUser
	}

	files, err := o.setup.Write(os.Environ())
	if err != nil {
		return err
	}

	written := firstStart{Files: files, Addresses: addresses, NAT: nat}
	for _, file := range files {
		if strings.HasSuffix(file.Path, ".toml") {
			written.Config = file.Path
		}
	}
	if err := o.describe(cmd, &written); err != nil {
		return fmt.Errorf("the files are written; %w", err)
	}
	if wantsJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), written)
	}
	return written.print(cmd.OutOrStdout())
}

// describe opens the new database, whose keys the records show.
func (o *initOptions) describe(cmd *cobra.Command, written *firstStart) error {
	config, err := inbox.LoadConfig(written.Config, os.Environ())
	if err != nil {
		return err
	}
	opened, err := inbox.OpenOperator(cmd.Context(), config)
	if err != nil {
		return err
	}

	ctx := operator.ByCommand(cmd.Context(), cmd.CommandPath(), systemUser())
	records, err := opened.Doctor.DNSRecords(ctx) // makes the keys of mail
	if err := errors.Join(err, opened.Close()); err != nil {
		return err
	}
	written.DMARC = doctor.DMARCSteps(records)
	written.Records = doctor.FirstRecords(records, config, written.Addresses)
	written.Next = o.setup.Next(config, written.Files, written.Addresses)
	return nil
}

// publicAddresses are those that the operator names, else those of the interfaces.
func publicAddresses(named []string) (addresses []netip.Addr, nat bool, err error) {
	addresses = []netip.Addr{}
	for _, text := range named {
		address, err := netip.ParseAddr(text)
		if err != nil || address.IsLoopback() || address.IsUnspecified() || address.Zone() != "" {
			return nil, false, usageError{fmt.Errorf("--address: %q is not an address that others reach", text)}
		}
		addresses = append(addresses, address.Unmap())
	}
	if len(addresses) > 0 {
		return addresses, false, nil
	}

	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil, false, fmt.Errorf("find the addresses of this machine: %w; name them with --address", err)
	}
	var networks []netip.Prefix
	for _, one := range interfaces {
		if network, err := netip.ParsePrefix(one.String()); err == nil {
			networks = append(networks, network)
		}
	}
	addresses = append(addresses, doctor.PublicAddresses(networks)...)
	return addresses, len(addresses) == 0, nil
}

func (f *firstStart) print(out io.Writer) error {
	rows := make([][]string, 0, len(f.Files))
	for _, file := range f.Files {
		state := "written"
		if file.Kept {
			state = "kept as it was"
		}
		rows = append(rows, []string{file.Path, file.Mode, state})
	}
	if err := printTable(out, "", []string{"FILE", "MODE", ""}, rows); err != nil {
		return err
	}

	fmt.Fprintln(out, "\nPublish these DNS records:")
	fmt.Fprintln(out)
	rows = rows[:0]
	for _, r := range f.Records {
		rows = append(rows, []string{r.Name, r.Type, r.Value})
	}
	if err := printTable(out, "", []string{"NAME", "TYPE", "VALUE"}, rows); err != nil {
		return err
	}
	if f.NAT {
		fmt.Fprint(out, "\nNo interface of this machine has a public address: it is behind NAT. Put the address under which others reach it in the place\nof <…>, forward ports 25, 80 and 443 to this machine, and print this again with: inbox init --force --address ADDRESS\n")
	}

	if len(f.DMARC) > 0 {
		fmt.Fprintln(out, "\nDMARC in three steps, by p= in its record:")
		for _, step := range f.DMARC {
			fmt.Fprintf(out, "  %-11s %s\n", step.Policy, step.When)
		}
	}

	fmt.Fprintln(out, "\nNext:")
	for i, step := range f.Next {
		fmt.Fprintf(out, "  %d. %s\n", i+1, step.Text)
		for _, command := range step.Commands {
			fmt.Fprintf(out, "       %s\n", command)
		}
	}
	return nil
}
