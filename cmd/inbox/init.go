package main

import (
	"bufio"
	"context"
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
	found     doctor.Apex // what the domain has already
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
ones with --address. It looks up the domain in the DNS and contacts no other service.

If the domain has a web site or mail already, its records stay as they are. With another --hostname, such as agents.example.org for
example.org, the web server of the domain redirects WebFinger to this machine (--apex elsewhere), and init prints the redirects.
Mail of the domain stays where it is: use --mail none, or a subdomain as --domain, so that addresses are @agent@agents.example.org.

Exit codes: 0 written, 1 not written (the message has the reason; no file is left incomplete), 2 an answer is missing.`,
		Example: `  inbox init
  inbox init --yes --domain agents.example --email me@example.org --agent helper --kind webhook --backend http://127.0.0.1:9000/ --mail mx
  inbox init --yes --domain example.org --hostname agents.example.org --apex elsewhere --mail none --email me@example.org`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return initialize(cmd, &options) },
	}

	flags, answers := cmd.Flags(), &options.setup
	flags.StringVar(&answers.Domain, "domain", "", "part of every address after the last @")
	flags.StringVar(&answers.Hostname, "hostname", "", "public name of this machine (default: the domain)")
	addChoice(cmd, &answers.Apex, "apex", "who serves HTTP at the domain itself, where --hostname is another name (default: what the DNS says)", setup.ApexHere, setup.ApexElsewhere)
	flags.StringVar(&answers.Email, "email", "", "contact address for the certificate authority; - = none")
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
	return asked.run(cmd.Context(), o)
}

// apex looks up whether the domain already has a web site or mail. If the DNS does not answer, the default is that a web site stays.
func (i *interview) apex(ctx context.Context, o *initOptions) error {
	own, _, err := publicAddresses(o.addresses)
	if err != nil {
		return err
	}
	s := &o.setup
	o.found = doctor.LookAtApex(ctx, doctor.ApexResolver(""), s.Domain, own)
	if strings.EqualFold(s.Hostname, s.Domain) {
		return nil
	}
	fallback := setup.ApexHere
	if len(o.found.Web) > 0 || o.found.Reason != "" {
		fallback = setup.ApexElsewhere
	}
	return i.choose(&s.Apex, "apex", "   Who serves HTTP at "+s.Domain+" itself: this machine (here), or a web site that stays ("+setup.ApexElsewhere+")", fallback, setup.ApexHere, setup.ApexElsewhere)
}

// mail says by which way mail leaves unless the operator chose one, and refuses one that would take the domain's mail away from its server.
func (o *initOptions) mail() (fallback string, err error) {
	s := &o.setup
	if len(o.found.Mail) == 0 || strings.EqualFold(s.Hostname, s.Domain) {
		return setup.MailDirect, nil
	}
	if s.Mail != "" && s.Mail != setup.MailNone {
		return "", usageError{fmt.Errorf("mail of %s arrives at %s, and --mail %s would take it away from there: use --mail none, or --domain %s, so that addresses are %s",
			s.Domain, o.found.Mail[0], s.Mail, s.Hostname, "@agent@"+s.Hostname)}
	}
	return setup.MailNone, nil
}

// run asks the five questions.
func (i *interview) run(ctx context.Context, o *initOptions) error {
	s := &o.setup
	err := i.ask(&s.Domain, "domain", "1. Domain of the addresses, as in @agent@DOMAIN", "")
	if err == nil {
		err = i.ask(&s.Hostname, "hostname", "2. Public name of this machine", s.Domain)
	}
	if err == nil && s.Domain != "" {
		err = i.apex(ctx, o)
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
	leaves := ""
	if err == nil {
		leaves, err = o.mail()
	}
	if err == nil {
		err = i.choose(&s.Mail, "mail", "5. How mail leaves", leaves, setup.MailDirect, setup.MailSmarthost, setup.MailNone)
	}
	if err == nil {
		_, err = o.mail()
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
	Domain    string              `json:"domain"`
	Files     []setup.File        `json:"files"`
	Addresses []netip.Addr        `json:"addresses"`
	NAT       bool                `json:"nat"` // no interface has a public address
	Records   []doctor.DNSRecord  `json:"records"`
	DMARC     []doctor.Step       `json:"dmarc"`
	Redirects []doctor.Redirect   `json:"redirects"` // for the web server of the domain, if another one has it
	Warnings  []string            `json:"warnings"`
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

	written := firstStart{Domain: o.setup.Domain, Files: files, Addresses: addresses, NAT: nat}
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
	written.Redirects, written.Warnings = doctor.Redirects(config), o.warnings(written.Addresses)
	written.Next = o.setup.Next(config, written.Files, written.Addresses)
	return nil
}

// warnings lists existing services that the printed records would replace, and missing prerequisites.
func (o *initOptions) warnings(addresses []netip.Addr) []string {
	list, s := []string{}, o.setup
	if s.Apex != setup.ApexElsewhere && len(o.found.Web) > 0 {
		list = append(list, fmt.Sprintf("%s leads to %s now: the A records below take its web site down. To keep it, use --hostname agents.%s --apex elsewhere, or --domain agents.%s",
			s.Domain, strings.Join(o.found.Web, " and "), s.Domain, s.Domain))
	}
	if s.Mail != setup.MailNone && len(o.found.Mail) > 0 && !slices.Contains(o.found.Mail, s.Hostname) {
		list = append(list, fmt.Sprintf("mail of %s arrives at %s now: the MX and SPF records below take it away from there. To keep it, use --mail none, or --domain agents.%s",
			s.Domain, strings.Join(o.found.Mail, " and "), s.Domain))
	}
	if len(o.found.Mail) > 0 && s.Mail == setup.MailNone {
		list = append(list, fmt.Sprintf("mail of %s stays at %s, so agents have no mail addresses. To have some, use a subdomain: --domain agents.%s", s.Domain, strings.Join(o.found.Mail, " and "), s.Domain))
	}
	if o.found.Reason != "" {
		list = append(list, fmt.Sprintf("no answer of the DNS shows whether %s has a web site or mail (%s): change none of its records that are there", s.Domain, o.found.Reason))
	}
	if len(addresses) > 0 && !slices.ContainsFunc(addresses, netip.Addr.Is4) {
		list = append(list, "this machine has no public IPv4 address: servers without IPv6, among them much of the fediverse and of mail, do not reach it")
	}
	return list
}

// printRedirects says what the web server of the domain has to redirect.
func printRedirects(out io.Writer, domain string, list []doctor.Redirect) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(out, "\nThe web server of %s redirects these paths; its own records stay as they are. Write one of:\n", domain)
	for _, one := range list {
		fmt.Fprintf(out, "\n  %s\n      %s\n", one.Server, strings.ReplaceAll(one.Text, "\n", "\n      "))
	}
}

// printDMARC says how the policy of the domain grows.
func printDMARC(out io.Writer, steps []doctor.Step) {
	if len(steps) == 0 {
		return
	}
	fmt.Fprintln(out, "\nDMARC in three steps, by p= in its record:")
	for _, step := range steps {
		fmt.Fprintf(out, "  %-11s %s\n", step.Policy, step.When)
	}
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

	for _, warning := range f.Warnings {
		fmt.Fprintf(out, "\nwarning: %s\n", warning)
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

	printDMARC(out, f.DMARC)
	printRedirects(out, f.Domain, f.Redirects)

	fmt.Fprintln(out, "\nNext:")
	for i, step := range f.Next {
		fmt.Fprintf(out, "  %d. %s\n", i+1, step.Text)
		for _, command := range step.Commands {
			fmt.Fprintf(out, "       %s\n", command)
		}
	}
	return nil
}
