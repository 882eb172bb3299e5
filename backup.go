package inbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"inbox/engine/backup"
	"inbox/engine/storage"
	"inbox/engine/store"
	"inbox/internal/blob"
	"inbox/internal/config"
	"inbox/internal/disk"
	"inbox/internal/fault"
	"inbox/operator"
	"inbox/operator/setup"
)

type (
	// BackupReport says what a backup wrote.
	BackupReport = backup.Report
	// BackupProgress says how far long work is.
	BackupProgress = backup.Progress
	// BackupVerified says what a check of a backup found.
	BackupVerified = backup.Verified
	// Restored says what a restore did.
	Restored = backup.Restored
	// Uncertain is what may have been sent after the moment of a backup.
	Uncertain = backup.Uncertain
	// MovedDatabase says what a move copied.
	MovedDatabase = backup.Moved
)

// BackupOptions say what goes into a backup, and where.
type BackupOptions struct {
	Directory   string
	WithoutKeys bool // leave out the secret key and the operator's first token
	Keep        int  // complete backups that stay; 0 = all
	Progress    func(BackupProgress)
}

// domainsOf are the settings of all domains, that at the top first.
func domainsOf(config *Config) []*Config { return append([]*Config{config}, config.Hosted...) }

// Backup writes a whole copy of a server, which may run meanwhile, into a directory. The schema of the database stays as it is.
func Backup(ctx context.Context, config *Config, o BackupOptions) (report BackupReport, err error) {
	if len(config.Hosted) == 0 && config.HostedBy != "" {
		return report, errors.New("a backup is one of all domains")
	}
	options := backup.Options{
		Directory: o.Directory, Program: Version, Keys: !o.WithoutKeys, Keep: o.Keep, Progress: o.Progress, Elsewhere: config.NamedFiles(),
	}
	for _, variable := range config.Environment {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "INBOX_") {
			options.Environment = append(options.Environment, name)
		}
	}
	if options.Files, err = smallFiles(config, o.WithoutKeys); err != nil {
		return report, err
	}

	sealed := storageOptions(config, slog.Default()).Sealed
	options.Proof = func(key []byte) (backup.Proof, error) { return storage.NewProof(key, sealed) }

	var closing closers
	defer func() { err = errors.Join(err, closing.Close()) }()
	for _, domain := range domainsOf(config) {
		as := storageOptions(domain, slog.Default())
		as.AsFound = true
		found, err := store.Look(ctx, as.Store(nil))
		if err == nil && !found.Used {
			err = fmt.Errorf("the database of %s (%s) has nothing yet: start the server first, or correct database_url or data_dir", domain.Domain, domain.DatabaseURL)
		}
		if err != nil {
			return report, err
		}

		opened, err := storage.Open(ctx, as, nil)
		if err != nil {
			return report, err
		}
		closing = append(closing, opened.Close)
		blobs, err := openBlobs(domain, nil)
		if err != nil {
			return report, err
		}
		options.Sources = append(options.Sources, backup.Source{Domain: domain.Domain, Store: opened, Blobs: blobs})
	}
	report, err = backup.Write(ctx, options)
	if err == nil {
		err = keepReceipts(ctx, o.Directory, domainsOf(config), options.Sources, report)
	}
	return report, err
}

// keepReceipts puts the receipts of erasures beside the backups: an older one is restored without the persons.
func keepReceipts(ctx context.Context, directory string, domains []*Config, sources []backup.Source, report BackupReport) error {
	for i, domain := range domains {
		if !slices.ContainsFunc(report.Domains[i].Tables, func(table backup.Table) bool { return table.Table == "erasures" }) {
			continue // the schema is older than erasures
		}
		known := operator.KnownErasures{Store: sources[i].Store, Domain: domain.Domain}
		if _, err := known.Keep(ctx, filepath.Join(directory, operator.ReceiptsFile)); err != nil {
			return fmt.Errorf("the backup is complete, but not the receipts of erasures beside it: %w", err)
		}
	}
	return nil
}

// closers are what is closed together.
type closers []func() error

// Close closes all, the last one first.
func (c closers) Close() (err error) {
	for _, one := range slices.Backward(c) {
		err = errors.Join(err, one())
	}
	return err
}

