package operator

import (
	"archive/zip"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/config"
	"inbox/internal/fault"
)

// Domain is one of the domains of a server.
type Domain struct {
	Name string
	// With calls work with what the operator may do at the domain. A command has one database open at a time.
	With func(ctx context.Context, work func(context.Context, *Operator) error) error
}

// OrphanedDomain is a domain that is no longer in the settings and whose data is stored.
type OrphanedDomain = config.OrphanedDomain

// Persons look for a person at every domain of a server, to export or to erase what it stores of them. A domain that fails does not stop
// the others.
type Persons struct {
	Domains []Domain
	// LeftOut returns the domains whose data is stored and which are not asked; nil = there are none.
	LeftOut func() ([]OrphanedDomain, error)
}

// OfDomain says whether one domain answered about a person.
type OfDomain struct {
	Domain string `json:"domain"`
	Note   string `json:"note,omitempty"`  // the domain stores nothing of the person
	Error  string `json:"error,omitempty"` // the domain failed: nothing is known of the person there
}

// ofDomain says what an error of a domain means.
func ofDomain(domain string, err error) OfDomain {
	switch {
	case err == nil:
		return OfDomain{Domain: domain}
	case fault.Is(err, fault.NotFound):
		return OfDomain{Domain: domain, Note: fault.InWords(err)}
	}
	return OfDomain{Domain: domain, Error: fault.InWords(err)}
}

// leftOut returns the domains that are not asked.
func (p Persons) leftOut() ([]OrphanedDomain, error) {
	if p.LeftOut == nil {
		return nil, nil
	}
	return p.LeftOut()
}

