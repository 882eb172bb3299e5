package acme

import "github.com/caddyserver/certmagic"

// DNSProvider sets and removes the records of dns-01.
type DNSProvider = certmagic.DNSProvider
