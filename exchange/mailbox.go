package exchange

import (
	"encoding/json"
	"net/netip"
	"strings"
	"time"
)

// Kinds of kept mail.
const (
	MailOrdinary = "mail"     // someone wrote to a role address, such as postmaster
	MailDMARC    = "dmarc"    // an aggregate report about DMARC (RFC 7489, appendix C; RFC 9990)
	MailTLS      = "tls"      // a report about TLS (RFC 8460)
	MailCaptured = "captured" // an answer that mail.mode = capture kept instead of sending it
)

// MailKinds are all kinds of kept mail.
func MailKinds() []string { return []string{MailOrdinary, MailDMARC, MailTLS, MailCaptured} }

// Mail is one mail that is kept for the operator. Everything in it but ID, Kind, Mailbox, Proof, Evidence, ReceivedAt and Note was
// written by its sender.
type Mail struct {
	ID      string `json:"id"` // UUIDv7: sorts by time
	Kind    string `json:"kind"`
	Mailbox string `json:"mailbox"` // local part that it came to; of a captured mail the agent that wrote it

	From         string   `json:"from"` // address of its author
	FromName     string   `json:"from_name,omitempty"`
	EnvelopeFrom string   `json:"envelope_from,omitempty"`
	To           []string `json:"to"` // addresses of the envelope
	Subject      string   `json:"subject,omitempty"`
	MessageID    string   `json:"message_id,omitempty"`

	ReceivedAt time.Time       `json:"received_at"`
	Size       int64           `json:"size"`               // of the whole mail, in bytes
	Proof      string          `json:"proof"`              // what proves the author: email-dmarc, email-dkim or none
	Evidence   json.RawMessage `json:"evidence,omitempty"` // results of SPF, DKIM, DMARC and ARC, and the address that sent it
	Note       string          `json:"note,omitempty"`     // why a report was not counted, why a mail was not sent on
	ReplyID    string          `json:"reply_id,omitempty"` // of a captured mail

	Headers []MailHeader `json:"headers,omitempty"` // those that matter, as they stand in the mail; only in one mail, not in lists
	Text    string       `json:"text,omitempty"`    // at most MaxMailText bytes; not in lists
	Cut     bool         `json:"cut,omitempty"`     // Text is not all
	Files   []MailFile   `json:"files,omitempty"`
}

// Proven reports whether something proves who wrote the mail.
func (m *Mail) Proven() bool { return m.Proof != "" && m.Proof != "none" }

// MaxMailText bounds the text of a kept mail, in bytes; the original has the rest.
const MaxMailText = 64 << 10

// MailHeader is a field of the header of a mail, decoded.
type MailHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// MailFile is an attachment of a kept mail, whose bytes are in the original.
type MailFile struct {
	Name string `json:"name,omitempty"`
	MIME string `json:"mime"`
	Size int64  `json:"size"` // decoded
}

// IncomingMail is a mail that is to be kept.
type IncomingMail struct {
	Mail

	Key     string     // its natural key: a mail with the key of one that is there is a repeat
	Raw     []byte     // the whole mail
	Client  netip.Addr // from where it came; not valid = not known, or a relay of the operator
	Answers bool       // it may be sent on without being asked: no program wrote it, and not we
	Report  *MailReport
}

// MailFilter selects kept mail. Empty fields select all.
type MailFilter struct {
	Kind    string
	Mailbox string
	Sender  string // an address, or a domain and everything below it
	Text    string // somewhere in addresses, subject, text or names of files, without case
	Since   time.Time
	Until   time.Time
	Before  string // id: only older ones, for the next page
	Limit   int    // at most 500; 0 = 50
}

// MailCursor is the cursor of a page behind the mail.
func MailCursor(m Mail) string { return m.ID }

// MailReport is what another server reports about mail of our domain, or about connections to our mail server.
type MailReport struct {
	Kind         string // MailDMARC or MailTLS
	Organization string // who wrote it, as the report says
	ReportID     string
	Domain       string // that it is about
	Policy       string // of the domain, as its reporter saw it: none, quarantine, reject; sts, tlsa, no-policy-found
	Begins, Ends time.Time
	Rows         []MailReportRow
}

