package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/boundedjson"
)

// tlsReport is a report about TLS as it is written (RFC 8460, section 4.4).
type tlsReport struct {
	Organization string `json:"organization-name"`
	Range        struct {
		Start string `json:"start-datetime"`
		End   string `json:"end-datetime"`
	} `json:"date-range"`
	ReportID string      `json:"report-id"`
	Policies []tlsPolicy `json:"policies"`
}

type tlsPolicy struct {
	Policy struct {
		Type   string `json:"policy-type"`
		Domain string `json:"policy-domain"`
	} `json:"policy"`
	Summary struct {
		Successful int64 `json:"total-successful-session-count"`
		Failed     int64 `json:"total-failure-session-count"`
	} `json:"summary"`
	Details []tlsFailure `json:"failure-details"`
}

type tlsFailure struct {
	Result     string `json:"result-type"`
	SendingIP  string `json:"sending-mta-ip"`
	Receiver   string `json:"receiving-mx-hostname"`
	HELO       string `json:"receiving-mx-helo"`
	Count      int64  `json:"failed-session-count"`
	Additional string `json:"additional-information"`
	ReasonCode string `json:"failure-reason-code"`
}

const (
	maxJSONDepth  = 12
	maxJSONValues = 12 * maxRows
)

// success is the result of sessions without trouble; the others are the words of RFC 8460, section 4.3.
const success = "success"

// TLS reads a report about TLS (RFC 8460). What failed and is in no detail has the result "unspecified".
func TLS(data []byte) (report exchange.MailReport, err error) {
	bounds := boundedjson.NewCounter(boundedjson.Limits{Depth: maxJSONDepth, Values: maxJSONValues})
	if _, err := bounds.Write(data); err != nil {
		return report, fmt.Errorf("read JSON: %w", err)
	}

	var read tlsReport
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&read); err != nil {
		return report, fmt.Errorf("read JSON: %w", err)
	}

	report = exchange.MailReport{Kind: exchange.MailTLS, Organization: message.Clean(read.Organization, 255), ReportID: message.Clean(read.ReportID, 255)}
	if report.Begins, err = instant(read.Range.Start); err == nil {
		report.Ends, err = instant(read.Range.End)
	}
	if err == nil && (report.Ends.Before(report.Begins) || report.ReportID == "" || len(read.Policies) == 0) {
		err = errors.New("it has no period, no report-id or no policies")
	}
	if err != nil {
		return exchange.MailReport{}, err
	}

	for _, policy := range read.Policies {
		if err := addPolicy(&report, policy); err != nil {
			return exchange.MailReport{}, err
		}
	}
	return report, nil
}

func addPolicy(report *exchange.MailReport, policy tlsPolicy) error {
	domain, err := identity.ParseDomain(strings.TrimSuffix(strings.TrimSpace(policy.Policy.Domain), "."))
	switch {
	case err != nil:
		return fmt.Errorf("its policy-domain: %w", err)
	case report.Domain != "" && report.Domain != domain:
		return errors.New("it is about several domains")
	}
	report.Domain = domain

	kind, left := word(policy.Policy.Type), policy.Summary.Failed
	if bad := min(policy.Summary.Successful, left); bad < 0 || max(policy.Summary.Successful, left) > maxCount {
		return errors.New("a number of sessions is not one")
	}

	add := func(row exchange.MailReportRow) error {
		if len(report.Rows) >= maxRows {
			return errRows
		}
		row.Policy = kind
		report.Rows = append(report.Rows, row)
		return nil
	}
	if policy.Summary.Successful > 0 || left == 0 && len(policy.Details) == 0 {
		if err := add(exchange.MailReportRow{Result: success, Count: policy.Summary.Successful}); err != nil {
			return err
		}
	}

	for _, one := range policy.Details {
		if one.Count < 0 || one.Count > maxCount || one.Result == "" {
			return errors.New("a failure has no result-type or no number of sessions")
		}
		left -= one.Count
		row := exchange.MailReportRow{
			Result: word(one.Result), Count: one.Count, Peer: strings.ToLower(message.Clip(one.Receiver, 255)),
			Detail: message.Clip(strings.TrimSpace(one.ReasonCode+" "+one.Additional), maxValue),
		}
		if address, err := netip.ParseAddr(strings.TrimSpace(one.SendingIP)); err == nil {
			row.Source = address.Unmap().WithZone("").String()
		}
		if err := add(row); err != nil {
			return err
		}
	}

	if left > 0 {
		return add(exchange.MailReportRow{Result: "unspecified", Count: left})
	}
	return nil
}

func instant(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Year() < 1970 || at.Year() > 9999 {
		return time.Time{}, fmt.Errorf("%q is no time", message.Clip(text, 40))
	}
	return at.UTC(), nil
}
