// Package message reads and writes the syntax of mail: header fields in wire order (RFC 5322), addresses, encoded words and
// parameters (RFC 2047, RFC 2231), charsets and the MIME tree (RFC 2045, RFC 2046), within bounds of size, depth and number.
// What is damaged is read as far as it goes, as mail programs do.
//
// It decides nothing: who is believed is in authentication, what a person reads is in text. It knows neither agents nor the
// adapter. go-message writes the mails that leave and brings the charset tables; its reader is not used, see Parser.Parse.
package message
