package inbox

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"inbox/adapters/activitypub"
	"inbox/adapters/discovery"
	"inbox/adapters/email"
	"inbox/console/public"
	"inbox/engine/storage"
	"inbox/engine/store"
	"inbox/internal/acme"
	"inbox/internal/admission"
	"inbox/internal/bearer"
	"inbox/internal/blob"
	"inbox/internal/disk"
	"inbox/internal/httpserver"
	"inbox/internal/safehttp"
	"inbox/internal/telemetry"
	"inbox/normalized"
	"inbox/operator"
)

// resources are what every part of a node stands on: settings, log, client, database, files, private keys and the operator's lists.
type resources struct {
	config   *Config // of the start; what a reload may change is in settings
	live     atomic.Pointer[settings]
	level    *slog.LevelVar
	logger   *slog.Logger
	resolver *safehttp.Resolver
	client   *safehttp.Client // reaches no host that the operator blocked

	bodies *admission.Bytes // request bodies in memory, of all listeners
	disk   *disk.Guard
	blobs  blob.Backend
	store  *store.Store
	tokens *bearer.Uses // finds tokens in the store, and notes when they were shown
	// erasing is told when an erasure may have begun.
	erasing chan struct{}
	lock    *disk.Lock // nil on PostgreSQL
	sealer  *storage.Sealer
	lists   *senderLists
	acme    *acme.Client      // nil = certificates do not come from an authority
	orders  orders            // of certificates
	tracer  *telemetry.Tracer // nil = nothing is traced

	stopAsked *stopping // of the process, all domains together

	certificates certificates // of further domains, by host
}

// stopping is the operator's wish that the process ends.
type stopping struct {
	once  sync.Once
	asked chan struct{} // closed when it was said
}

func (s *stopping) ask() { s.once.Do(func() { close(s.asked) }) }

// certificates answer clients that name the host of a further domain.
type certificates map[string]func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// openResources opens the database, which tells changed of what this node writes and elsewhere of what others write, and what
// belongs to it.
// A further domain stands beside top, and shares its log and its memory for requests.
func openResources(ctx context.Context, config *Config, top *modules, quiet bool, changed, elsewhere func(channel, payload string)) (_ *resources, err error) {
	r := &resources{config: config, certificates: certificates{}}
	r.live.Store(newSettings(config))
	switch {
	case top != nil:
		r.logger, r.level, r.bodies, r.stopAsked = top.logger.With("domain", config.Domain), top.level, top.bodies, top.stopAsked
	case quiet:
		r.logger, r.level = slog.New(slog.DiscardHandler), new(slog.LevelVar)
	default:
		if r.logger, r.level, err = telemetry.Setup(os.Stderr, config.Log.Level, config.Log.Format); err != nil {
			return nil, err
		}
	}
	if top == nil {
		r.stopAsked = &stopping{asked: make(chan struct{})}
		r.bodies = admission.NewBytes(r.bytesInFlight(), max(int64(config.HTTP.MaxBodyBytes), int64(config.A2A.MaxRequestBytes)/4))
	}

	r.disk = newDiskGuard(config)
	if r.blobs, err = openBlobs(config, r.disk.Admit); err != nil {
		return nil, err
	}
	options := storageOptions(config, r.logger)
	options.Ceilings = func() store.Periods { return ceilings(r.now().config.Retention) }
	options.Elsewhere = elsewhere
	if r.store, err = storage.Open(ctx, options, changed); err != nil {
		return nil, err
	}
	r.tokens, r.erasing = bearer.NewUses(r.store), make(chan struct{}, 1)
	if err := r.bindStorage(ctx); err != nil {
		return nil, errors.Join(err, r.closeStorage())
	}
	if err := r.openACME(); err != nil {
		return nil, errors.Join(err, r.closeStorage())
	}

	r.resolver = safehttp.NewResolver(config.DNS.Resolver)
	r.client = safehttp.New(safehttp.Options{
		AllowPrivate: config.Federation.AllowPrivate, MetadataAddresses: config.Federation.MetadataAddresses, Resolver: r.resolver, UserAgent: userAgent(config),
		MaxPerHost: config.Queue.DeliveryConcurrency, MaxConcurrent: (2*waitingWorkers + 4) * config.Queue.DeliveryConcurrency,
	}).Refusing(r.lists.blockedHost)

	if err := r.openTracer(ctx); err != nil {
		return nil, errors.Join(err, r.closeStorage())
	}
	return r, nil
}

