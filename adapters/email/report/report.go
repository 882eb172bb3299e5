// Package report reads what other servers report about mail of our domain and about connections to our mail server: aggregate reports about
// DMARC (RFC 7489, appendix C; RFC 9990) and reports about TLS (RFC 8460). The one who can send mail writes them, so that everything is bounded
// before it is read, and nothing in them is believed here.
package report

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"inbox/adapters/email/message"
	"inbox/exchange"
)

// Bounds of one report.
const (
	maxPacked   = 2 << 20 // of a file, packed or not
	maxUnpacked = 8 << 20
	maxTried    = 4    // files of a mail that are looked at
	maxEntries  = 16   // of an archive that are looked at
	maxRows     = 5000 // lines of a report
	maxCount    = 1_000_000_000_000
)

// Errors of files that are larger than a report.
var (
	errPacked   = fmt.Errorf("its file is larger than %d bytes", maxPacked)
	errUnpacked = fmt.Errorf("it unpacks to more than %d bytes", maxUnpacked)
	errRows     = fmt.Errorf("it has more than %d lines", maxRows)
	errNone     = errors.New("no file of the mail is a report")
)

// Read finds the report in a mail. Without a report the kind is empty: of a mail that says to be one, the error is why it cannot be read.
func Read(fields message.Header, body []byte) (report exchange.MailReport, err error) {
	root, err := (&message.Parser{}).Parse(fields, body, 0)
	if err != nil {
		return report, nil //nolint:nilerr // a mail like others, whose structure its own reader judges
	}

	claims := claimed(fields, root)
	tried, failure := 0, error(nil)
	for _, part := range leaves(root) {
		if !candidate(part) {
			continue
		}
		if tried++; tried > maxTried {
			break
		}

		report, err := readFile(part.Decode())
		if err == nil {
			return report, nil
		}
		if failure == nil || errors.Is(failure, errNone) {
			failure = err
		}
	}

	if claims && failure == nil {
		failure = errNone
	}
	if !claims && errors.Is(failure, errNone) {
		failure = nil
	}
	return exchange.MailReport{}, failure
}

// leaves returns the parts that have no parts, in their order.
func leaves(part *message.Entity) (found []*message.Entity) {
	if len(part.Children) == 0 {
		return []*message.Entity{part}
	}
	for _, child := range part.Children {
		found = append(found, leaves(child)...)
	}
	return found
}

// claimed reports whether a mail says that it is a report: by its type and fields (RFC 8460, section 5.3), or by the subject that
// RFC 7489, section 7.2.1.1, asks for.
func claimed(fields message.Header, root *message.Entity) bool {
	subject := strings.ToLower(fields.Decoded("Subject"))
	return strings.EqualFold(root.Params["report-type"], "tlsrpt") || fields.Has("TLS-Report-Domain") ||
		strings.HasPrefix(subject, "report domain:") && strings.Contains(subject, "report-id:")
}

var (
	types   = []string{"application/gzip", "application/x-gzip", "application/zip", "application/x-zip", "application/x-zip-compressed", "application/tlsrpt+gzip", "application/tlsrpt+json", "application/xml", "text/xml"}
	endings = []string{".gz", ".zip", ".xml", ".json"}
)

// candidate reports whether a part may have a report: by its type, or by its name where the type says nothing.
func candidate(part *message.Entity) bool {
	if slices.Contains(types, part.Media) {
		return true
	}
	_, disposition := message.MediaType(part.Fields.Get("Content-Disposition"), "attachment")
	for _, name := range []string{disposition["filename"], part.Params["name"]} {
		if slices.Contains(endings, strings.ToLower(path.Ext(name))) {
			return true
		}
	}
	return false
}

// readFile reads a file, packed or not, by what it begins with: types and names are often wrong.
func readFile(data []byte) (report exchange.MailReport, err error) {
	if len(data) > maxPacked {
		return report, errPacked
	}

	switch {
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		data, err = gunzip(data)
	case bytes.HasPrefix(data, []byte("PK\x03\x04")):
		data, err = unzip(data)
	}
	if err != nil {
		return report, err
	}

	data = bytes.TrimLeft(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), " \t\r\n")
	switch {
	case bytes.HasPrefix(data, []byte("<")) && bytes.Contains(data[:min(len(data), 4096)], []byte("feedback")):
		return DMARC(data)
	case bytes.HasPrefix(data, []byte("{")) && bytes.Contains(data, []byte(`"policies"`)):
		return TLS(data)
	}
	return report, errNone
}

func gunzip(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("unpack gzip: %w", err)
	}
	return unpack(reader)
}

// unzip returns the first file of an archive that can be a report.
func unzip(data []byte) ([]byte, error) {
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("unpack zip: %w", err)
	}

	for _, file := range archive.File[:min(len(archive.File), maxEntries)] {
		if ending := strings.ToLower(path.Ext(file.Name)); ending != ".xml" && ending != ".json" {
			continue
		}
		opened, err := file.Open()
		if err != nil {
			return nil, fmt.Errorf("unpack zip: %w", err)
		}
		unpacked, err := unpack(opened)
		return unpacked, errors.Join(err, opened.Close())
	}
	return nil, errNone
}

// unpack reads as far as the bound, whatever sizes the file announces.
func unpack(from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxUnpacked+1))
	switch {
	case len(data) > maxUnpacked:
		return nil, errUnpacked
	case err != nil:
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return data, nil
}