// smallFiles are the configuration, the secret key and the operator's first token.
func smallFiles(config *Config, withoutKeys bool) (files []backup.SmallFile, err error) {
	if config.File != "" {
		content, err := os.ReadFile(config.File)
		if err != nil {
			return nil, fmt.Errorf("configuration file: %w", err)
		}
		files = append(files, backup.SmallFile{Name: backup.ConfigFile, Content: content})
	}
	if withoutKeys {
		return files, nil
	}

	key := storage.KeyFile(config.DataDir, config.SecretKeyFile)
	content, err := os.ReadFile(key)
	if err != nil {
		return nil, fmt.Errorf("secret_key_file: cannot read %s: %w; without it a backup opens no secrets: --without-keys makes one like that", key, disk.Cause(err))
	}
	files = append(files, backup.SmallFile{Name: backup.KeyFile, Content: content})
	content, err = os.ReadFile(filepath.Join(config.DataDir, operator.AdminTokenFile))
	switch {
	case err == nil:
		files = append(files, backup.SmallFile{Name: backup.TokenFile, Content: content})
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("data_dir: cannot read %s: %w", operator.AdminTokenFile, disk.Cause(err))
	}
	return files, nil
}

// VerifyBackup checks every byte of a backup; an empty snapshot is the newest.
func VerifyBackup(ctx context.Context, directory, snapshot string, progress func(BackupProgress)) (*BackupVerified, error) {
	sealed := storageOptions(config.Default(), slog.Default()).Sealed
	return backup.Verify(ctx, directory, snapshot, func(key []byte) (backup.Proof, error) { return storage.NewProof(key, sealed) }, progress)
}

// RestoreOptions say what is restored where.
type RestoreOptions struct {
	Directory, Snapshot string
	// ConfigFile is the configuration of the new server. Where it is not there yet it is written from the backup.
	ConfigFile string
	Environ    []string
	// DatabaseURL, DataDir and BlobURL replace those of the configuration that is written; empty = they stay.
	DatabaseURL, DataDir, BlobURL string
	// Hold are channels whose deliveries that may have been made before wait for the operator; "all" = every channel.
	Hold []string
	// Erasures is a file with receipts of erasures, which are done again where the backup does not know them. Empty = that beside the
	// backups, where there is one.
	Erasures string
	Progress func(BackupProgress)
}

// RestoreReport says what was restored.
type RestoreReport struct {
	Backup      string     `json:"backup"`
	Moment      time.Time  `json:"moment"`
	ConfigFile  string     `json:"config_file"`
	WroteConfig bool       `json:"wrote_config"`
	WithoutKey  bool       `json:"without_key,omitempty"` // there is no secret key: the server does not start before it is there
	Elsewhere   []string   `json:"elsewhere,omitempty"`   // files that the configuration names and that are not there
	Environment []string   `json:"environment,omitempty"` // variables that the old server had
	Domains     []Restored `json:"domains"`
	// Erasures say what became of receipts; nil = there was no file of them.
	Erasures *operator.RepeatedErasures `json:"erasures,omitempty"`
}

// Restore makes a server of a backup: configuration, secret key, databases and files. Nothing of it may be in use.
func Restore(ctx context.Context, o RestoreOptions) (report RestoreReport, err error) {
	manifest, err := backup.Read(o.Directory, o.Snapshot)
	if err != nil {
		return report, err
	}
	report = RestoreReport{Backup: manifest.Name, Moment: manifest.Moment, ConfigFile: o.ConfigFile, Environment: manifest.Environment}

	text, written, err := restoredConfig(o, manifest)
	if err != nil {
		return report, err
	}
	settings, err := config.LoadText(o.ConfigFile, text, o.Environ)
	if err != nil {
		return report, fmt.Errorf("the configuration does not fit this machine: %w\nWrite one that does as %s, and run the command again", err, o.ConfigFile)
	}

	receipts, err := receiptsFor(o)
	if err != nil {
		return report, err
	}
	if receipts != nil {
		report.Erasures = &operator.RepeatedErasures{}
	}

	options := backup.RestoreOptions{Directory: o.Directory, Manifest: manifest, Hold: o.Hold, Progress: o.Progress}
	var closing closers
	defer func() { err = errors.Join(err, closing.Close()) }()
	for i := range manifest.Domains {
		domain, known := settings.WithDomain(manifest.Domains[i].Domain)
		if !known {
			return report, fmt.Errorf("domain: the backup is of %s, which %s does not have: agents keep their addresses, so write the same domains",
				manifest.Domains[i].Domain, o.ConfigFile)
		}
		as := storageOptions(domain, slog.Default())
		options.Targets = append(options.Targets, backup.Target{
			Domain: domain.Domain, Store: as.Store(nil), Name: databaseName(domain), DataDir: domain.DataDir,
			Blobs: func() (blob.Backend, error) { return openBlobs(domain, nil) },
			Settle: func(ctx context.Context, opened *store.Store) error {
				return eraseAgain(ctx, domain, opened, receipts, report.Erasures)
			},
		})

		if err := os.MkdirAll(domain.DataDir, 0o700); err != nil {
			return report, fmt.Errorf("data_dir: cannot make %s: %w", domain.DataDir, disk.Cause(err))
		}
		if as.DatabaseURL == "sqlite" {
			lock, err := takeDirectory(domain.DataDir)
			if err != nil {
				return report, err
			}
			closing = append(closing, lock.Leave)
		}
	}

	if report.WithoutKey, err = restoreKey(o.Directory, manifest, settings); err != nil {
		return report, err
	}
	if report.Domains, err = backup.Restore(ctx, options); err != nil {
		return report, err
	}
	if err := restoreToken(o.Directory, manifest, settings); err != nil {
		return report, err
	}
	if written {
		if err := os.MkdirAll(filepath.Dir(o.ConfigFile), 0o750); err != nil {
			return report, err
		}
		if err := disk.WritePrivate(o.ConfigFile, text); err != nil {
			return report, fmt.Errorf("configuration file: %w", err)
		}
	}
	report.WroteConfig = written
	for _, name := range settings.NamedFiles() {
		if _, err := os.Stat(name); err != nil {
			report.Elsewhere = append(report.Elsewhere, name)
		}
	}
	return report, nil
}

