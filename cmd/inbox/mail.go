package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
	"inbox/operator"
)

func newMail() *cobra.Command {
	parent := &cobra.Command{
		Use: "mail", Short: "Read, search and forward mail for the operator; send a test; reports; suppressed addresses", Args: arguments(cobra.NoArgs),
		Long: `Mail for the operator is mail to postmaster, abuse and other role addresses of the domain, and to the address for reports
(mail.reports). It is kept for 90 days. With mail.mode = "capture" it includes the captured answers.`,
		Example: "  inbox mail list\n  inbox mail search invoice --since 48h\n  inbox mail reports --since 168h",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(newMailList(), newMailSearch(), newMailShow(), newMailForward(), newMailSendTest(), newMailReports(), newSuppressed())
	return parent
}

func newMailList() *cobra.Command {
	cmd, list := mailListing("list", "List kept mail, newest first", arguments(cobra.NoArgs))
	cmd.Long = `Lists kept mail, newest first. PROOF names what proves the author; without it, anyone may have written the mail.`
	cmd.Example = "  inbox mail list --mailbox abuse --since 48h\n  inbox mail list --kind captured\n  inbox mail list --sender example.com --json"
	text := cmd.Flags().String("text", "", "only mail with these words in addresses, subject, text or names of files")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return list(*text) }
	return cmd
}

func newMailSearch() *cobra.Command {
	cmd, list := mailListing("search WORDS…", "Search kept mail by its addresses, subjects, texts and names of files", arguments(cobra.MinimumNArgs(1)))
	cmd.Long = "Lists kept mail that has all the words, newest first, like inbox mail list --text."
	cmd.Example = "  inbox mail search invoice overdue"
	cmd.RunE = func(_ *cobra.Command, words []string) error { return list(strings.Join(words, " ")) }
	return cmd
}

// mailListing is a command that lists mail with the words of a text.
func mailListing(use, short string, args cobra.PositionalArgs) (cmd *cobra.Command, list func(text string) error) {
	var filter exchange.MailFilter
	var limit int
	var since, until string
	cmd = &cobra.Command{Use: use, Short: short, Args: args}
	addJSON(cmd)
	addChoice(cmd, &filter.Kind, "kind", "only this kind", exchange.MailKinds()...)
	cmd.Flags().StringVar(&filter.Mailbox, "mailbox", "", "only mail to this name, such as postmaster; of captured mail the agent that wrote it")
	cmd.Flags().StringVar(&filter.Sender, "sender", "", "only mail of this address, or of a domain and all below it")
	cmd.Flags().StringVar(&since, "since", "", `only later mail: an age such as "48h", or a time`)
	cmd.Flags().StringVar(&until, "until", "", "only earlier mail")
	addPaging(cmd, &filter.Before, &limit)

	return cmd, func(text string) (err error) {
		filter.Text = text
		if filter.Since, err = optionalSince("since", since); err == nil {
			filter.Until, err = optionalSince("until", until)
		}
		if err != nil {
			return err
		}

		heading := []string{"ID", "RECEIVED", "KIND", "MAILBOX", "PROOF", "FROM", "SUBJECT"}
		shown := table[exchange.Mail]{"No mail.", heading, func(m exchange.Mail) []string {
			return []string{m.ID, when(m.ReceivedAt), m.Kind, m.Mailbox, m.Proof, oneLine(m.From), excerpt(m.Subject)}
		}}
		return printPage(cmd, limit, shown, exchange.MailCursor, func(o *inbox.Operator, size int) ([]exchange.Mail, error) {
			filter.Limit = size
			return o.Mail.List(cmd.Context(), filter)
		})
	}
}

// optionalSince reads an age or a time that may be left out.
func optionalSince(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := operator.SinceTime(text, time.Now())
	if err != nil {
		return at, usageError{fmt.Errorf(`--%s: %q is neither an age such as "48h" nor a time such as "2026-05-01T12:00:00Z"`, flag, text)}
	}
	return at, nil
}

func newMailShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a mail: what proves its author, its header, text and files", Args: arguments(cobra.ExactArgs(1)),
		Long: `Shows a mail, without the control characters of its sender. --raw prints the mail as it was received, below the fields
that this server added: write it to a file to open it in a mail program, or to get its attachments.`,
		Example: "  inbox mail show 019a…\n  inbox mail show 019a… --raw > mail.eml",
	}
	addJSON(cmd)
	completing(cmd, mailIDs)
	raw := cmd.Flags().Bool("raw", false, "print the whole mail as it was received")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		return operate(cmd, func(o *inbox.Operator) error {
			if *raw {
				return copyRaw(cmd, o, ids[0])
			}
			mail, err := o.Mail.Show(cmd.Context(), ids[0])
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), mail)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), shownMail(mail))
			return err
		})
	}
	return cmd
}

