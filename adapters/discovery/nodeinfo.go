package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"inbox/exchange"
)

// Counts are the usage numbers of NodeInfo.
type Counts struct {
	ActiveMonth    int64 // agents that answered in the last 30 days
	ActiveHalfyear int64 // in the last 180 days
	LocalPosts     int64 // answers given
}

// Usage counts. It is asked at most once in ten minutes.
type Usage interface {
	Usage(ctx context.Context) (Counts, error)
}

const (
	usageLife  = 10 * time.Minute
	schemaBase = "http://nodeinfo.diaspora.software/ns/schema/"
)

type nodeInfo struct {
	Version           string         `json:"version"`
	Software          software       `json:"software"`
	Protocols         []string       `json:"protocols"`
	Services          services       `json:"services"`
	OpenRegistrations bool           `json:"openRegistrations"`
	Usage             usage          `json:"usage"`
	Metadata          map[string]any `json:"metadata"`
}

type software struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	Repository string `json:"repository,omitempty"` // 2.1 only
	Homepage   string `json:"homepage,omitempty"`   // 2.1 only
}

type services struct {
	Inbound  []string `json:"inbound"`
	Outbound []string `json:"outbound"`
}

type usage struct {
	Users      users `json:"users"`
	LocalPosts int64 `json:"localPosts"`
}

type users struct {
	Total          int64 `json:"total"`
	ActiveMonth    int64 `json:"activeMonth"`
	ActiveHalfyear int64 `json:"activeHalfyear"`
}

// nodeInfoIndex lists the documents (FEP-f1d5).
func (s *Server) nodeInfoIndex(w http.ResponseWriter, _ *http.Request) {
	index := struct {
		Links []exchange.Link `json:"links"`
	}{}
	for _, version := range []string{"2.0", "2.1"} {
		index.Links = append(index.Links, exchange.Link{Rel: schemaBase + version, Href: s.base + "/nodeinfo/" + version})
	}
	s.writeJSON(w, "application/json", index)
}

func (s *Server) nodeInfo20(w http.ResponseWriter, r *http.Request) { s.nodeInfo(w, r, "2.0") }
func (s *Server) nodeInfo21(w http.ResponseWriter, r *http.Request) { s.nodeInfo(w, r, "2.1") }

func (s *Server) nodeInfo(w http.ResponseWriter, r *http.Request, version string) {
	counts := s.usage(r.Context())
	info := nodeInfo{
		Version: version, Software: software{Name: "inbox", Version: s.options.Version},
		Protocols: []string{"activitypub"}, Services: services{Inbound: []string{}, Outbound: []string{}},
		Usage: usage{
			Users:      users{int64(len(s.options.Directory.Agents())), counts.ActiveMonth, counts.ActiveHalfyear},
			LocalPosts: counts.LocalPosts,
		},
		Metadata: s.metadata(),
	}
	if info.Software.Version == "" {
		info.Software.Version = "dev"
	}
	if version == "2.1" {
		info.Software.Repository, info.Software.Homepage = s.options.Repository, s.options.Homepage
	}

	s.writeJSON(w, fmt.Sprintf(`application/json; profile="%s%s#"`, schemaBase, version), info)
}

// metadata tells crawlers that all accounts here are programs.
func (s *Server) metadata() map[string]any {
	metadata := map[string]any{"bots": true}
	if s.options.Description != "" {
		metadata["nodeDescription"] = s.options.Description
	}
	if s.options.Contact != "" {
		metadata["maintainer"] = map[string]string{"email": s.options.Contact}
	}
	if s.options.About != "" {
		metadata["aboutFederation"] = s.options.About
	}
	return metadata
}

// usage counts rarely; when counting fails the last numbers stand.
func (s *Server) usage(ctx context.Context) Counts {
	if s.options.Usage == nil {
		return Counts{}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if now := s.options.Now(); !now.Before(s.until) {
		s.until = now.Add(usageLife)
		if counts, err := s.options.Usage.Usage(ctx); err == nil {
			s.counts = counts
		}
	}
	return s.counts
}

func (s *Server) writeJSON(w http.ResponseWriter, mediaType string, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "internal error")
		return
	}
	write(w, mediaType, 1800, append(body, '\n'))
}