// receiptsFor reads the receipts of erasures; nil = there are none.
func receiptsFor(o RestoreOptions) ([]operator.KeptReceipts, error) {
	file := o.Erasures
	if file == "" {
		file = filepath.Join(o.Directory, operator.ReceiptsFile)
	}
	receipts, err := operator.ReadReceipts(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && o.Erasures == "":
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("receipts of erasures: %w", disk.Cause(err))
	}
	return receipts, nil
}

// eraseAgain stores the erasures that the backup does not know; the server does them when it starts.
func eraseAgain(ctx context.Context, domain *Config, opened *store.Store, receipts []operator.KeptReceipts, sum *operator.RepeatedErasures) error {
	known := operator.KnownErasures{Store: opened, Domain: domain.Domain}
	done, err := known.Repeat(ctx, receipts, func(sealed string) ([]byte, error) {
		options := storageOptions(domain, slog.Default())
		if _, err := os.Stat(storage.KeyFile(options.DataDir, options.SecretKeyFile)); err != nil {
			return nil, fmt.Errorf("secret_key_file: the backup has no secret key, which opens them: put secret.key into data_dir first: %w", disk.Cause(err))
		}
		sealer, err := storage.OpenSealer(ctx, options, opened)
		if err != nil {
			return nil, err
		}
		return sealer.Vault().Open(ctx, operator.ErasureKeyNamespace, operator.ErasureKeyName, []byte(sealed))
	})
	if sum != nil {
		sum.Known, sum.Begun, sum.Nothing = sum.Known+done.Known, sum.Begun+done.Begun, sum.Nothing+done.Nothing
	}
	return err
}

func takeDirectory(directory string) (*disk.Lock, error) {
	lock, err := disk.Take(directory)
	if errors.Is(err, disk.ErrTaken) {
		return lock, fmt.Errorf("data_dir: an inbox serves %s: stop it, or name another directory", directory)
	}
	if err != nil {
		return lock, fmt.Errorf("data_dir: %w", disk.Cause(err))
	}
	return lock, nil
}

// restoredConfig is the configuration of the new server, and whether it has to be written.
func restoredConfig(o RestoreOptions, manifest *backup.Manifest) (text string, write bool, err error) {
	content, err := os.ReadFile(o.ConfigFile)
	if err == nil {
		if o.DatabaseURL != "" || o.DataDir != "" || o.BlobURL != "" {
			return "", false, fmt.Errorf("%s exists and is used as it is: write database_url, data_dir and blob_url into it, or name another file by --config", o.ConfigFile)
		}
		return string(content), false, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", false, fmt.Errorf("configuration file: %w", err)
	}

	content, found, err := manifest.Content(o.Directory, backup.ConfigFile)
	if err != nil {
		return "", false, err
	}
	if text = string(content); !found { // development mode had none, and nothing of it was written
		text = fmt.Sprintf("domain = %q\n\n[federation]\nallow_private = true\n", manifest.Domains[0].Domain)
	}
	for _, key := range o.unused() {
		if text, err = config.Unset(o.ConfigFile, text, key); err != nil {
			return "", false, err
		}
	}
	for key, value := range map[string]string{"database_url": o.DatabaseURL, "data_dir": o.DataDir, "blob_url": o.BlobURL} {
		if value == "" {
			continue
		}
		if text, err = config.SetTop(o.ConfigFile, text, key, value); err != nil {
			return "", false, err
		}
	}
	return text, true, nil
}

