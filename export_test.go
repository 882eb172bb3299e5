package inbox

import (
	"context"
	"net/http"

	"inbox/adapters/email"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/httpserver"
)

// What the tests of this package see of its inside. The tests themselves stand outside, because they share [inboxtest] with
// the tests of adapters.

const (
	OrphanIdle     = orphanIdle
	SinceNamespace = sinceNamespace
	SweptKey       = sweptKey
	SweptNamespace = sweptNamespace
)

var (
	DescribeAPI    = apiDescription
	DocumentFiles  = documentFiles
	StorageOptions = storageOptions
)

func (s *Server) Handler() http.Handler       { return s.http.Handler() }
func (s *Server) Pipeline() *pipeline.Service { return s.pipeline }
func (s *Server) Routes() []httpserver.Route  { return s.routes }

func (s *Server) Report(ctx context.Context, record exchange.AuditRecord) error {
	return reportRecords{s.resources}.Audit(ctx, record)
}

// Suppressions are what the mail adapter has.
func (s *Server) Suppressions() email.Suppressions {
	return suppressions{s.store, s.vault(), s.logger}
}

func (s *Server) EndSuppressions(ctx context.Context) error { return s.endSuppressions(ctx) }

func (s *Server) SweepOrphans(ctx context.Context) error {
	_, err := s.sweepOrphans(ctx, orphanIdle)
	return err
}

// Keys makes the keys of the server and returns the public half of those of mail and of evidence.
func (s *Server) Keys(ctx context.Context) (dkim, evidence string, err error) {
	if err := s.activitypub.Prepare(ctx); err != nil {
		return "", "", err
	}
	_, dkim = s.email.DNSRecord()
	signing, err := s.keyring.Signing(ctx)
	return dkim, signing.Kid, err
}

// Build makes what a start makes of the settings of agents and of what checks and calls others, and drops it.
func (s *Server) Build(ctx context.Context, settings *Config) error {
	_, made, err := s.build(ctx, settings)
	if err == nil {
		made.discard()
	}
	return err
}
