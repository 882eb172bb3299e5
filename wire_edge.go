package inbox

import (
	"context"
	"math"
	"runtime/debug"
	"time"

	"inbox/internal/httpserver"
)

// usualBytesInFlight bounds request bodies in memory where the process has no memory limit.
const usualBytesInFlight = 256 << 20

// bytesInFlight bounds all request bodies in memory: as written, or an eighth of the memory limit of the process, since what
// is made of a body takes several times its room.
func (s *Server) bytesInFlight() int64 {
	if written := s.config.HTTP.MaxBytesInFlight; written > 0 {
		return int64(written)
	}
	limit := debug.SetMemoryLimit(-1) // reads it
	if limit == math.MaxInt64 {
		return usualBytesInFlight
	}
	return max(limit/8, 3*int64(s.config.HTTP.MaxBodyBytes))
}

// networks are the proxies and the operator's own networks.
func (s *Server) networks() httpserver.Networks {
	return httpserver.Networks{Trusted: s.config.HTTP.TrustedProxies, Inside: s.config.HTTP.Inside}
}

// warnOfProxy tells the operator of a proxy that nobody declared: all of its clients are one for every limit.
func (s *Server) warnOfProxy() {
	if s.config.BehindUnknownProxy() {
		s.logger.Warn("public_url is reached from outside and http.listen is not, so there is a proxy: without http.trusted_proxies all its clients count as one for every limit",
			"public_url", s.config.PublicURL, "listen", s.config.HTTP.Listen)
	}
}

// drain turns readiness off and goes on as before until a balancer had time to see it.
func (s *Server) drain(ctx context.Context) {
	s.http.Drain()
	if s.config.Drain <= 0 {
		return
	}
	s.logger.Info("the server stops: it is not ready any more and goes on for a moment", "drain", s.config.Drain)
	wait := time.NewTimer(s.config.Drain)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}
