package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inbox"
	"inbox/exchange"
)

func newBackup() *cobra.Command {
	var options inbox.BackupOptions
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Write a complete copy of the server while it runs",
		Long: `Writes a backup into DIR, beside earlier ones: the rows of all domains at one moment, the files to which they refer, the
configuration and the secret key. The server may run and accepts messages meanwhile; the backup does not have those, and takes
the processor that the server leaves (nice 10). Files of an earlier
backup in DIR are not copied again.

A person who has a backup with the secret key can act as the agents: protect DIR as you protect the key. --without-keys leaves out
secret.key and admin-token; then keep them elsewhere, because a backup without them opens no secret. Other files that the configuration
names are not copied; the command lists them.

An interrupted backup does not count, and the next one removes its remains. Each backup is checked as "inbox verify DIR" does it, and
no earlier one is removed for one that is refused. "inbox restore DIR" makes a server of it, on SQLite or PostgreSQL.

Exit codes: 0 written and whole, 1 refused, or rows or files of the server are damaged or lost, 2 the command line is wrong.`,
		Example: "  inbox backup /var/backups/inbox --keep 14\n  inbox backup /var/backups/inbox --without-keys --json",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := noDomain(cmd, "a backup has"); err != nil {
				return err
			}
			if options.Keep < 0 {
				return usageError{errors.New("--keep: must be 1 or more; 0 keeps all")}
			}
			config, err := loadWhole(cmd)
			if err != nil {
				return err
			}
			giveWay()
			shown := newBar(cmd)
			options.Directory, options.Progress = given[0], shown.progress
			report, err := inbox.Backup(cmd.Context(), config, options)
			shown.end()
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				err = printJSON(cmd.OutOrStdout(), report)
			} else {
				err = tellBackup(cmd.OutOrStdout(), given[0], report)
			}
			return errors.Join(err, refused(report))
		},
	}
	addJSON(cmd)
	cmd.Flags().BoolVar(&options.WithoutKeys, "without-keys", false, "leave out the secret key and the operator's first token")
	cmd.Flags().IntVar(&options.Keep, "keep", 0, "remove the oldest backups in DIR beyond this many (0 = none)")
	return cmd
}

// noDomain refuses --domain, where a command is about all domains.
func noDomain(cmd *cobra.Command, what string) error {
	if domainFlag(cmd) != "" {
		return usageError{errors.New("--domain: " + what + " all domains of the server; leave the flag out")}
	}
	return nil
}

func tellBackup(out io.Writer, directory string, report inbox.BackupReport) error {
	own, contents := report.Size()
	fmt.Fprintf(out, "Backup %s in %s: %d rows (%s), %d new files (%s) of %s, in %s.\n", report.Name, directory, report.Rows(), bytesText(own),
		report.NewContents, bytesText(report.NewBytes), bytesText(contents), report.Ended.Sub(report.Moment).Round(100*time.Millisecond))
	if !report.Keys {
		fmt.Fprintln(out, "The secret key is not in it: keep secret.key elsewhere, nothing else opens the secrets of this backup.")
	}
	if len(report.Elsewhere) > 0 {
		fmt.Fprintln(out, "Not in it, because they are files of their own that the configuration names:")
		for _, name := range report.Elsewhere {
			fmt.Fprintf(out, "  %s\n", name)
		}
	}
	if len(report.Environment) > 0 {
		fmt.Fprintf(out, "Not in it: the variables %s.\n", strings.Join(report.Environment, " "))
	}
	if len(report.Removed) > 0 {
		fmt.Fprintf(out, "Removed: %s (%s of files that no other backup has).\n", strings.Join(report.Removed, " "), bytesText(report.FreedBytes))
	}
	_, err := fmt.Fprintf(out, "Check it again later: inbox verify %s\n", directory)
	return err
}