// each asks one domain after the other and returns an error that names those that failed. A domain that does not know the person is none of them,
// unless no domain does.
func (p Persons) each(ctx context.Context, ask func(ctx context.Context, domain string, o *Operator) error, answered func(domain string, err error)) error {
	var failures []error
	var unknown error
	known := false
	for _, one := range p.Domains {
		err := one.With(ctx, func(ctx context.Context, o *Operator) error { return ask(ctx, one.Name, o) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		answered(one.Name, err)
		switch {
		case err == nil:
			known = true
		case fault.Is(err, fault.NotFound):
			if unknown == nil {
				unknown = err
			}
		case len(p.Domains) == 1 || fault.Is(err, fault.Malformed): // the name is as wrong at the other domains
			return err
		default:
			failures = append(failures, fmt.Errorf("%s: %w", one.Name, err))
		}
	}
	switch {
	case len(failures) == len(p.Domains):
		return errors.Join(failures...)
	case len(failures) > 0:
		return &incomplete{failures}
	case !known:
		return unknown
	}
	return nil
}

// incomplete is returned after some domains answered and others failed.
type incomplete struct{ failures []error }

// Error implements error.
func (i *incomplete) Error() string { return errors.Join(i.failures...).Error() }

// Unwrap returns what failed.
func (i *incomplete) Unwrap() []error { return i.failures }

// OfPerson is what all domains answered about a person.
type OfPerson struct {
	exchange.List[AtDomain] // one page: there are no more domains than the settings have

	LeftOut []OrphanedDomain `json:"left_out,omitempty"` // their data is stored, but they are not in the settings
}

// AtDomain is what one domain answered about a person.
type AtDomain struct {
	OfDomain

	Preview *ErasurePreview `json:"preview,omitempty"` // what an export or an erasure would take
	Receipt *Receipt        `json:"receipt,omitempty"` // of an erasure

	NotTaken *NotTaken `json:"not_taken,omitempty"` // what an erasure by this name leaves; nil = nothing
}

// NotTaken are messages that may be of a person and that an erasure by the given name leaves, because nothing proves it or because another name is needed.
type NotTaken struct {
	Linked   []store.Belonging `json:"linked,omitempty" doc:"linked with the person"`
	Unproven []Statement       `json:"unproven,omitempty" doc:"senders without proof who state the address"`
	Others   []Statement       `json:"others,omitempty" doc:"others who state the address or one like it"`
}

// notTaken is what an erasure of the person leaves; nil = nothing.
func notTaken(person store.Person) *NotTaken {
	if len(person.Linked)+len(person.Unproven)+len(person.Others) == 0 {
		return nil
	}
	return &NotTaken{person.Linked, person.Unproven, person.Others}
}

// DomainReceipt is a receipt and its domain.
type DomainReceipt struct {
	Domain string `json:"domain"`
	Receipt
}

// Preview says of each domain who the name means and what an export or an erasure would take. Nothing is changed. What the other domains answered
// is returned with an error.
func (p Persons) Preview(ctx context.Context, who PersonName) (found OfPerson, err error) {
	var preview ErasurePreview
	err = p.each(ctx, func(ctx context.Context, _ string, o *Operator) (err error) {
		preview, err = o.Erasures.Preview(ctx, who)
		return err
	}, func(domain string, err error) {
		one := AtDomain{OfDomain: ofDomain(domain, err)}
		if err == nil {
			copied := preview
			one.Preview = &copied
		}
		found.Items = append(found.Items, one)
	})
	left, failure := p.leftOut()
	found.LeftOut = left
	return found, errors.Join(err, failure)
}

// Erase begins an erasure at each domain; see Erasures.Begin. follow, which may be nil, is called at a domain after the erasure began there and returns its
// receipt as it is then. What the other domains answered is returned with an error.
func (p Persons) Erase(ctx context.Context, who PersonName, by string, follow func(ctx context.Context, o *Operator, begun Receipt) (Receipt, error)) (begun OfPerson, err error) {
	var receipt *Receipt
	var missed *NotTaken
	err = p.each(ctx, func(ctx context.Context, _ string, o *Operator) error {
		person, err := o.Erasures.Who(ctx, who)
		if err != nil {
			return err
		}
		missed = notTaken(person)
		made, err := o.Erasures.Begin(ctx, who, by)
		if err != nil {
			return err
		}
		receipt = &made
		if follow == nil {
			return nil
		}
		made, err = follow(ctx, o, made)
		if made.ID != "" {
			receipt = &made
		}
		return err
	}, func(domain string, err error) {
		begun.Items = append(begun.Items, AtDomain{OfDomain: ofDomain(domain, err), Receipt: receipt, NotTaken: missed})
		receipt, missed = nil, nil // the next domain may fail before it has one
	})
	left, failure := p.leftOut()
	begun.LeftOut = left
	return begun, errors.Join(err, failure)
}

// Receipt returns the receipt of an erasure and its domain; fault.NotFound when no domain has it.
func (p Persons) Receipt(ctx context.Context, id string) (found DomainReceipt, err error) {
	err = p.each(ctx, func(ctx context.Context, domain string, o *Operator) error {
		if found.ID != "" {
			return nil
		}
		receipt, err := o.Erasures.Receipt(ctx, id)
		if err == nil {
			found = DomainReceipt{domain, receipt}
		}
		return err
	}, func(string, error) {})
	if found.ID != "" {
		err = nil
	}
	return found, err
}

// Receipts lists the receipts of all domains, newest first.
func (p Persons) Receipts(ctx context.Context, before string, limit int) (list []DomainReceipt, err error) {
	var read []Receipt
	list = []DomainReceipt{}
	err = p.each(ctx, func(ctx context.Context, _ string, o *Operator) (err error) {
		read, err = o.Erasures.Receipts(ctx, before, limit)
		return err
	}, func(domain string, err error) {
		for i := range read {
			if err == nil {
				list = append(list, DomainReceipt{domain, read[i]})
			}
		}
	})
	slices.SortFunc(list, func(a, b DomainReceipt) int { return cmp.Compare(b.ID, a.ID) }) // ids begin with their time
	return list[:min(len(list), limit)], err
}

// DomainExport says what an export has of one domain.
type DomainExport struct {
	OfDomain

	Directory string    `json:"directory,omitempty"` // of the archive
	Export    *Exported `json:"export,omitempty"`    // what is stored of the person and is not a message
}

// PersonExport says what an export has.
type PersonExport struct {
	Items    []DomainExport   `json:"items"`
	LeftOut  []OrphanedDomain `json:"left_out,omitempty"` // their data is stored, but they are not in the settings
	Messages int              `json:"messages"`
	Files    int              `json:"files"`
	At       time.Time        `json:"at"`
}

// Empty reports whether no domain was exported.
func (e PersonExport) Empty() bool {
	return !slices.ContainsFunc(e.Items, func(one DomainExport) bool { return one.Export != nil })
}

// below is a directory of an archive.
type below struct {
	Archive

	directory string
}

// Create implements Archive.
func (b below) Create(name string) (io.Writer, error) {
	return b.Archive.Create(b.directory + "/" + name)
}

// directoryOf is a domain as the name of a directory.
func directoryOf(domain string) string { return strings.ReplaceAll(domain, ":", "_") }

// Export writes what each domain stores of the person into a directory with its name; see Exports.Export. person.json says what the archive has
// and which domains are missing; index.html leads to the pages of the domains. If some domains fail the archive has the others, and
// the error names the failed ones. fault.NotFound if no domain stores anything of such a person: then nothing was written.
func (p Persons) Export(ctx context.Context, who PersonName, into Archive) (made PersonExport, err error) {
	made.At = now()
	var one Exported
	err = p.each(ctx, func(ctx context.Context, domain string, o *Operator) (err error) {
		one, err = o.Exports.Export(ctx, who, below{into, directoryOf(domain)})
		return err
	}, func(domain string, err error) {
		part := DomainExport{OfDomain: ofDomain(domain, err)}
		if err == nil {
			copied := one
			part.Directory, part.Export = directoryOf(domain), &copied
			made.Messages, made.Files = made.Messages+one.Messages, made.Files+one.Files
		}
		made.Items = append(made.Items, part)
	})
	if ctx.Err() != nil || made.Empty() {
		return made, err
	}

	left, failure := p.leftOut()
	made.LeftOut = left
	err = errors.Join(err, failure)
	document := documentOf(made)
	if failure := writeDocument(into, "person.json", document); failure != nil {
		return made, failure
	}
	page, failure := into.Create("index.html")
	if failure == nil {
		_, failure = io.WriteString(page, frontPage(document))
	}
	if failure != nil {
		return made, failure
	}
	return made, err
}

// personDocument is what an archive says of itself. The person reads it, so it has no error and no place of the server.
type personDocument struct {
	PersonExport

	LeftOut []leftDomain `json:"left_out,omitempty"`
}

type leftDomain struct {
	Domain string `json:"domain"`
}

func documentOf(made PersonExport) personDocument {
	document := personDocument{PersonExport: made}
	document.Items = slices.Clone(made.Items)
	for i := range document.Items {
		if one := &document.Items[i]; one.Error != "" {
			one.Error = "the server could not read what it stores at this domain"
		}
	}
	for _, one := range made.LeftOut {
		document.LeftOut = append(document.LeftOut, leftDomain{one.Domain})
	}
	return document
}

// frontPage leads to the pages of the domains.
func frontPage(made personDocument) string {
	var page strings.Builder
	page.WriteString(exportHead + "<ul>\n")
	for _, one := range made.Items {
		name := html.EscapeString(one.Domain)
		if one.Export == nil {
			fmt.Fprintf(&page, "<li>%s: %s</li>\n", name, html.EscapeString(cmp.Or(one.Error, one.Note)))
			continue
		}
		fmt.Fprintf(&page, "<li><a href=\"%s/index.html\">%s</a>: messages: %d, files: %d</li>\n", html.EscapeString(one.Directory), name, one.Export.Messages, one.Export.Files)
	}
	for _, one := range made.LeftOut {
		fmt.Fprintf(&page, "<li>%s is left out: the server stores data of this domain, but it is not in the settings</li>\n", html.EscapeString(one.Domain))
	}
	page.WriteString("</ul></body></html>\n")
	return page.String()
}

// ExportZip is Export into one ZIP archive. The archive of an incomplete export ends in good order, too, unless it has nothing.
func (p Persons) ExportZip(ctx context.Context, who PersonName, out io.Writer) (PersonExport, error) {
	archive := zip.NewWriter(out)
	made, err := p.Export(ctx, who, archive)
	if err != nil && (!Incomplete(err) || made.Empty()) {
		return made, err
	}
	return made, errors.Join(err, archive.Close())
}

// Incomplete reports whether some domains answered and others failed, which the error names.
func Incomplete(err error) bool {
	_, some := errors.AsType[*incomplete](err)
	return some
}
