// Package doctor looks whether what a server needs of the world is there: its database, listeners, certificates and pages, the back ends
// of its agents, the DNS records that mail needs. Of each thing that does not work it says what to do. It changes nothing.
package doctor

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/email"
	"inbox/engine/store"
	"inbox/engine/store/database"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clock"
	"inbox/internal/config"
	"inbox/internal/disk"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// Finding is what was found of one thing.
type Finding struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok, warn or fail
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"` // what to add or change

	ToolNames map[string]string `json:"tool_names,omitempty"` // names of an agent's tools for models, by their canonical names; those that differ
}

// Failed reports whether it does not work.
func (f Finding) Failed() bool { return f.Status == email.FindingFail }

// Options say how far the doctor goes.
type Options struct {
	DNSOnly bool   // only the records
	Probe   string // a domain to whose mail server a connection shows that port 25 is open outwards; empty = no probe
}

// Times of the doctor's own connections.
const (
	patience         = 10 * time.Second
	certificateSoon  = 14 * 24 * time.Hour
	clockTolerance   = 2 * time.Minute
	longestGreeting  = 512
	submissionAdvice = `use a provider's relay: mail.mode = "smarthost"`
)

// Doctor looks at a server of a configuration and at the world around it. All fields are required.
type Doctor struct {
	Config  *config.Config
	Current func() *config.Config // as it is in force, where a running server may have read it again
	Store   *store.Store
	Files   func() (exchange.Files, error) // opens the blob store

	Keys  func(ctx context.Context) (ids []string, err error)         // the public keys with which the server vouches for its agents
	Vault func(ctx context.Context) (vault email.KeyState, err error) // opens the documents with private keys

	SecretKeyFile string                                            // with the key that seals them
	TokenFile     string                                            // with the operator's first token
	Running       func() (client *http.Client, base string)         // asks the running server what only operators may ask
	UserAgent     string                                            // of its requests
	Policies      func(client *safehttp.Client) email.PolicyFetcher // MTA-STS policies
}

// examiner looks at single things, and keeps what it found.
type examiner struct {
	doctor   *Doctor
	config   *config.Config
	resolver *safehttp.Resolver
	client   *safehttp.Client
	findings []Finding
}

// look is one thing that the doctor looks at. Where one waits for a server to become well, those without a failure are not repeated.
type look struct {
	do       func(ctx context.Context, d *examiner)
	findings []Finding
	done     bool
}

// examination is what is looked at, in order.
type examination struct {
	examiner *examiner
	looks    []*look
}

// Examine looks once at everything that a server of this configuration needs of the world. It changes nothing.
func (d *Doctor) Examine(ctx context.Context, options Options) ([]Finding, error) {
	e, err := d.examination(ctx, options)
	if err != nil {
		return nil, err
	}
	return e.round(ctx), nil
}

// Pauses between two looks of ExamineUntil: the first one, and the longest.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// ExamineUntil looks again at what failed until nothing does, or until the time is over, and returns the last findings. Progress is told
// all findings after each look that found a failure, and when the next one comes.
func (d *Doctor) ExamineUntil(ctx context.Context, options Options, limit time.Duration, progress func(found []Finding, next time.Duration)) ([]Finding, error) {
	e, err := d.examination(ctx, options)
	if err != nil {
		return nil, err
	}

	end := time.Now().Add(limit)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		found := e.round(ctx)
		if Unwell(found) == nil || !time.Now().Add(pause).Before(end) {
			return found, nil
		}
		progress(found, pause)
		if err := clock.Sleep(ctx, pause); err != nil {
			return found, err
		}
	}
}

// round looks at what is not done and returns what was found of everything.
func (e *examination) round(ctx context.Context) (all []Finding) {
	for _, one := range e.looks {
		if !one.done {
			e.examiner.findings = nil
			one.do(ctx, e.examiner)
			one.findings = e.examiner.findings
			one.done = Unwell(one.findings) == nil
		}
		all = append(all, one.findings...)
	}
	return all
}