// unused are the keys of the old server that its new database and its new place for files have no use for.
func (o RestoreOptions) unused() (keys []string) {
	if o.DatabaseURL != "" {
		address, err := url.Parse(o.DatabaseURL)
		own := o.DatabaseURL == "sqlite"
		if err == nil && address.User != nil {
			_, own = address.User.Password()
		}
		if own {
			keys = append(keys, "database_password_file")
		}
	}
	if o.BlobURL != "" && !strings.HasPrefix(o.BlobURL, "s3://") {
		keys = append(keys, "blob.access_key", "blob.secret_key", "blob.secret_key_file")
	}
	return keys
}

// databaseName names a database as its operator finds it.
func databaseName(config *Config) string {
	if config.DatabaseURL == "sqlite" {
		return filepath.Join(config.DataDir, store.File)
	}
	return config.DatabaseURL.String()
}

// restoreKey puts the secret key in its place; missing = there is none afterwards.
func restoreKey(directory string, manifest *backup.Manifest, settings *Config) (missing bool, err error) {
	file := storage.KeyFile(settings.DataDir, settings.SecretKeyFile)
	there, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("secret_key_file: cannot read %s: %w", file, disk.Cause(err))
	}
	content, found, failed := manifest.Content(directory, backup.KeyFile)
	switch {
	case failed != nil:
		return false, failed
	case err == nil && found && strings.TrimSpace(string(there)) != strings.TrimSpace(string(content)):
		return false, fmt.Errorf("secret_key_file: %s has another key than the backup, which would open nothing: move it away, or name another file", file)
	case err == nil:
		return false, nil
	case !found:
		return true, nil
	}

	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return false, fmt.Errorf("secret_key_file: %w", disk.Cause(err))
	}
	if err := disk.WritePrivate(file, string(content)); err != nil {
		return false, fmt.Errorf("secret_key_file: cannot write %s: %w", file, disk.Cause(err))
	}
	return false, nil
}

// restoreToken puts the operator's first token in its place, where none is.
func restoreToken(directory string, manifest *backup.Manifest, settings *Config) error {
	file := filepath.Join(settings.DataDir, operator.AdminTokenFile)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	content, found, err := manifest.Content(directory, backup.TokenFile)
	if err != nil || !found {
		return err
	}
	return disk.WritePrivate(file, string(content))
}

// RestoreReportOf reads what the last restore of a domain may have made twice.
func RestoreReportOf(config *Config, visit func(Uncertain) error) (Restored, error) {
	return backup.ReadReport(config.DataDir, visit)
}

// MoveOptions say where the databases of a server go.
type MoveOptions struct {
	To       string // postgres://…
	Progress func(BackupProgress)
	// Stop lets the server end that has the data directory. It is called until the directory is free.
	Stop func(ctx context.Context) error
	// Wait bounds the time until the server has ended.
	Wait time.Duration
}

// MoveReport says what was moved.
type MoveReport struct {
	To      string          `json:"to"`
	Domains []MovedDatabase `json:"domains"`
	Down    time.Duration   `json:"-"`                      // from the moment at which nothing was accepted any more
	Written string          `json:"config_file,omitempty"`  // that has the new database_url
	Line    string          `json:"write_this,omitempty"`   // what the operator writes; without its password
	Problem string          `json:"not_written,omitempty"`  // why the file was not changed
	Seconds float64         `json:"seconds_without_server"` // Down
}

