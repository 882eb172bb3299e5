package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/internal/clock"
	"inbox/operator"
)

// aboutPerson are the words on who PERSON is, which both commands have in their help.
const aboutPerson = `PERSON is an address, an account, a principal as "inbox show" prints it, or the id of a link. An address means the principals whose
evidence vouches for it; --dry-run names each of them with the reason. Addresses are compared letter by letter, capital letters included.

Messages that only state the address are listed apart. --unproven takes those of senders without proof, too: write it only if you know that the person
wrote them. Messages of a sender who is proven to be another one, and of an address that differs in capital letters, are never taken: name that
principal. --linked takes what linked addresses said to the agent for which both agreed to the link. The id of a link means both sides, for its agent.`

// addPerson adds the flags that say who belongs to a person.
func addPerson(cmd *cobra.Command, who *operator.PersonName) {
	cmd.Flags().BoolVar(&who.Linked, "linked", false, "with what linked addresses said to the agent of the link")
	cmd.Flags().BoolVar(&who.Unproven, "unproven", false, "with messages without proof that state exactly the address")
}

func newExportPerson() *cobra.Command {
	var out string
	var who operator.PersonName
	var dry bool
	cmd := &cobra.Command{
		Use:   "export PERSON [--out DIR | --out FILE.zip] [--dry-run]",
		Short: "Write everything that is kept of one person",
		Long: `Writes the messages of a person at all domains of the server, the answers to them, demands, evidence and files. person.json says what
the archive has, and which domains are missing; below a directory for each domain there are index.html for reading, one JSON document for each
message in the form of the message contract, the files and the original messages. From conversations with several people the export has what
this person said and the answers to it. Without --out it is a ZIP archive on standard output.

` + aboutPerson,
		Example: "  inbox export alice@example.org --out alice.zip\n  inbox export @alice@example.org > alice.zip",
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) == 0 && cmd.Flags().Changed("format") {
				return usageError{fmt.Errorf("inbox export is about one person now; conversations are written by: inbox conversations export")}
			}
			return arguments(cobra.ExactArgs(1))(cmd, given)
		},
		RunE: func(cmd *cobra.Command, names []string) error {
			who.Name = names[0]
			persons, err := personsOf(cmd)
			if err != nil {
				return err
			}
			if dry {
				return previewPerson(cmd, persons, who)
			}

			made, err := exportTo(cmd, persons, who, out)
			if err != nil && (!operator.Incomplete(err) || made.Empty()) {
				return err
			}
			switch {
			case out == "":
			case wantsJSON(cmd):
				err = errors.Join(err, printJSON(cmd.OutOrStdout(), made))
			default:
				fmt.Fprintf(cmd.OutOrStdout(), "%d messages and %d files are in %s\n", made.Messages, made.Files, out)
			}
			nameLeftOut(cmd, made.LeftOut)
			return err
		},
	}

	addJSON(cmd)
	completing(cmd, linkedPeople)
	addPerson(cmd, &who)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show the person and the number of messages; write nothing")
	cmd.Flags().StringVar(&out, "out", "", "a new directory, or a new file that ends with .zip; default: a ZIP archive on standard output")
	for _, name := range []string{"format", "client", "connector", "agent", "session", "thread", "output"} { // of the old command, which say what to write instead
		cmd.Flags().String(name, "", "")
		_ = cmd.Flags().MarkHidden(name)
	}
	return cmd
}

// exportTo writes an archive. An incomplete one stays, because it names the domains that are missing, but not one of no domain.
func exportTo(cmd *cobra.Command, persons operator.Persons, who operator.PersonName, out string) (made operator.PersonExport, err error) {
	if out == "" {
		buffered := bufio.NewWriter(cmd.OutOrStdout())
		if made, err = persons.ExportZip(cmd.Context(), who, buffered); err != nil && !operator.Incomplete(err) {
			return made, err
		}
		return made, errors.Join(err, buffered.Flush())
	}

	if strings.HasSuffix(out, ".zip") {
		file, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return made, err
		}
		made, err = persons.ExportZip(cmd.Context(), who, file)
		written := errors.Join(file.Sync(), file.Close())
		if written != nil || err != nil && (!operator.Incomplete(err) || made.Empty()) {
			_ = os.Remove(out)
			return made, errors.Join(written, err)
		}
		return made, err
	}

	directory, err := operator.NewDirectory(out)
	if err != nil {
		return made, err
	}
	made, err = persons.Export(cmd.Context(), who, directory)
	err = errors.Join(err, directory.Close())
	if err != nil {
		_ = os.Remove(out) // only when nothing is in it
	}
	return made, err
}