func (d *Doctor) examination(ctx context.Context, options Options) (*examination, error) {
	published, err := d.published(ctx)
	if err != nil && options.DNSOnly {
		return nil, err
	}

	e := &examination{examiner: d.examiner(d.Config)}
	add := func(do func(ctx context.Context, d *examiner)) { e.looks = append(e.looks, &look{do: do}) }
	records := func(ctx context.Context, d *examiner) { d.records(ctx, published) }
	if options.DNSOnly {
		add(records)
		add(func(ctx context.Context, d *examiner) { d.apex(ctx) })
		return e, nil
	}

	if err != nil {
		add(func(_ context.Context, d *examiner) {
			d.say("keys", email.FindingFail, fault.InWords(err), "put the file of secret_key_file back, from a backup or from another node")
		})
	}
	add(func(ctx context.Context, d *examiner) { d.database(ctx) })
	add(func(ctx context.Context, d *examiner) { d.pages(ctx); d.log() })
	add(func(ctx context.Context, d *examiner) { d.files(ctx) })
	add(func(_ context.Context, d *examiner) { d.disk(); d.permissions(); d.clock(); d.orphans() })
	add(func(ctx context.Context, d *examiner) { d.listeners(ctx) })
	add(func(ctx context.Context, d *examiner) { d.listensAlone(); d.ports(ctx) })
	add(func(_ context.Context, d *examiner) { d.certificate(published) })
	add(func(ctx context.Context, d *examiner) { d.discovery(ctx) })
	add(func(ctx context.Context, d *examiner) { d.apex(ctx) })
	add(func(ctx context.Context, d *examiner) { d.itself(ctx) })
	add(func(ctx context.Context, d *examiner) { d.proxy(ctx) })
	for i := range d.Config.Agents {
		add(func(ctx context.Context, d *examiner) { d.backEnd(ctx, &d.config.Agents[i]) })
		add(func(ctx context.Context, d *examiner) { d.tools(ctx, &d.config.Agents[i]) })
	}

	for _, to := range d.Config.Operator.Addresses() {
		add(func(ctx context.Context, d *examiner) { d.notify(ctx, to) })
	}

	switch {
	case e.examiner.local():
		add(func(_ context.Context, d *examiner) {
			d.say("DNS", email.FindingOK, "not looked at: "+d.config.Domain+" is a name of this machine alone; see: inbox dns check", "")
		})
	case err == nil:
		add(records)
		if published != nil {
			add(func(ctx context.Context, d *examiner) { d.policyFile(ctx, published); d.dnssec(ctx) })
			add(func(ctx context.Context, d *examiner) { d.outwards(ctx, options.Probe) })
			add(func(ctx context.Context, d *examiner) { d.ownMail(ctx, published) })
		}
	}
	return e, nil
}

// examiner makes one that looks at a configuration.
func (d *Doctor) examiner(c *config.Config) *examiner {
	e := &examiner{doctor: d, config: c, resolver: safehttp.NewResolver(c.DNS.Resolver)}
	e.client = safehttp.New(safehttp.Options{
		AllowPrivate: c.Federation.AllowPrivate, MetadataAddresses: c.Federation.MetadataAddresses, Resolver: e.resolver, UserAgent: d.UserAgent, Timeout: patience,
	}).Trusting(ownPlaces(c)...)
	return e
}

// local reports whether no other machine knows the domain.
func (d *examiner) local() bool {
	host := identity.HostOf(d.config.Domain)
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return d.config.Development || host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && address.IsLoopback()
}

// ownPlaces are the addresses of this server, which may be private.
func ownPlaces(config *config.Config) []string {
	var places []string
	if !strings.HasPrefix(config.HTTP.Listen, "unix:") {
		places = append(places, config.HTTP.Listen)
	}
	for _, text := range []string{config.PublicURL, "https://" + config.Domain} {
		if u, err := url.Parse(text); err == nil {
			port := u.Port()
			if port == "" {
				port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
			}
			places = append(places, net.JoinHostPort(u.Hostname(), port))
		}
	}
	return places
}

func (d *examiner) say(name, status, detail, remedy string) {
	d.findings = append(d.findings, Finding{Name: name, Status: status, Detail: detail, Remedy: remedy})
}