// MoveDatabase moves a server from SQLite to PostgreSQL: the server ends, everything that it has acknowledged is copied, the old database is
// marked as moved, and database_url is written. It can be run again after it broke off.
func MoveDatabase(ctx context.Context, current *Config, o MoveOptions) (report MoveReport, err error) {
	switch {
	case current.DatabaseURL.Reveal() == o.To:
		return report, errors.New("--to: database_url is this one already: nothing is to be moved; start the server")
	case current.DatabaseURL != "sqlite":
		return report, errors.New("--to: only a server on SQLite is moved; for the other direction make a backup and restore it with database_url = \"sqlite\"")
	}
	if !strings.HasPrefix(o.To, "postgres://") && !strings.HasPrefix(o.To, "postgresql://") {
		return report, errors.New(`--to: must begin with "postgres://"`)
	}
	const variable = "INBOX_DATABASE_URL="
	environment := slices.DeleteFunc(slices.Clone(current.Environment), func(one string) bool { return strings.HasPrefix(one, variable) })
	target, err := config.Load(current.File, append(environment, variable+o.To))
	if err != nil {
		return report, err
	}
	report.To = target.DatabaseURL.String()

	// What is wrong with the target is found before anything is stopped.
	for _, domain := range domainsOf(target) {
		if _, err := store.Look(ctx, storageOptions(domain, slog.Default()).Store(nil)); err != nil {
			return report, fmt.Errorf("%s cannot be opened: %w", domain.DatabaseURL, err)
		}
	}

	begun := time.Now()
	closing, err := takeAll(ctx, domainsOf(current), o)
	defer func() { err = errors.Join(err, closing.Close()) }()
	if err != nil {
		return report, err
	}

	options := backup.MoveOptions{Progress: o.Progress}
	for i, domain := range domainsOf(current) {
		if _, err := os.Stat(filepath.Join(domain.DataDir, store.File)); err != nil {
			return report, fmt.Errorf("data_dir: there is no database in %s: nothing is to be moved; write database_url = %q", domain.DataDir, report.To)
		}
		opened, err := store.Open(ctx, storageOptions(domain, slog.Default()).Store(nil))
		if err != nil {
			return report, err
		}
		closing = append(closing, opened.Close)
		to := domainsOf(target)[i]
		options.From = append(options.From, backup.MoveSource{Domain: domain.Domain, Store: opened, Name: databaseName(domain)})
		options.Targets = append(options.Targets, backup.Target{
			Domain: domain.Domain, Store: storageOptions(to, slog.Default()).Store(nil), Name: to.DatabaseURL.String(), DataDir: to.DataDir,
		})
	}
	if report.Domains, err = backup.Move(ctx, options); err != nil {
		return report, err
	}

	if err := writeDatabase(current, o.To); err == nil {
		report.Written = current.File
	} else {
		report.Problem, report.Line = err.Error(), "database_url = "+config.Quote(report.To)
		if current.File == "" { // a file with this line alone would end the development mode, in which the server was used
			report.Line = "INBOX_DATABASE_URL=" + report.To
		}
	}
	report.Down = time.Since(begun)
	report.Seconds = report.Down.Seconds()
	return report, nil
}

// writeDatabase writes the new address into the configuration.
func writeDatabase(current *Config, to string) error {
	for _, variable := range current.Environment {
		if strings.HasPrefix(variable, "INBOX_DATABASE_URL=") {
			return errors.New("INBOX_DATABASE_URL is set and wins over the file: change it there")
		}
	}
	if current.File == "" {
		return errors.New("there is no configuration file; set the variable")
	}
	return setup.AgentFile{Path: current.File, Environ: current.Environment}.SetTop("database_url", to)
}

// takeAll takes the data directories of all domains, and lets the server end that has them.
func takeAll(ctx context.Context, domains []*Config, o MoveOptions) (taken closers, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	const look, askAgain = 10 * time.Millisecond, 3 * time.Second
	asked := time.Time{}
	for _, domain := range domains {
		for {
			lock, err := disk.Take(domain.DataDir)
			if err == nil {
				taken = append(taken, lock.Leave)
				break
			}
			if !errors.Is(err, disk.ErrTaken) {
				return taken, fmt.Errorf("data_dir: %w", disk.Cause(err))
			}

			if time.Since(asked) > askAgain {
				if o.Progress != nil {
					o.Progress(BackupProgress{Step: "the server ends what it has begun"})
				}
				// One that is ending answers no more.
				if err := o.Stop(ctx); err != nil && asked.IsZero() {
					return taken, fmt.Errorf("a server runs on %s and cannot be asked to end: %w; stop it yourself (systemctl stop inbox) and run the command again", domain.DataDir, err)
				}
				asked = time.Now()
			}
			select {
			case <-ctx.Done():
				return taken, fault.Wrap(fault.Unavailable, "the server did not end in time: stop it yourself and run the command again; nothing was moved", ctx.Err())
			case <-time.After(look):
			}
		}
	}
	return taken, nil
}