// refused is the error of a backup that inbox verify refuses: the server has lost files, or rows are damaged.
func refused(report inbox.BackupReport) error {
	for _, domain := range report.Domains {
		if domain.MissingCount > 0 {
			return fmt.Errorf("the backup is complete, but %d references of %s are to files that the server does not have, such as %s: they are lost, "+
				"or blob_url is wrong", domain.MissingCount, domain.Domain, domain.Missing[0])
		}
	}
	if len(report.Problems) > 0 {
		return fmt.Errorf("the backup %s is written, but inbox verify refuses it, and no earlier one was removed: %s; look at the server with inbox doctor", report.Name, report.Problems[0])
	}
	return nil
}

// bytesText writes a size for people.
func bytesText(bytes int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(bytes), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

// bar shows on a terminal how far something is; elsewhere it shows nothing.
type bar struct {
	out   io.Writer // nil = no terminal
	last  time.Time
	shown bool
}

const barEvery = 100 * time.Millisecond

func newBar(cmd *cobra.Command) *bar {
	if file, is := cmd.ErrOrStderr().(*os.File); is && isTerminal(file) {
		return &bar{out: file}
	}
	return &bar{}
}

func (b *bar) progress(p inbox.BackupProgress) {
	if b.out == nil || time.Since(b.last) < barEvery {
		return
	}
	b.last, b.shown = time.Now(), true
	const width = 30
	switch {
	case p.Total > 0:
		done := int(min(p.Done, p.Total) * width / p.Total)
		fmt.Fprintf(b.out, "\r\x1b[K[%s%s] %3d %% %s", strings.Repeat("#", done), strings.Repeat(".", width-done), min(p.Done, p.Total)*100/p.Total, p.Step)
	case p.Done > 0:
		fmt.Fprintf(b.out, "\r\x1b[K%s: %d", p.Step, p.Done)
	default:
		fmt.Fprintf(b.out, "\r\x1b[K%s", p.Step)
	}
}

func (b *bar) end() {
	if b.shown {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}

func newVerify() *cobra.Command {
	var snapshot string
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check a backup: every byte, every row, every key",
		Long: `Reads a backup as a restore would, and changes nothing: the SHA-256 of each file, the number of rows of each table, whether the rows
can be read, whether every file to which a row refers is there with its bytes, and whether the secret key of the backup opens
what is sealed. The exit code is 1 when anything is wrong; the command lists all of it.`,
		Example: "  inbox verify /var/backups/inbox\n  inbox verify /var/backups/inbox --snapshot 20261125T220000.000Z",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			shown := newBar(cmd)
			found, err := inbox.VerifyBackup(cmd.Context(), given[0], snapshot, shown.progress)
			shown.end()
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				err = printJSON(cmd.OutOrStdout(), found)
			} else {
				err = tellVerified(cmd.OutOrStdout(), found)
			}
			if err == nil && !found.Intact() {
				err = fmt.Errorf("backup %s is damaged in %d places: take another one, and look at the disk", found.Name, found.Found)
			}
			return err
		},
	}
	addJSON(cmd)
	addSnapshot(cmd, &snapshot)
	return cmd
}

func addSnapshot(cmd *cobra.Command, snapshot *string) {
	cmd.Flags().StringVar(snapshot, "snapshot", "", "name of the backup in DIR (default: the newest)")
}

func tellVerified(out io.Writer, found *inbox.BackupVerified) error {
	for _, problem := range found.Problems {
		fmt.Fprintf(out, "  %s\n", problem)
	}
	if !found.Intact() {
		return nil
	}
	keys := fmt.Sprintf("its key opens %d sealed documents", found.Sealed)
	if !found.Keys {
		keys = "it has no secret key, so whether secrets open was not checked"
	}
	_, err := fmt.Fprintf(out, "Backup %s is intact: %s, %s, %s.\n", found.Name, counted(found.Rows, "row"), counted(found.Contents, "file"), keys)
	return err
}