// orphans names domains that are in no table [[domains]] any more and whose data is still there.
func (d *examiner) orphans() {
	const name = "domains"
	left, err := d.config.OrphanedDomains()
	if err != nil {
		d.say(name, email.FindingWarn, err.Error(), "make the directory domains in data_dir readable")
	}
	for _, one := range left {
		d.say(name, email.FindingWarn, "the data of "+one.Domain+", which is not in the settings, is in "+one.Directory+"; only [retention] removes it, and messages that had not ended stay",
			"write its table [[domains]] again, or delete its data with: inbox domains remove "+one.Domain+" --erase")
	}
}

func (d *examiner) records(ctx context.Context, published *email.Published) {
	if published == nil {
		d.say("email", email.FindingOK, "off (smtp.listen is empty)", "")
		return
	}
	for _, one := range email.CheckRecords(ctx, d.resolver, *published) {
		d.say(one.Name, one.Status, one.Detail, one.Remedy)
	}
}

func (d *examiner) database(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	version, err := d.doctor.Store.SchemaVersion(ctx)
	if err != nil {
		d.say("database", email.FindingFail, fault.InWords(err), "start the database or correct database_url")
		return
	}

	d.say("database", email.FindingOK, d.config.DatabaseURL.String()+", schema "+strconv.FormatInt(version, 10), "")
	if offset, err := d.doctor.Store.ClockOffset(ctx); err == nil && offset.Abs() > store.MaxClockOffset {
		d.say("clock", email.FindingWarn, "this machine's clock differs by "+offset.Round(time.Millisecond).String()+" from the database's",
			"let both keep time with NTP")
	}
	d.replication(ctx)
	d.lostWork(ctx)
}

// pagesPatience bounds the examination of all pages.
const pagesPatience = 2 * time.Minute

// pages says whether the pages of a SQLite database are whole.
func (d *examiner) pages(ctx context.Context) {
	const name = "database pages"
	ctx, cancel := context.WithTimeout(ctx, pagesPatience)
	defer cancel()
	switch problems, able, err := d.doctor.Store.Examine(ctx); {
	case !able:
		return // PostgreSQL; docs/operating.md says how to check one
	case ctx.Err() != nil:
		d.say(name, email.FindingWarn, "not all were read within "+pagesPatience.String(), "run: sqlite3 "+database.Files(d.config.DataDir)[0]+" 'PRAGMA quick_check'")
	case err != nil:
		d.say(name, email.FindingWarn, fault.InWords(err), "read the log")
	case len(problems) > 0:
		d.say(name, email.FindingFail, fmt.Sprintf("the database is damaged: %s", strings.Join(problems[:min(len(problems), 3)], "; ")),
			"stop the server, keep a copy of the files, and restore the newest backup with inbox restore")
	default:
		d.say(name, email.FindingOK, "PRAGMA quick_check finds no damage", "")
	}
}

// log says whether the write-ahead log of a SQLite database is larger than a server leaves it.
func (d *examiner) log() {
	if d.config.DatabaseURL.Reveal() != "sqlite" {
		return
	}
	const name = "database log"
	size := database.LogSize(d.config.DataDir)
	if size > database.LogWarning {
		d.say(name, email.FindingWarn, fmt.Sprintf("the write-ahead log has %d MiB: a reader of an old state does not end", size>>20), "end programs that have "+database.Files(d.config.DataDir)[0]+" open for long, such as a shell of SQLite; the log shrinks by itself then")
		return
	}
	d.say(name, email.FindingOK, fmt.Sprintf("the write-ahead log is smaller than %d MiB", database.LogWarning>>20), "")
}

// lostAfter is how long a row may be without its job before the doctor names it. A running server queues it again within minutes.
const lostAfter = 10 * time.Minute

// lostWork says whether messages or deliveries wait for jobs that are gone.
func (d *examiner) lostWork(ctx context.Context) {
	const name = "jobs"
	switch count, err := d.doctor.Store.CountLost(ctx, time.Now().Add(-lostAfter)); {
	case err != nil:
		d.say(name, email.FindingWarn, fault.InWords(err), "read the log")
	case count > 0:
		d.say(name, email.FindingFail, fmt.Sprintf("%d messages, calls, deliveries or notices wait and have no job", count),
			"start a server of this version: it queues them again within minutes and logs each; if one runs, read its log")
	default:
		d.say(name, email.FindingOK, "every waiting message and delivery has its job", "")
	}
}

