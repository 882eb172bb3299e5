// Package dns asks the DNS for what mail depends on: a resolver that remembers answers for as long as they say, within
// bounds, and the tag=value lists in which DKIM, DMARC and MTA-STS write their records. It validates nothing (see
// safehttp.SecureResolver for DNSSEC) and knows no policy of mail.
package dns