// eraseWait is how long a command waits for an erasure that needs the running server, or a moment.
const eraseWait = 3 * time.Minute

func newErase() *cobra.Command {
	var dry, yes, list bool
	var receipt, receipts, before string
	var limit int
	var wait time.Duration
	var who operator.PersonName
	cmd := &cobra.Command{
		Use:   "erase PERSON [--dry-run] [--yes]",
		Short: "Remove everything that is kept of one person",
		Long: `Removes the messages of a person, the answers to them, files, evidence, notes of agents, unsent deliveries, links, tokens and
sessions, withdraws answers on the fediverse, and overwrites the space. Decisions about trust stay without the name, and an address that takes
no mail stays as a hash. Sent mails cannot be withdrawn. What the person sends afterwards is a new message; to keep a sender out, see
"inbox block".

` + aboutPerson + `

The erasure is a row in the database: a running server performs it, continues after a crash, and tells other servers. It keeps a receipt without names;
"inbox erase --receipt ID" and "inbox erase --list" print it.

Earlier backups still have the person. --receipts also writes the receipts of all erasures into a file, which "inbox
restore" reads to erase again: write it beside the backups, as erasures.json, where each "inbox backup" updates it, too.`,
		Example: "  inbox erase alice@example.org --dry-run\n  inbox erase alice@example.org --yes --receipts /var/backups/inbox/erasures.json",
		Args: func(cmd *cobra.Command, given []string) error {
			if list || receipt != "" {
				return arguments(cobra.NoArgs)(cmd, given)
			}
			return arguments(cobra.ExactArgs(1))(cmd, given)
		},
		RunE: func(cmd *cobra.Command, names []string) error {
			persons, err := personsOf(cmd)
			if err != nil {
				return err
			}
			switch {
			case list:
				return errors.Join(keepReceipts(cmd, persons, receipts), listReceipts(cmd, persons, before, limit))
			case receipt != "":
				found, err := persons.Receipt(cmd.Context(), receipt)
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), found)
				}
				printReceipt(cmd.OutOrStdout(), found.Receipt)
				return nil
			}

			who.Name = names[0]
			if dry || !yes {
				if err := previewPerson(cmd, persons, who); err != nil || dry {
					return err
				}
				return usageError{fmt.Errorf("nothing was removed; write --yes to remove it")}
			}
			begun, err := persons.Erase(cmd.Context(), who, operator.CommandLine, func(ctx context.Context, o *inbox.Operator, begun operator.Receipt) (operator.Receipt, error) {
				if err := errors.Join(keepReceiptsOf(ctx, o, receipts), awaitErasure(ctx, o, begun.ID, wait)); err != nil {
					return begun, err
				}
				if err := keepReceiptsOf(ctx, o, receipts); err != nil {
					return begun, err
				}
				return o.Erasures.Receipt(ctx, begun.ID)
			})
			return errors.Join(err, printOfPerson(cmd, persons, begun, func(one operator.AtDomain) {
				printReceipt(cmd.OutOrStdout(), *one.Receipt)
				if one.NotTaken != nil {
					printNotTaken(cmd.OutOrStdout(), *one.NotTaken)
				}
			}))
		},
	}

	addJSON(cmd)
	completing(cmd, linkedPeople)
	addPerson(cmd, &who)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show the person and the number of messages; change nothing")
	cmd.Flags().BoolVar(&yes, "yes", false, "remove it")
	cmd.Flags().BoolVar(&list, "list", false, "list the receipts, newest first")
	addPaging(cmd, &before, &limit)
	cmd.Flags().StringVar(&receipt, "receipt", "", "print the receipt of this erasure")
	cmd.Flags().StringVar(&receipts, "receipts", "", "write the receipts of all erasures into this file, for a restore of an older backup")
	cmd.Flags().DurationVar(&wait, "wait", eraseWait, "wait at most this long for the end; the server continues afterwards")
	return cmd
}

// personsOf looks for persons at every domain, or at the one that the command line names.
func personsOf(cmd *cobra.Command) (operator.Persons, error) {
	configs, err := loadEach(cmd)
	if err != nil {
		return operator.Persons{}, err
	}
	persons := operator.Persons{}
	for _, config := range configs {
		persons.Domains = append(persons.Domains, operator.Domain{Name: config.Domain, With: func(_ context.Context, work func(context.Context, *inbox.Operator) error) error {
			return operateOn(cmd, config, func(o *inbox.Operator) error { return work(cmd.Context(), o) })
		}})
	}
	if domainFlag(cmd) == "" {
		persons.LeftOut = configs[0].OrphanedDomains
	}
	return persons, nil
}