func copyRaw(cmd *cobra.Command, o *inbox.Operator, id string) error {
	bytes, err := o.Mail.Raw(cmd.Context(), id)
	if err != nil {
		return err
	}
	defer bytes.Close()
	_, err = io.Copy(cmd.OutOrStdout(), bytes)
	return err
}

func shownMail(mail exchange.Mail) string {
	var out strings.Builder
	line := func(name, text string) {
		if text = oneLine(text); text != "" {
			fmt.Fprintf(&out, "%-13s %s\n", name+":", text)
		}
	}

	line("Mail", mail.ID+" ("+mail.Kind+", "+strconv.FormatInt(mail.Size, 10)+" bytes)")
	line("Mailbox", mail.Mailbox+" ("+strings.Join(mail.To, ", ")+")")
	line("Received", when(mail.ReceivedAt))
	line("Return path", mail.EnvelopeFrom)
	line("Proof", mail.Proof)
	line("Evidence", string(mail.Evidence))
	line("Note", mail.Note)
	line("Answer", mail.ReplyID)
	out.WriteString("\n")
	for _, field := range mail.Headers {
		line(field.Name, field.Value)
	}

	out.WriteString("\n")
	for text := range strings.SplitSeq(mail.Text, "\n") {
		out.WriteString(strings.TrimRight(oneLineKeepingIndent(text), " ") + "\n")
	}
	if mail.Cut {
		out.WriteString("[…] the whole mail: inbox mail show " + mail.ID + " --raw\n")
	}
	for _, file := range mail.Files {
		fmt.Fprintf(&out, "\nFile: %s (%s, %d bytes)", oneLine(file.Name), oneLine(file.MIME), file.Size)
	}
	if len(mail.Files) > 0 {
		out.WriteString("\n")
	}
	return out.String()
}

// oneLineKeepingIndent is oneLine for a line of a text, whose first blanks mean something.
func oneLineKeepingIndent(text string) string {
	rest := strings.TrimLeft(text, " ")
	return text[:len(text)-len(rest)] + oneLine(rest)
}

func newMailForward() *cobra.Command {
	return completing(withJSON(&cobra.Command{
		Use: "forward ID ADDRESS", Short: "Forward a kept mail", Args: arguments(cobra.ExactArgs(2)),
		Long: `Sends a kept mail to another address, whole and attached to a mail from the address to which it was sent. It leaves like an answer: a running
server sends it now and tries again after a failure (inbox deliveries list --to DOMAIN). operator.forward_mail forwards mail
automatically.`,
		Example: "  inbox mail forward 019a… me@example.org",
		RunE: func(cmd *cobra.Command, given []string) error {
			return operate(cmd, func(o *inbox.Operator) error {
				forward, err := o.Mail.Forward(cmd.Context(), given[0], given[1])
				switch {
				case err != nil:
					return err
				case wantsJSON(cmd):
					return printJSON(cmd.OutOrStdout(), forward)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is sent on to %s\n", given[0], given[1])
				return err
			})
		},
	}), mailIDs, completed{})
}

func newMailSendTest() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "send-test ADDRESS", Short: "Send a test mail and show the result", Args: arguments(cobra.ExactArgs(1)),
		Long: `Sends a mail of the first agent to an address elsewhere. The running server sends it like an answer; the command waits for the result and
prints what the other server said. The other server may still put it into a folder for spam: look there. Exit code 1 means that it was
not delivered.`,
		Example: "  inbox mail send-test me@example.org\n  inbox mail send-test me@example.org --wait 2m",
	}
	addJSON(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long to wait for the result")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		return operate(cmd, func(o *inbox.Operator) error {
			sent, err := o.Mail.SendTest(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			result, err := o.Mail.Sent(cmd.Context(), sent, wait)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				err = printJSON(cmd.OutOrStdout(), result)
			} else if result.State != "" {
				err = printTable(cmd.OutOrStdout(), "", []string{"ADDRESS", "STATE", "WHY"}, [][]string{{oneLine(result.Address), result.State, oneLine(result.Reason)}})
			}
			switch {
			case err != nil || result.State == operator.DeliveryDelivered:
				return err
			case result.State == "":
				return errors.New("no server has sent the test mail yet; is one running? It is sent after the next start")
			}
			return errors.New("the test mail was not delivered; inbox doctor looks at the way out, inbox deliveries list shows further attempts")
		})
	}
	return cmd
}

