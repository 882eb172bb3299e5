package discovery

import (
	"encoding/xml"
	"net/http"
)

// xrd is the host's descriptor (RFC 6415).
type xrd struct {
	XMLName xml.Name `xml:"http://docs.oasis-open.org/ns/xri/xrd-1.0 XRD"`
	Link    xrdLink  `xml:"Link"`
}

type xrdLink struct {
	Rel      string `xml:"rel,attr"`
	Type     string `xml:"type,attr"`
	Template string `xml:"template,attr"`
}

// hostMeta tells where WebFinger is. Mastodon asks after a 404 from the well-known place.
func (s *Server) hostMeta(w http.ResponseWriter, _ *http.Request) {
	template := s.base + "/.well-known/webfinger?resource={uri}"
	body, err := xml.MarshalIndent(xrd{Link: xrdLink{Rel: "lrdd", Type: "application/jrd+json", Template: template}}, "", "  ")
	if err != nil {
		refuse(w, http.StatusInternalServerError, "internal error")
		return
	}
	write(w, "application/xrd+xml; charset=utf-8", 86400, append([]byte(xml.Header), append(body, '\n')...))
}