// replication says what a failover of the database would lose.
func (d *examiner) replication(ctx context.Context) {
	const name, remedy = "replication", "name the standbys in synchronous_standby_names of the primary, with synchronous_commit = on, and reload it"
	found, has, err := d.doctor.Store.Replication(ctx)
	switch {
	case !has:
		return
	case err != nil:
		d.say(name, email.FindingWarn, fault.InWords(err), "let this role read pg_stat_replication")
	case !found.Seen:
		d.say(name, email.FindingWarn, "this role may not see whether a synchronous standby is connected", "GRANT pg_read_all_stats to the role of database_url")
	case found.Synchronous:
		d.say(name, email.FindingOK, "a synchronous standby has what is acknowledged: "+standbysInWords(found.Standbys), "")
	case found.Demanded:
		d.say(name, email.FindingFail, "commits wait for a synchronous standby, and none is connected"+connected(found.Standbys)+"; callers are told after 30 seconds that the outcome is unknown",
			"start a standby that synchronous_standby_names names")
	case found.Required:
		d.say(name, email.FindingFail, "nothing is stored: PostgreSQL waits for no synchronous standby, and database.require_synchronous demands one"+connected(found.Standbys), remedy)
	case len(found.Standbys) > 0:
		d.say(name, email.FindingWarn, "the standbys are asynchronous: a failover loses what was acknowledged in the last moments"+connected(found.Standbys), remedy)
	default:
		d.say(name, email.FindingOK, "no standby: what is acknowledged is on one server", "")
	}
	if has && err == nil && !found.Primary {
		d.say("primary", email.FindingWarn, "the server does not say on which timeline it is, so a former primary is not recognised",
			"let the role of database_url execute pg_current_wal_lsn and pg_walfile_name, or make sure that a former primary takes no writes")
	}
}

// connected lists standbys in brackets, if there are any.
func connected(standbys []database.Standby) string {
	if len(standbys) == 0 {
		return ""
	}
	return " (" + standbysInWords(standbys) + ")"
}

// standbysInWords lists standbys with their state and what they do not have yet.
func standbysInWords(standbys []database.Standby) string {
	texts := make([]string, len(standbys))
	for i, one := range standbys {
		texts[i] = fmt.Sprintf("%s %s, %d KiB behind", one.Name, one.State, one.Behind>>10)
	}
	return strings.Join(texts, "; ")
}

// files asks the blob store for a file that it does not have. A bucket that is down refuses mail with files, and nothing else shows it.
func (d *examiner) files(ctx context.Context) {
	const name, remedy = "files", "start the store that blob_url names, or correct blob_url, its region or its credentials"
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	place := "in the bucket of blob_url"
	if kept, err := d.config.BlobStore(); err == nil && kept.Directory != "" {
		place = "in " + kept.Directory
	}

	opened, err := d.doctor.Files()
	if err == nil {
		var file io.ReadCloser
		if file, err = opened.Open(ctx, fmt.Sprintf("%x", sha256.Sum256([]byte(rand.Text())))); err == nil {
			err = file.Close()
		}
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		d.say(name, email.FindingFail, "mail with files is refused for now, because they cannot be kept "+place+": "+fault.InWords(err), remedy)
		return
	}
	d.say(name, email.FindingOK, "they are "+place, "")
}