func newRestore() *cobra.Command {
	var options inbox.RestoreOptions
	var report bool
	cmd := &cobra.Command{
		Use:   "restore DIR",
		Short: "Make a server of a backup",
		Long: `Makes a server of a backup: the configuration, unless the file is there already, the secret key, the rows and the files. The database
may be another kind than that of the backup: SQLite or PostgreSQL, by database_url in the configuration or by --database-url. It must be
empty. A backup of an older version is upgraded to the schema of this one. Stop the old server first: two servers would both act as the
agents. If the old server remains in use, give the new one another place for its files, too (--blob-url): each server deletes files to
which its own database does not refer.

Persons who were erased after the moment of the backup come back with it, unless their receipts are available: DIR/erasures.json, which
each backup into DIR and "inbox erase PERSON --receipts FILE" update, or the file of --erasures. The server erases them again when it
starts. A receipt names no one; the secret key opens it.

No server starts on an interrupted restore; run the command again to start over.

The backup does not know what the old server did afterwards. Replies that were waiting at that moment are sent again, and unanswered
messages are answered again, with the ids that the old server used: servers of the fediverse, A2A clients and bridges recognise them.
Readers of mail may see an answer twice. --hold-uncertain email holds such mails; "inbox deliveries retry ID" sends one.
"inbox restore --report" lists what may have been sent twice.`,
		Example: "  inbox restore /var/backups/inbox --config /etc/inbox/inbox.toml\n" +
			"  inbox restore /var/backups/inbox --database-url postgres://inbox@db.example/inbox --hold-uncertain email\n  inbox restore --report",
		Args: arguments(func(cmd *cobra.Command, given []string) error {
			if report {
				return cobra.NoArgs(cmd, given)
			}
			return cobra.ExactArgs(1)(cmd, given)
		}),
		RunE: func(cmd *cobra.Command, given []string) error {
			if report {
				return reportRestored(cmd)
			}
			if err := noDomain(cmd, "a backup has"); err != nil {
				return err
			}
			file, err := cmd.Flags().GetString("config")
			if err != nil {
				return err
			}
			if options.ConfigFile = file; file == "" {
				options.ConfigFile = defaultFile
			}

			shown := newBar(cmd)
			options.Directory, options.Environ, options.Progress = given[0], os.Environ(), shown.progress
			restored, err := inbox.Restore(cmd.Context(), options)
			shown.end()
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), restored)
			}
			return tellRestored(cmd.OutOrStdout(), restored)
		},
	}
	addJSON(cmd)
	addSnapshot(cmd, &options.Snapshot)
	cmd.Flags().StringVar(&options.BlobURL, "blob-url", "", "place of the files of the new server, if the configuration is written from the backup (\"file\" = in its data directory)")
	cmd.Flags().StringVar(&options.DatabaseURL, "database-url", "", "database of the new server, if the configuration is written from the backup")
	cmd.Flags().StringVar(&options.DataDir, "data-dir", "", "data directory of the new server, if the configuration is written from the backup")
	cmd.Flags().StringSliceVar(&options.Hold, "hold-uncertain", nil, "channels (such as email, or all) whose possibly repeated deliveries wait for you")
	cmd.Flags().StringVar(&options.Erasures, "erasures", "", "file with receipts of erasures that are done again (default: erasures.json in DIR, if it is there)")
	cmd.Flags().BoolVar(&report, "report", false, "list what the last restore of this server may have sent twice")
	return cmd
}

