package main

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
)

// The kit sends no credentials, and the server answers no one without: a proxy in front adds the kit's token.

// forward serves a listener with everything passed on to the target together with the token. Plain HTTP/2 is for gRPC.
func forward(listener net.Listener, target, token string, names *renamer) *http.Server {
	plain := new(http.Protocols)
	plain.SetHTTP1(true)
	plain.SetUnencryptedHTTP2(true)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: target})
		r.Out.Host = r.In.Host
		// Some tests send a wrong one, and newer ones say that they want none.
		if r.Out.Header.Get("Authorization") == "" && r.Out.Header.Get("A2A_TCK_DONT_USE_AUTH") == "" {
			r.Out.Header.Set("Authorization", "Bearer "+token)
		}
		names.rename(r.Out)
	}}

	proxy.ModifyResponse = lateStatus
	upstream := new(http.Protocols)
	upstream.SetHTTP1(true)
	server := &http.Server{Handler: proxy, Protocols: plain}
	proxy.Transport = byProtocol{http1: &http.Transport{Protocols: upstream}, http2: overHTTP2()}
	go func() { _ = server.Serve(listener) }()
	return server
}

// lateStatus moves the status of an answer without a body from its headers to its trailers: net/http would send an empty
// body after the headers, and such an answer has no status to gRPC.
func lateStatus(response *http.Response) error {
	for name, values := range response.Header {
		if strings.HasPrefix(name, "Grpc-") {
			if response.Trailer == nil {
				response.Trailer = http.Header{}
			}
			response.Trailer[name] = values
			response.Header.Del(name)
		}
	}
	return nil
}

func overHTTP2() *http.Transport {
	plain := new(http.Protocols)
	plain.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: plain}
}

// byProtocol passes a request on in the protocol in which it came.
type byProtocol struct{ http1, http2 http.RoundTripper }

func (b byProtocol) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Header.Get("Content-Type") == "application/grpc" {
		return b.http2.RoundTrip(request)
	}
	return b.http1.RoundTrip(request)
}