// disk looks at the room that data_dir has.
func (d *examiner) disk() {
	guard := disk.NewGuard(disk.Options{Directory: d.config.DataDir, Keep: int64(d.config.Limits.FreeDisk)})
	left, bound, err := guard.Look()
	files, filesBound, noFiles := guard.LookFiles()
	text := fmt.Sprintf("%d MiB free in %s", left>>20, d.config.DataDir)
	switch {
	case err != nil:
		d.say("disk", email.FindingFail, fault.InWords(err), "correct data_dir")
	case noFiles == nil && files < filesBound && d.config.Limits.FreeDisk != 0:
		d.say("disk", email.FindingFail, fmt.Sprintf("%d files can be made in %s, and nothing is accepted below %d (inodes)", files, d.config.DataDir, filesBound),
			"remove files, or move data_dir to a file system with more inodes")
	case left < bound:
		d.say("disk", email.FindingFail, fmt.Sprintf("%s, and nothing is accepted below %d MiB", text, bound>>20), "make room, or write limits.free_disk")
	case left < 2*bound:
		d.say("disk", email.FindingWarn, fmt.Sprintf("%s; nothing is accepted below %d MiB", text, bound>>20), "make room")
	default:
		d.say("disk", email.FindingOK, text, "")
	}
}

// permissions looks at who else may read what holds keys and messages.
func (d *examiner) permissions() {
	if runtime.GOOS == "windows" {
		return // its permissions are not in the mode
	}
	files := []string{d.doctor.TokenFile, d.doctor.SecretKeyFile}
	if d.config.DatabaseURL.Reveal() == "sqlite" {
		files = append(files, database.Files(d.config.DataDir)...)
	}

	wide := d.tooWide(d.config.DataDir, 0o700)
	for _, file := range files {
		wide = d.tooWide(file, 0o600) || wide
	}
	if !wide {
		d.say("permissions", email.FindingOK, "no other user may read "+d.config.DataDir, "")
	}
}

func (d *examiner) tooWide(path string, most fs.FileMode) bool {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&^most == 0 {
		return false // one that is missing is told elsewhere
	}
	d.say("permissions", email.FindingWarn, fmt.Sprintf("%s has the mode %04o: others on this machine may read it", path, info.Mode().Perm()),
		fmt.Sprintf("chmod %04o %s", most, path))
	return true
}

// clock asks the operating system whether a time service keeps its clock: signatures and certificates live by it.
func (d *examiner) clock() {
	switch synchronised, known := clockSynchronised(); {
	case !known:
		d.say("clock", email.FindingOK, time.Now().UTC().Format(time.RFC3339)+" (whether it is kept is not known here)", "")
	case synchronised:
		d.say("clock", email.FindingOK, time.Now().UTC().Format(time.RFC3339), "")
	default:
		d.say("clock", email.FindingWarn, time.Now().UTC().Format(time.RFC3339)+", and no time service sets it", "run a time service such as chrony or systemd-timesyncd")
	}
}

func (d *examiner) listeners(ctx context.Context) {
	d.listener(ctx, "http.listen", d.config.HTTP.Listen, false)
	if d.config.SMTP.Listen == "" {
		return
	}
	d.listener(ctx, "smtp.listen", d.config.SMTP.Listen, true)
	if d.config.Mail.Mode == email.ModeCapture && d.config.Federation.AllowPrivate {
		return // a server for trying out is not reached from outside
	}
	d.listener(ctx, "port 25 of "+d.config.SMTP.Hostname, net.JoinHostPort(d.config.SMTP.Hostname, "25"), true)
}

func (d *examiner) listener(ctx context.Context, name, address string, greets bool) {
	greeting, err := d.dial(ctx, address, greets)
	switch {
	case err == nil && (!greets || strings.HasPrefix(greeting, "220")):
		d.say(name, email.FindingOK, strings.TrimSpace(address+" "+greeting), "")
	case err == nil:
		d.say(name, email.FindingFail, address+" answers "+strconv.Quote(greeting), "find out which program listens there")
	case strings.HasPrefix(name, "port"):
		d.say(name, email.FindingWarn, fault.InWords(err), "forward port 25 to smtp.listen and open it in the firewall; some networks cannot reach themselves that way, then try from another one")
	default:
		d.say(name, email.FindingFail, fault.InWords(err), "start the server: inbox serve")
	}
}