// previewPerson prints who a name means at each domain.
func previewPerson(cmd *cobra.Command, persons operator.Persons, who operator.PersonName) error {
	found, err := persons.Preview(cmd.Context(), who)
	return errors.Join(err, printOfPerson(cmd, persons, found, func(one operator.AtDomain) { printPreview(cmd.OutOrStdout(), *one.Preview) }))
}

// printOfPerson prints what the domains answered, as one document or each with its name.
func printOfPerson(cmd *cobra.Command, persons operator.Persons, answers operator.OfPerson, printOne func(operator.AtDomain)) error {
	if wantsJSON(cmd) && len(answers.Items) > 0 {
		if err := printJSON(cmd.OutOrStdout(), answers); err != nil {
			return err
		}
	}
	for _, one := range answers.Items {
		if wantsJSON(cmd) {
			break
		}
		if len(persons.Domains) > 1 {
			fmt.Fprintf(cmd.ErrOrStderr(), "At %s:\n", one.Domain)
		}
		switch {
		case one.Receipt != nil || one.Preview != nil:
			printOne(one)
		case len(persons.Domains) > 1 && one.Note != "":
			fmt.Fprintln(cmd.ErrOrStderr(), oneLine(one.Note))
		}
	}
	nameLeftOut(cmd, answers.LeftOut)
	return nil
}

// nameLeftOut says which domains were not asked: those that the command line left out, and those that are no longer in the settings.
func nameLeftOut(cmd *cobra.Command, left []operator.OrphanedDomain) {
	if name := domainFlag(cmd); name != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "Only %s was asked; without --domain the command asks every domain.\n", name)
	}
	for _, one := range left {
		fmt.Fprintf(cmd.ErrOrStderr(), "Left out  %s, which is in no table [[domains]] any more: its data is in %s; see: inbox domains list\n", one.Domain, one.Directory)
	}
}

// keepReceipts writes the receipts of each domain into the file, if one is wanted.
func keepReceipts(cmd *cobra.Command, persons operator.Persons, file string) error {
	if file == "" {
		return nil
	}
	var failures []error
	for _, one := range persons.Domains {
		if err := one.With(cmd.Context(), func(ctx context.Context, o *inbox.Operator) error { return keepReceiptsOf(ctx, o, file) }); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", one.Name, err))
		}
	}
	return errors.Join(failures...)
}

func keepReceiptsOf(ctx context.Context, o *inbox.Operator, file string) error {
	if file == "" {
		return nil
	}
	_, err := o.Erasures.KeepReceipts(ctx, file)
	return err
}

func printPreview(out io.Writer, preview operator.ErasurePreview) {
	fmt.Fprintf(out, "%d messages are of this person, who is known as:\n", preview.Messages)
	for _, address := range preview.Names.Addresses {
		fmt.Fprintf(out, "  %s\n", oneLine(string(address)))
	}
	for _, one := range preview.Principals {
		fmt.Fprintf(out, "  %s: %s (%s)\n", oneLine(one.Principal), oneLine(one.Why()), counted(one.Messages, "message"))
	}
	printNotTaken(out, operator.NotTaken{Linked: preview.Linked, Unproven: preview.Unproven, Others: preview.Others})
}

// printNotTaken names what a name does not reach, and how it is reached.
func printNotTaken(out io.Writer, left operator.NotTaken) {
	if len(left.Linked) > 0 {
		fmt.Fprintln(out, "Linked with this person, and left out without --linked:")
	}
	for _, one := range left.Linked {
		fmt.Fprintf(out, "  %s: %s\n", oneLine(one.Principal), oneLine(one.Why()))
	}
	printStatements(out, "Unproven messages that state this address, and are left out without --unproven:", left.Unproven)
	printStatements(out, "Messages of others that state this address or one like it, and are never taken by this name:", left.Others)
}

func printStatements(out io.Writer, heading string, list []operator.Statement) {
	if len(list) > 0 {
		fmt.Fprintln(out, heading)
	}
	for _, one := range list {
		fmt.Fprintf(out, "  %s (%s)\n", oneLine(one.Why()), counted(one.Messages, "message"))
	}
}