// bindStorage takes the data directory for this process, opens the keys that belong to the database and reads the operator's lists.
// A server without its lists must not start: it would let in whom they keep out.
func (r *resources) bindStorage(ctx context.Context) (err error) {
	options := storageOptions(r.config, r.logger)
	if r.lock, err = storage.Take(ctx, options, r.store); err != nil {
		return err
	}
	if r.sealer, err = storage.Bind(ctx, options, r.store, r.blobs); err != nil {
		return err
	}

	r.lists = newLists(r.config, r.store)
	_, err = r.lists.Read(ctx)
	return err
}

func (r *resources) closeStorage() error {
	r.closeTracer()
	if r.acme != nil {
		r.acme.Close()
	}
	return errors.Join(r.store.Close(), r.lock.Leave())
}

func userAgent(config *Config) string {
	return "inbox/" + Version + " (+" + aboutFederation(config) + ")"
}

// aboutFederation is the address of the page for administrators of other servers.
func aboutFederation(config *Config) string { return config.PublicURL + public.FederationPath }

// storageOptions say what belongs together, and which documents are sealed.
func storageOptions(config *Config, logger *slog.Logger) storage.Options {
	return storage.Options{
		DataDir: config.DataDir, DatabaseURL: config.DatabaseURL.Reveal(), DatabaseName: config.DatabaseURL.String(),
		Version: Version, SecretKeyFile: config.SecretKeyFile, NewIdentity: config.NewIdentity, Domain: config.Domain, BlobURL: blobName(config), Logger: logger,
		Connections: config.Database.Connections, RequireSynchronous: config.Database.RequireSynchronous,
		Traces:   []string{operator.AdminTokenFile},
		Sealed:   []string{activitypub.KeyNamespace, activitypub.MediaNamespace, discovery.KeyNamespace, email.KeyNamespace, acme.KeyNamespace, secretNamespace, operator.ErasureKeyNamespace},
		Ceilings: func() store.Periods { return ceilings(config.Retention) },
	}
}

// vault returns the documents, with private keys as they were put.
func (r *resources) vault() storage.Vault { return r.sealer.Vault() }

// trustingOperator returns a client that also reaches the address that the operator wrote, wherever it is.
func (r *resources) trustingOperator(address string) (*url.URL, *safehttp.Client, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u, r.client.Trusting(net.JoinHostPort(u.Hostname(), port)), nil
}

// limits are those of the contract; plain http in links only where private peers are allowed.
func (r *resources) limits() normalized.Limits {
	limits := normalized.DefaultLimits()
	limits.AllowHTTP = r.config.Federation.AllowPrivate
	return limits
}

// openACME opens the client of the certificate authority, where certificates come from one.
func (r *resources) openACME() (err error) {
	if r.config.HTTP.TLS != "acme" {
		return nil
	}
	zone := r.config.ACME.DNS
	r.acme, err = acme.New(acme.Options{
		DNS: acme.DNS{
			Provider: zone.Provider, Server: zone.Server, KeyName: zone.KeyName, KeyAlgorithm: zone.KeyAlgorithm,
			Username: zone.Username, Subdomain: zone.Subdomain, Token: string(zone.Token),
		},
		Directory: r.config.ACME.Directory, RootsFile: r.config.ACME.RootsFile, Email: r.config.ACME.Email, Names: r.config.CertificateNames(),
		Documents: r.vault(), Resolver: r.config.DNS.Resolver, Listen: r.config.HTTP.Listen, ListenHTTP: r.config.ACME.HTTPListen, CheckEvery: r.config.ACME.CheckEvery, Logger: r.logger,
		Ordered: r.orders.ended,
	})
	return err
}