// dial connects to host:port or to a listener as the settings name it.
func (d *examiner) dial(ctx context.Context, address string, greets bool) (greeting string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	network, place := config.Reach(address)
	connect := (&net.Dialer{}).DialContext // to a socket of this machine
	if network != "unix" {
		connect = d.client.Trusting(place).DialContext
	}
	conn, err := connect(ctx, network, place)
	if err != nil {
		return "", err
	}

	defer func() { _ = conn.Close() }()
	if !greets {
		return "", nil
	}

	_ = conn.SetDeadline(time.Now().Add(patience))
	line, err := bufio.NewReaderSize(conn, longestGreeting).ReadSlice('\n')
	_, _ = conn.Write([]byte("QUIT\r\n"))
	if err != nil {
		return "", fmt.Errorf("read greeting of %s: %w", address, err)
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(line)), "?"), nil
}

// certificate looks at the files of http.tls = "files".
func (d *examiner) certificate(published *email.Published) {
	if d.config.HTTP.CertFile == "" {
		return
	}
	pair, err := tls.LoadX509KeyPair(d.config.HTTP.CertFile, d.config.HTTP.KeyFile)
	if err != nil {
		d.say("TLS certificate", email.FindingFail, fault.InWords(err), "correct http.cert_file and http.key_file")
		return
	}

	var names []string
	if public, err := url.Parse(d.config.PublicURL); err == nil {
		names = append(names, public.Hostname())
	}
	if published != nil {
		names = append(names, published.Hostname)
		if published.PolicyMode != "none" {
			names = append(names, "mta-sts."+published.Domain)
		}
	}

	d.lifeOf(pair.Leaf)
	for _, name := range names {
		if err := pair.Leaf.VerifyHostname(name); err != nil {
			d.say("TLS certificate for "+name, email.FindingWarn, "it has no such name", "add the name to the certificate")
		}
	}
}

func (d *examiner) lifeOf(leaf *x509.Certificate) {
	text := "until " + leaf.NotAfter.UTC().Format(time.DateOnly)
	switch left := time.Until(leaf.NotAfter); {
	case left <= 0:
		d.say("TLS certificate", email.FindingFail, "ended on "+leaf.NotAfter.UTC().Format(time.DateOnly), "renew it")
	case left < certificateSoon:
		d.say("TLS certificate", email.FindingWarn, text, "renew it")
	default:
		d.say("TLS certificate", email.FindingOK, text, "")
	}
}

// discovery asks for the pages by which others find an agent.
func (d *examiner) discovery(ctx context.Context) {
	base := strings.TrimSuffix(d.config.PublicURL, "/")
	pages := []string{base + "/healthz", base + "/.well-known/nodeinfo", base + "/.well-known/agent-card.json"}
	if len(d.config.Agents) > 0 && d.config.Apex != config.ApexElsewhere {
		scheme, _, _ := strings.Cut(base, "://")
		resource := url.QueryEscape("acct:" + d.config.Agents[0].Name + "@" + d.config.Domain)
		pages = append(pages, scheme+"://"+d.config.Domain+"/.well-known/webfinger?resource="+resource)
	}

	for _, page := range pages {
		d.page(ctx, page)
	}
}

// longestPage bounds what is read of a page of our own.
const longestPage = 64 << 10