func tellRestored(out io.Writer, report inbox.RestoreReport) error {
	for _, one := range report.Domains {
		fmt.Fprintf(out, "Restored %s from backup %s: %s, %s, as of %s.\n", one.Domain, one.Backup, counted(one.Rows, "row"), counted(one.Contents, "file"), one.Moment.Local().Format(time.RFC3339))
		if one.Turns+one.Deliveries > 0 {
			fmt.Fprintf(out, "  %d messages had no answer yet and %d deliveries were not made at that moment: they are done again, with the same ids (%d deliveries are held).\n",
				one.Turns, one.Deliveries, one.Held)
		}
	}
	switch erasures := report.Erasures; {
	case erasures == nil:
		fmt.Fprintln(out, "No receipts of erasures were found: data of persons who were erased after that moment is restored (--erasures FILE).")
	case erasures.Begun > 0:
		fmt.Fprintf(out, "  %d persons were erased after that moment: the server erases them again when it starts; see: inbox erase --list\n", erasures.Begun)
	}
	if report.WroteConfig {
		fmt.Fprintf(out, "Wrote %s.\n", report.ConfigFile)
	}
	if report.WithoutKey {
		fmt.Fprintln(out, "The secret key is not in the backup: put secret.key into data_dir (or where secret_key_file says) before the server starts.")
	}
	for _, name := range report.Elsewhere {
		fmt.Fprintf(out, "Still missing, named by the configuration: %s\n", name)
	}
	if len(report.Environment) > 0 {
		fmt.Fprintf(out, "The old server had the variables %s.\n", strings.Join(report.Environment, " "))
	}
	_, err := fmt.Fprintf(out, "See what may be sent twice: inbox restore --report --config %[1]s\nThen start it:              inbox serve --config %[1]s\n", report.ConfigFile)
	return err
}

// reportRestored lists what may have been sent twice, of all domains or of one.
func reportRestored(cmd *cobra.Command) error {
	domains, err := loadEach(cmd)
	if err != nil {
		return err
	}

	type listed struct {
		inbox.Restored
		Uncertain []inbox.Uncertain `json:"uncertain"`
	}
	lists := []listed{}
	for _, config := range domains {
		list := listed{Uncertain: []inbox.Uncertain{}}
		restored, err := inbox.RestoreReportOf(config, func(one inbox.Uncertain) error {
			list.Uncertain = append(list.Uncertain, one)
			return nil
		})
		if err != nil {
			return err
		}
		list.Restored = restored
		lists = append(lists, list)
	}
	if wantsJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), exchange.NewList(lists, ""))
	}

	for _, list := range lists {
		fmt.Fprintf(cmd.OutOrStdout(), "%s was restored on %s from backup %s, as of %s.\n", list.Domain, when(list.At), list.Backup, when(list.Moment))
		rows := make([][]string, 0, len(list.Uncertain))
		for _, one := range list.Uncertain {
			state := one.State
			if one.Held {
				state += " (held)"
			}
			rows = append(rows, []string{one.Kind, one.ID, state, one.Channel, one.Agent, one.To, when(one.At)})
		}
		err := printTable(cmd.OutOrStdout(), "Nothing was waiting at that moment.", []string{"WHAT", "ID", "STATE THEN", "CHANNEL", "AGENT", "WITH", "SINCE"}, rows)
		if err != nil {
			return err
		}
	}
	return nil
}

func newMigrate() *cobra.Command {
	var options inbox.MoveOptions
	var toFile string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Upgrade the schema of the database, or move it to PostgreSQL",
		Long: `Upgrades the databases of all domains to the schema of this version and prints it. serve does the same at start; several nodes may start
together. Afterwards no program from before the upgrade starts on them. Other commands refuse an older schema.

With --to or --to-file it moves a server from SQLite to PostgreSQL. A password in --to is visible in the process list and in the history of the
shell: --to-file reads the URL from a file, or from standard input ("-"). The command tells the running server to end, as for SIGTERM; peers find
no server meanwhile and try again later, as during any restart. Then it copies everything that the server has acknowledged, marks the SQLite file
as moved, so that no server starts on it any more, and writes database_url into the configuration. Start the server again afterwards
(starts before the end of the move are refused). Files and keys stay where they are. If the command is interrupted, run it again.
Until the file is marked nothing is changed, and you can start the server as before.

The other direction is a backup and a restore.`,
		Example: "  inbox migrate\n  inbox migrate --to-file /run/secrets/database-url\n  inbox migrate --to postgres://inbox@db.example/inbox",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if toFile != "" {
				to, err := readAddress(cmd.InOrStdin(), toFile)
				if err != nil {
					return err
				}
				options.To = to
			}
			if options.To != "" {
				return moveDatabase(cmd, options)
			}
			return upgradeSchemas(cmd)
		},
	}
	addJSON(cmd)
	cmd.Flags().StringVar(&options.To, "to", "", "move the server to this PostgreSQL database, which must be empty")
	cmd.Flags().StringVar(&toFile, "to-file", "", "read the URL of --to from this file (\"-\" = standard input), so that no one sees its password")
	cmd.MarkFlagsMutuallyExclusive("to", "to-file")
	cmd.Flags().DurationVar(&options.Wait, "wait", 2*time.Minute, "how long the running server may take to end")
	return cmd
}