// MailReportRow is one line of a report.
type MailReportRow struct {
	Policy      string `json:"policy,omitempty"`      // of the domain, as its reporter saw it
	Source      string `json:"source,omitempty"`      // address that sent: of the mails, of the connections
	Peer        string `json:"peer,omitempty"`        // DMARC: domain of From; TLS: our mail server
	Count       int64  `json:"count"`                 // mails, or sessions
	Disposition string `json:"disposition,omitempty"` // DMARC: none, quarantine, reject
	DKIM        string `json:"dkim,omitempty"`        // aligned: pass or fail
	SPF         string `json:"spf,omitempty"`         // aligned: pass or fail
	Result      string `json:"result"`                // pass, fail; TLS: success, or the type of the failure
	Detail      string `json:"detail,omitempty"`      // domains and selectors that were looked at; reasons
}

// StoredReportRow is a line of a report with the report that it stands in.
type StoredReportRow struct {
	ID           string    `json:"id"` // UUIDv7: sorts by time
	Kind         string    `json:"kind"`
	MailID       string    `json:"mail_id"`
	Reporter     string    `json:"reporter"` // domain of the author of the mail
	Proven       bool      `json:"proven"`   // something proves that domain
	Proof        string    `json:"proof"`
	Organization string    `json:"organization,omitempty"` // as the report says
	ReportID     string    `json:"report_id"`
	Domain       string    `json:"domain"`
	Begins       time.Time `json:"begins_at"`
	Ends         time.Time `json:"ends_at"`
	ReceivedAt   time.Time `json:"received_at"`

	MailReportRow
}

// ReportCursor is the cursor of a page behind the row.
func ReportCursor(r StoredReportRow) string { return r.ID }

// ReportFilter selects lines of reports. Empty fields select all.
type ReportFilter struct {
	Kind     string // MailDMARC or MailTLS
	Result   string
	Source   string
	Since    time.Time // that ended later
	Unproven bool      // also those whose author nothing proves
	Before   string    // id, for the next page of a list
	Limit    int       // at most 500; 0 = 50
}

// ReportSum is what proven reports say together about one source and one result.
type ReportSum struct {
	Kind        string    `json:"kind"`
	Source      string    `json:"source,omitempty"`
	Disposition string    `json:"disposition,omitempty"`
	DKIM        string    `json:"dkim,omitempty"`
	SPF         string    `json:"spf,omitempty"`
	Result      string    `json:"result"`
	Count       int64     `json:"count"`
	Reports     int64     `json:"reports"`
	Begins      time.Time `json:"begins_at"`
	Ends        time.Time `json:"ends_at"`
}

// MailQuota is what kept mail may take.
type MailQuota struct {
	SenderMessages, SenderBytes int64 // of one network of senders without proof, or one domain of others, in a day
	DayMessages, DayBytes       int64 // of all in a day
	AllMessages, AllBytes       int64 // of all that is kept
	Kept                        int64 // percent of the last two that senders without proof do not use
}

// MailCharge is who pays for a kept mail.
type MailCharge struct {
	Accounts []string // of its sender, the narrowest first; each wider one may have four times as much
	Proven   bool
	Bytes    int64 // 0 = it is not counted
	Quota    MailQuota

	ForwardsPerDay int64 // how many mails are sent on by themselves
}

// KeptMail is what became of a mail.
type KeptMail struct {
	New       bool // it is no repeat
	Forwarded bool // it is sent on
}

// MailForward asks for a mail to be sent on.
type MailForward struct {
	ID     string `json:"id"`   // UUIDv7; the same one is sent once
	MailID string `json:"mail"` // of the kept mail; empty = a test mail
	To     string `json:"to"`
}

// MailDomain returns the domain of an address in lower case.
func MailDomain(address string) string {
	return strings.ToLower(address[strings.LastIndexByte(address, '@')+1:])
}