// awaitErasure works on an erasure beside a server, if one runs, until it is done or the time is over.
func awaitErasure(whole context.Context, o *inbox.Operator, id string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(whole, wait)
	defer cancel()
	for {
		if err := o.Erasures.Work(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		receipt, err := o.Erasures.Receipt(whole, id)
		if err != nil || !receipt.EndedAt.IsZero() {
			return err
		}
		if clock.Sleep(ctx, time.Second) != nil {
			return whole.Err()
		}
	}
}

func printReceipt(out io.Writer, receipt operator.Receipt) {
	fmt.Fprintf(out, "Erasure   %s\nStage     %s\nRequested %s by %s\n", receipt.ID, receipt.Stage, when(receipt.RequestedAt), receipt.RequestedBy)
	if receipt.EndedAt.IsZero() {
		fmt.Fprintf(out, "The running server goes on with it; see: inbox erase --receipt %s\n", receipt.ID)
	} else {
		fmt.Fprintf(out, "Done      %s\n", when(receipt.EndedAt))
	}
	for _, what := range slices.Sorted(maps.Keys(receipt.Counts)) {
		fmt.Fprintf(out, "%7d   %s\n", receipt.Counts[what], what)
	}
	for _, one := range receipt.Remains {
		fmt.Fprintf(out, "Kept      %s\n", one)
	}
}

// listReceipts prints one page of the receipts of all domains, or of the one that the command line names, newest first. A domain that fails
// is named after those of the others.
func listReceipts(cmd *cobra.Command, persons operator.Persons, before string, limit int) error {
	if err := checkLimit(cmd, limit); err != nil {
		return err
	}
	found, failure := persons.Receipts(cmd.Context(), before, limit+1)
	return errors.Join(failure, table[operator.DomainReceipt]{
		"No one was erased.", []string{"ID", "DOMAIN", "STAGE", "WANTED", "DONE", "BY", "MESSAGES"},
		func(one operator.DomainReceipt) []string {
			return []string{one.ID, one.Domain, one.Stage, when(one.RequestedAt), when(one.EndedAt), one.RequestedBy, fmt.Sprint(one.Counts["messages"])}
		},
	}.show(cmd, exchange.CutList(found, limit, func(one operator.DomainReceipt) string { return one.ID })))
}

func newUsage() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show stored data: rows and bytes of each agent",
		Long: `Shows how much of the database each agent takes, and the free space in the SQLite file: removed rows leave room for new ones, and the
file does not become smaller; PostgreSQL does not report free space. Files are those of blob_url, unless they are in a bucket. The free space
on the disk of data_dir says nothing about a PostgreSQL elsewhere. With more than some ten thousand messages the numbers of agents are estimated
from a sample. [retention] in the settings says how long data is kept.`,
		Example: "  inbox usage\n  inbox usage --json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				usage, err := o.Usage.Measure(cmd.Context())
				if err != nil {
					return err
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), usage)
				}

				rows := make([][]string, 0, len(usage.Agents))
				for _, a := range usage.Agents {
					rows = append(rows, []string{
						a.Agent, fmt.Sprint(a.Messages), size(a.MessageBytes), size(a.AnswerBytes), size(a.OriginalBytes), size(a.StepBytes), size(a.FileBytes), when(a.Oldest),
					})
				}
				out := cmd.OutOrStdout()
				if err := printTable(out, "No message is kept.", []string{"AGENT", "MESSAGES", "QUESTIONS", "ANSWERS", "ORIGINALS", "STEPS", "FILES", "OLDEST"}, rows); err != nil {
					return err
				}
				printTotals(out, usage)
				return nil
			})
		},
	}
	addJSON(cmd)
	return cmd
}

func printTotals(out io.Writer, kept operator.Kept) {
	fmt.Fprintf(out, "\nDatabase  %s", size(kept.DatabaseBytes))
	if kept.FreeBytes > 0 {
		fmt.Fprintf(out, ", of which %s are free for the next rows", size(kept.FreeBytes))
	}
	fmt.Fprintln(out)
	if kept.Blobs != nil {
		fmt.Fprintf(out, "Files     %s in %d files beside the database\n", size(kept.Blobs.Bytes), kept.Blobs.Count)
	}
	fmt.Fprintf(out, "Disk      %s are free where data_dir is\n", size(kept.DataDirFreeBytes))
	if kept.Estimated {
		fmt.Fprintln(out, "The numbers of agents are estimated from a sample.")
	}
}

// size writes bytes for people.
func size(bytes int64) string {
	const units = "KMGTPE"
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}