func newMailReports() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reports", Short: "Sum up reports of other servers about DMARC and TLS, by source and result", Args: arguments(cobra.NoArgs),
		Long: `Sums up reports of other servers about mail under your domain (DMARC) and about connections to your mail server (TLS). If your own source
fails, it lacks a record; a source that is not yours writes under your name. Only reports with a proven author count; --unproven
counts the others, too, which anyone may have written.`,
		Example: "  inbox mail reports --since 168h\n  inbox mail reports list --result fail",
	}
	filter, parse := reportFlags(cmd)
	cmd.Flags().IntVar(&filter.Limit, "limit", 50, "only the largest sums, at most this many, up to 500")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(parse(), checkLimit(cmd, filter.Limit)); err != nil {
			return err
		}
		heading := []string{"COUNT", "KIND", "SOURCE", "RESULT", "DISPOSITION", "DKIM", "SPF", "REPORTS", "UNTIL"}
		return printList(cmd, "No reports.", heading, func(o *inbox.Operator) ([]exchange.ReportSum, error) {
			return o.Mail.SumReports(cmd.Context(), *filter)
		}, func(s exchange.ReportSum) []string {
			return []string{
				strconv.FormatInt(s.Count, 10), s.Kind, dash(s.Source), oneLine(s.Result), dash(s.Disposition), dash(s.DKIM), dash(s.SPF),
				strconv.FormatInt(s.Reports, 10), when(s.Ends),
			}
		})
	}
	cmd.AddCommand(newMailReportsList())
	return cmd
}

func newMailReportsList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the lines of reports, newest first", Args: arguments(cobra.NoArgs),
		Long:    "Lists the lines of reports, newest first, each with who reports it and what proves that. The mail: inbox mail show MAIL.",
		Example: "  inbox mail reports list --kind tls --json",
	}
	filter, parse := reportFlags(cmd)
	var limit int
	addPaging(cmd, &filter.Before, &limit)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := parse(); err != nil {
			return err
		}
		heading := []string{"ID", "KIND", "REPORTER", "PROOF", "UNTIL", "SOURCE", "COUNT", "RESULT", "DISPOSITION", "DKIM", "SPF", "MAIL"}
		shown := table[exchange.StoredReportRow]{"No reports.", heading, func(r exchange.StoredReportRow) []string {
			return []string{
				r.ID, r.Kind, oneLine(r.Reporter), r.Proof, when(r.Ends), dash(r.Source), strconv.FormatInt(r.Count, 10), oneLine(r.Result),
				dash(r.Disposition), dash(r.DKIM), dash(r.SPF), r.MailID,
			}
		}}
		return printPage(cmd, limit, shown, exchange.ReportCursor, func(o *inbox.Operator, size int) ([]exchange.StoredReportRow, error) {
			filter.Limit = size
			return o.Mail.Reports(cmd.Context(), *filter)
		})
	}
	return cmd
}

// reportFlags adds the flags that select lines of reports; parse reads those that are not texts.
func reportFlags(cmd *cobra.Command) (filter *exchange.ReportFilter, parse func() error) {
	filter = new(exchange.ReportFilter)
	var since string
	addJSON(cmd)
	addChoice(cmd, &filter.Kind, "kind", "only this kind", exchange.MailDMARC, exchange.MailTLS)
	cmd.Flags().StringVar(&filter.Result, "result", "", "only this result: pass, fail, success, or the type of a failure of TLS")
	cmd.Flags().StringVar(&filter.Source, "source", "", "only what this address sent")
	cmd.Flags().StringVar(&since, "since", "", `only reports about a time after this: an age such as "168h", or a time`)
	cmd.Flags().BoolVar(&filter.Unproven, "unproven", false, "also reports whose author nothing proves")
	return filter, func() (err error) {
		filter.Since, err = optionalSince("since", since)
		return err
	}
}

// dash stands for nothing in a table.
func dash(text string) string {
	if text = oneLine(text); text == "" {
		return "-"
	}
	return text
}
