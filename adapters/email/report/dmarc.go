package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/identity"
)

const (
	maxElements = 16   // open at once
	maxValue    = 1024 // bytes of one value that are kept
	maxChecks   = 8    // results of SPF and DKIM of one record that are kept
)

// DMARC reads an aggregate report about DMARC (RFC 7489, appendix C; RFC 9990, appendix A). Elements that it does not know are passed over, as
// are namespaces: reporters write both as they like.
func DMARC(data []byte) (exchange.MailReport, error) {
	reader := &dmarcReader{report: exchange.MailReport{Kind: exchange.MailDMARC}}
	if err := reader.read(data); err != nil {
		return exchange.MailReport{}, err
	}
	return reader.report, nil
}

// dmarcReader holds the report so far and the record that is open.
type dmarcReader struct {
	report exchange.MailReport
	open   []string // names of the elements that are open
	value  strings.Builder

	row    exchange.MailReportRow
	counts bool // the row has a count
	check  map[string]string
	checks []string // what was found about SPF and DKIM, and reasons
}

func (r *dmarcReader) read(data []byte) error {
	decoder := xml.NewDecoder(bytes.NewReader(data))
	decoder.CharsetReader = func(charset string, input io.Reader) (io.Reader, error) {
		text, err := io.ReadAll(input)
		return strings.NewReader(message.Decode(text, charset)), err
	}

	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read XML: %w", err)
		}

		switch token := token.(type) {
		case xml.StartElement:
			err = r.begin(token.Name.Local)
		case xml.EndElement:
			err = r.end()
		case xml.CharData:
			if room := maxValue - r.value.Len(); room > 0 {
				r.value.Write(token[:min(len(token), room)])
			}
		case xml.Directive:
			err = errors.New("it has a document type")
		}
		if err != nil {
			return err
		}
	}

	return r.complete()
}

func (r *dmarcReader) begin(name string) error {
	if len(r.open) == 0 && name != "feedback" {
		return errNone
	}
	if len(r.open) >= maxElements {
		return fmt.Errorf("its elements are more than %d deep", maxElements)
	}

	r.open = append(r.open, name)
	r.value.Reset()
	switch r.at() {
	case "record":
		if len(r.report.Rows) >= maxRows {
			return errRows
		}
		r.row, r.counts, r.checks = exchange.MailReportRow{}, false, nil
	case "record/auth_results/dkim", "record/auth_results/spf", "record/row/policy_evaluated/reason":
		r.check = map[string]string{}
	}
	return nil
}

// at is where the open element stands below the root.
func (r *dmarcReader) at() string { return strings.Join(r.open[1:], "/") }

func (r *dmarcReader) end() error {
	at, value := r.at(), message.Clean(r.value.String(), 255)
	r.open = r.open[:len(r.open)-1]
	r.value.Reset()
	if inner, is := strings.CutPrefix(at, "record/auth_results/"); is {
		r.endCheck(inner, value)
		return nil
	}
	if inner, is := strings.CutPrefix(at, "record/row/policy_evaluated/reason"); is {
		r.endCheck("reason"+inner, value)
		return nil
	}
	return r.set(at, value)
}

// endCheck collects what stands in one result of SPF or DKIM, or in one reason, and writes it down at its end.
func (r *dmarcReader) endCheck(at, value string) {
	kind, name, inside := strings.Cut(at, "/")
	if inside {
		if r.check != nil {
			r.check[name] = value
		}
		return
	}

	text := strings.TrimSpace(r.check["domain"] + " " + r.check["selector"] + " " + r.check["result"])
	if kind == "reason" {
		text = strings.TrimSpace(r.check["type"] + " " + r.check["comment"])
	}
	if r.check = nil; text != "" && len(r.checks) < maxChecks {
		r.checks = append(r.checks, kind+" "+strings.Join(strings.Fields(text), " "))
	}
}

func (r *dmarcReader) set(at, value string) (err error) {
	switch at {
	case "report_metadata/org_name":
		r.report.Organization = value
	case "report_metadata/report_id":
		r.report.ReportID = value
	case "report_metadata/date_range/begin":
		r.report.Begins, err = second(value)
	case "report_metadata/date_range/end":
		r.report.Ends, err = second(value)
	case "policy_published/domain":
		if r.report.Domain, err = identity.ParseDomain(strings.TrimSuffix(value, ".")); err != nil {
			return fmt.Errorf("the domain of its policy: %w", err)
		}
	case "policy_published/p":
		r.report.Policy = word(value)
	case "record/row/source_ip":
		address, err := netip.ParseAddr(value)
		if err != nil {
			return fmt.Errorf("source_ip %q is no address", message.Clip(value, 60))
		}
		r.row.Source = address.Unmap().WithZone("").String()
	case "record/row/count":
		r.row.Count, err = count(value)
		r.counts = true
	case "record/row/policy_evaluated/disposition":
		r.row.Disposition = word(value)
	case "record/row/policy_evaluated/dkim":
		r.row.DKIM = word(value)
	case "record/row/policy_evaluated/spf":
		r.row.SPF = word(value)
	case "record/identifiers/header_from":
		r.row.Peer = strings.ToLower(value)
	case "record":
		return r.endRecord()
	}
	return err
}

func (r *dmarcReader) endRecord() error {
	if r.row.Source == "" || !r.counts {
		return errors.New("a record has no source_ip or no count")
	}

	r.row.Result = "fail"
	if r.row.DKIM == "pass" || r.row.SPF == "pass" { // RFC 7489, section 4.2: one of them is enough
		r.row.Result = "pass"
	}
	r.row.Detail = message.Clip(strings.Join(r.checks, "; "), maxValue)
	r.report.Rows = append(r.report.Rows, r.row)
	return nil
}

func (r *dmarcReader) complete() error {
	switch {
	case r.report.ReportID == "":
		return errors.New("it has no report_id")
	case r.report.Domain == "":
		return errors.New("it does not say which domain it is about")
	case r.report.Begins.IsZero() || r.report.Ends.Before(r.report.Begins):
		return errors.New("it has no period")
	case len(r.report.Rows) == 0:
		return errors.New("it has no records")
	}
	return nil
}

// second reads a time as seconds since 1970.
func second(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds <= 0 || seconds > 1<<36 {
		return time.Time{}, fmt.Errorf("%q is no time in seconds", message.Clip(text, 40))
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func count(text string) (int64, error) {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < 0 || number > maxCount {
		return 0, fmt.Errorf("%q is no count", message.Clip(text, 40))
	}
	return number, nil
}

// word keeps what can be a keyword.
func word(text string) string { return strings.ToLower(message.Clip(text, 40)) }