func (d *examiner) page(ctx context.Context, page string) {
	name := page
	if u, err := url.Parse(page); err == nil {
		name = u.Scheme + "://" + u.Host + u.Path
	}

	response, err := d.client.Get(ctx, page, safehttp.GetOptions{MaxBytes: longestPage})
	if err != nil {
		d.say(name, email.FindingFail, fault.InWords(err), "start the server, and let public_url and domain lead to http.listen")
		return
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	base := strings.TrimSuffix(d.config.PublicURL, "/")
	switch {
	case response.StatusCode != http.StatusOK:
		d.say(name, email.FindingFail, response.Status, "let the web server of this name pass the path on to http.listen")
		return
	case err != nil:
		d.say(name, email.FindingFail, fault.InWords(err), "let the web server of this name pass the path on to http.listen")
		return
	case strings.HasSuffix(name, "/.well-known/webfinger") && !bytes.Contains(text, []byte(`"`+base+"/")):
		d.say(name, email.FindingFail, "another server answers: it does not name "+base, "let the web server of this name pass the path on to http.listen, and correct public_url")
		return
	}

	d.say(name, email.FindingOK, response.Status, "")
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil && time.Since(at).Abs() > clockTolerance {
		d.say("clock against "+name, email.FindingWarn, "differs by "+time.Since(at).Round(time.Second).String(), "run a time service on both machines")
	}
}

func (d *examiner) policyFile(ctx context.Context, published *email.Published) {
	if published.PolicyMode == "none" {
		return
	}

	want, _ := email.PolicyFile(published.PolicyMode, published.Hostname)
	text, err := d.doctor.Policies(d.client).FetchPolicy(ctx, published.Domain, 64<<10)
	name := "https://mta-sts." + published.Domain + email.PolicyPath
	switch {
	case err != nil:
		d.say(name, email.FindingWarn, fault.InWords(err), "let mta-sts."+published.Domain+` lead to this server under a valid certificate, or write mail.mta_sts = "none"`)
	case string(text) != want:
		d.say(name, email.FindingWarn, "another policy than the configured one is served", "pass the path on to http.listen")
	default:
		d.say(name, email.FindingOK, "mode "+published.PolicyMode, "")
	}
}

// dnssec asks whether the resolver validates, where TLSA records are to hold.
func (d *examiner) dnssec(ctx context.Context) {
	if !d.config.Mail.DANE {
		return
	}
	validates := false
	resolver, err := safehttp.NewSecureResolver(d.config.DNS.Resolver)
	if err == nil {
		validates, err = resolver.Validates(ctx)
	}

	const remedy = "let dns.resolver be one that validates, such as unbound, or write mail.dane = false"
	switch {
	case err != nil:
		d.say("DNSSEC", email.FindingFail, err.Error(), remedy)
	case !validates:
		d.say("DNSSEC", email.FindingFail, d.config.DNS.Resolver+" does not say that the root of the DNS is proven: TLSA records mean nothing", remedy)
	default:
		d.say("DNSSEC", email.FindingOK, d.config.DNS.Resolver+" validates", "")
	}
}

// outwards shows whether mail can leave.
func (d *examiner) outwards(ctx context.Context, probe string) {
	switch d.config.Mail.Mode {
	case email.ModeSmarthost:
		d.relay(ctx)
	case email.ModeMX:
		if probe != "" {
			d.probe(ctx, probe)
		}
	}
}

// relay talks with the smarthost as deliveries do.
func (d *examiner) relay(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	found := email.Relay{
		URL: d.config.Mail.Smarthost.Reveal(), RootsFile: d.config.Mail.SmarthostRootsFile, Hostname: d.config.SMTP.Hostname,
		AllowPrivate: d.config.Federation.AllowPrivate, Dialer: func(address string) email.Dialer { return d.client.Trusting(address) },
	}.Examine(ctx, d.author()+"@"+identity.HostOf(d.config.Domain))
	d.say(found.Name, found.Status, found.Detail, found.Remedy)
}

func (d *examiner) probe(ctx context.Context, domain string) {
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	servers, err := d.resolver.LookupMX(ctx, identity.HostOf(domain))
	if len(servers) == 0 {
		d.say("port 25 outwards", email.FindingWarn, fmt.Sprintf("not tried: no mail server of %s is found (%s)", domain, fault.InWords(err)), "try another domain: inbox doctor --probe DOMAIN")
		return
	}

	server := net.JoinHostPort(strings.TrimSuffix(servers[0].Host, "."), strconv.Itoa(d.config.Mail.MXPort))
	greeting, err := d.dial(ctx, server, true)
	if err != nil {
		d.say("port 25 outwards", email.FindingFail, fault.InWords(err), "most clouds block port 25: ask your provider to open it, or "+submissionAdvice)
		return
	}
	d.say("port 25 outwards", email.FindingOK, server+" "+greeting, "")
}

// ErrUnwell reports that the doctor found something that does not work.
var ErrUnwell = errors.New("something does not work; each line that begins with fail says what to do")

// Unwell returns ErrUnwell when one of the findings is a failure.
func Unwell(findings []Finding) error {
	for _, one := range findings {
		if one.Failed() {
			return ErrUnwell
		}
	}
	return nil
}