// certificate returns the settings of a listener; nil where the server has no certificate. Clients that name no host get the
// certificate of fallback. The authority comes to the listener that answersChallenges.
func (r *resources) certificate(fallback string, answersChallenges bool) (security *tls.Config, err error) {
	switch {
	case r.acme != nil:
		security = r.acme.TLS(fallback, answersChallenges)
	case r.config.HTTP.CertFile == "":
		return nil, nil
	default:
		if security, err = httpserver.TLSConfig(r.config.HTTP.CertFile, r.config.HTTP.KeyFile, r.logger); err != nil {
			return nil, err
		}
	}

	own := security.GetCertificate
	security.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if further, is := r.certificates[strings.ToLower(hello.ServerName)]; is {
			return further(hello)
		}
		return own(hello)
	}
	return security, nil
}

// networks are the proxies and the operator's own networks.
func (r *resources) networks() httpserver.Networks {
	return httpserver.Networks{Trusted: r.config.HTTP.TrustedProxies, Inside: r.config.HTTP.Inside}
}

func newDiskGuard(c *Config) *disk.Guard {
	return disk.NewGuard(disk.Options{Directory: c.DataDir, Keep: int64(c.Limits.FreeDisk)})
}

// newGuestDiskGuard is that of senders without proof.
func newGuestDiskGuard(c *Config) *disk.Guard {
	options := disk.Options{Directory: c.DataDir, Keep: int64(c.Limits.GuestFreeDisk), For: "senders without proof"}
	switch {
	case c.Limits.GuestFreeDisk == 0:
		return nil
	case c.Limits.GuestFreeDisk < 0:
		options.Keep, options.Times = int64(c.Limits.FreeDisk), 2
	}
	return disk.NewGuard(options)
}

// Files of erased messages go at the latest so long after they were last put.
const (
	blobIdle  = time.Hour
	blobSweep = 10 * time.Minute
)

// Files to which nothing refers, because their message was refused or a process died, go after a day. That is longer than
// anything takes from putting a file to committing what refers to it; the longest are runs of agents.
const (
	orphanIdle  = 24 * time.Hour
	orphanSweep = 6 * time.Hour
)

// The document that says when orphans were swept. Who writes it sweeps, whichever node that is; it ends when the next sweep
// is due.
const (
	sweptNamespace = "blobs"
	sweptKey       = "orphans swept"
)

// sweepBlobs deletes the files of erased messages and those to which nothing refers, now and then until ctx ends.
func (r *resources) sweepBlobs(ctx context.Context) error {
	ticker := time.NewTicker(blobSweep)
	defer ticker.Stop()
	for {
		deleted, err := r.store.SweepBlobs(ctx, r.blobs, blobIdle)
		r.logSweep(ctx, "erased messages", deleted, err)
		deleted, err = r.sweepOrphans(ctx, orphanIdle)
		r.logSweep(ctx, "what nothing refers to", deleted, err)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (r *resources) logSweep(ctx context.Context, of string, deleted int, err error) {
	if err != nil && ctx.Err() == nil {
		r.logger.WarnContext(ctx, "files are deleted later", "of", of, "error", err)
	}
	if deleted > 0 {
		r.logger.InfoContext(ctx, "files were deleted", "of", of, "files", deleted)
	}
}

// sweepOrphans sweeps when that is due and no other node does.
func (r *resources) sweepOrphans(ctx context.Context, idle time.Duration) (deleted int, err error) {
	now := time.Now()
	_, mine, err := r.store.State().PutIfAbsent(ctx, sweptNamespace, sweptKey, []byte(now.UTC().Format(time.RFC3339)), now.Add(orphanSweep))
	if err != nil || !mine {
		return 0, err
	}

	deleted, err = r.store.SweepOrphans(ctx, r.blobs, idle)
	if err != nil { // it is due again
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = r.store.State().Delete(again, sweptNamespace, sweptKey)
	}
	return deleted, err
}
