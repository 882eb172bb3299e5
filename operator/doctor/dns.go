package doctor

import (
	"context"
	"crypto"
	"fmt"
	"net/url"

	"inbox/adapters/email"
	"inbox/identity"
)

// DNSRecord is one record that the operator publishes.
type DNSRecord struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"` // text in <…> is for the operator to fill in
	Note  string `json:"note,omitempty"`
	Zone  string `json:"zone"` // the line of a zone file
}

// DNSRecords returns the records that mail of the domain needs; none when email is off.
func (d *Doctor) DNSRecords(ctx context.Context) ([]DNSRecord, error) {
	published, err := d.published(ctx)
	if err != nil || published == nil {
		return []DNSRecord{}, err
	}

	found := email.Records(*published)
	records := make([]DNSRecord, 0, len(found))
	for _, r := range found {
		records = append(records, DNSRecord{Name: r.Name, Type: r.Type, Value: r.Value, Note: r.Note, Zone: r.Zone()})
	}
	return records, nil
}

// newRecord is a record as DNSRecords returns it.
func newRecord(name, kind, value, note string) DNSRecord {
	zone := email.Record{Name: name, Type: kind, Value: value, Note: note}.Zone()
	return DNSRecord{Name: name, Type: kind, Value: value, Note: note, Zone: zone}
}

// published gathers what the records follow from; nil when email is off.
func (d *Doctor) published(ctx context.Context) (*email.Published, error) {
	if d.Config.SMTP.Listen == "" {
		return nil, nil
	}

	documents, err := d.Vault(ctx)
	if err != nil {
		return nil, err
	}

	key, err := email.LoadKey(documents, d.Config.Mail.DKIMKeyFile)
	if err != nil {
		return nil, fmt.Errorf("load dkim key: %w", err)
	}

	keys := map[string]crypto.Signer{d.Config.Mail.DKIMSelector: key}
	if selector := d.Config.Mail.DKIMEd25519Selector; selector != "" {
		if keys[selector], err = email.LoadEd25519Key(documents); err != nil {
			return nil, fmt.Errorf("load dkim key: %w", err)
		}
	}

	public, err := url.Parse(d.Config.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("public_url: %w", err)
	}

	published := &email.Published{
		Domain: identity.HostOf(d.Config.Domain), Hostname: d.Config.SMTP.Hostname, Mode: d.Config.Mail.Mode, WebHost: public.Hostname(),
		Keys: keys, PolicyMode: d.Config.Mail.MTASTS, Reports: d.Config.Mail.Reports,
		SharesHost: d.Config.SharesMailHost,
	}
	if published.Mode == email.ModeSmarthost {
		if relay, err := url.Parse(d.Config.Mail.Smarthost.Reveal()); err == nil {
			published.Smarthost = relay.Hostname()
		}
	}

	return published, nil
}