// schemaOf is the schema version of one domain's database.
type schemaOf struct {
	Domain  string `json:"domain"`
	Version int64  `json:"schema_version"`
}

// upgradeSchemas upgrades the database of every domain, or of the one that the command line names.
func upgradeSchemas(cmd *cobra.Command) error {
	domains, err := loadEach(cmd)
	if err != nil {
		return err
	}

	upgraded := make([]schemaOf, 0, len(domains))
	for _, config := range domains {
		version, err := inbox.MigrateDatabase(cmd.Context(), config)
		if err != nil {
			return err
		}
		upgraded = append(upgraded, schemaOf{config.Domain, version})
		if !wantsJSON(cmd) {
			fmt.Fprintf(cmd.OutOrStdout(), "The database of %s is at schema version %d.\n", config.Domain, version)
		}
	}
	if wantsJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), exchange.NewList(upgraded, ""))
	}
	return nil
}

// maxAddress bounds the URL of a database in bytes.
const maxAddress = 8 << 10

// readAddress reads a URL from a file that has nothing else, or from the standard input.
func readAddress(in io.Reader, name string) (string, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return "", usageError{fmt.Errorf("--to-file: %w", err)}
		}
		defer func() { _ = file.Close() }() // it was read only
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, maxAddress+1))
	if err != nil {
		return "", fmt.Errorf("--to-file: read %s: %w", name, err)
	}
	address := strings.TrimSpace(string(content))
	if address == "" || len(content) > maxAddress || strings.ContainsAny(address, "\r\n") {
		return "", usageError{fmt.Errorf("--to-file: %s must have one line, the URL of the new database, and nothing else", name)}
	}
	return address, nil
}

func moveDatabase(cmd *cobra.Command, options inbox.MoveOptions) error {
	if err := noDomain(cmd, "a move takes"); err != nil {
		return err
	}
	config, err := loadWhole(cmd)
	if err != nil {
		return err
	}
	node, err := newRunningNode(config, "")
	if err != nil {
		return err
	}

	shown := newBar(cmd)
	options.Progress, options.Stop = shown.progress, node.Stop
	report, err := inbox.MoveDatabase(cmd.Context(), config, options)
	shown.end()
	if err != nil {
		return err
	}
	if wantsJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), report)
	}

	out := cmd.OutOrStdout()
	for _, one := range report.Domains {
		if one.Before {
			fmt.Fprintf(out, "%s was copied to %s before.\n", one.Domain, one.To)
			continue
		}
		fmt.Fprintf(out, "Moved %s: %d rows to %s.\n", one.Domain, one.Rows, one.To)
	}
	if report.Written != "" {
		fmt.Fprintf(out, "Wrote database_url into %s. The old database is marked and is not served any more.\n", report.Written)
	} else {
		fmt.Fprintf(out, "Write this yourself, with the password (%s):\n  %s\n", report.Problem, report.Line)
	}
	_, err = fmt.Fprintf(out, "No server ran for %s. Start it again.\n", report.Down.Round(100*time.Millisecond))
	return err
}
