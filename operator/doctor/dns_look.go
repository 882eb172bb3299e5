package doctor

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// States of a record, as the world sees it.
const (
	RecordRight   = "right"
	RecordMissing = "missing"
	RecordDiffers = "differs" // something else is in its place
	RecordUnknown = "unknown" // the DNS did not say
)

const (
	// lookPatience bounds the look at one record, and lookLimit that at all of them.
	lookPatience, lookLimit = 5 * time.Second, 30 * time.Second
	// maxAnswers and maxAnswerBytes bound what is kept of a name's answer.
	maxAnswers, maxAnswerBytes = 5, 600
)

// LookedRecord is a record with what the DNS has in its place.
type LookedRecord struct {
	DNSRecord

	State  string   `json:"state"`
	Found  []string `json:"found,omitempty"` // what is there: at most 5, cut after 600 bytes each
	Reason string   `json:"reason,omitempty"`
}

// RecordLook is what one look at all records found.
type RecordLook struct {
	At      time.Time      `json:"at"` // when it ended
	Records []LookedRecord `json:"records"`
}

// RecordLooks are looks at the records of this server, one at a time; the last one is remembered.
type RecordLooks struct {
	Doctor *Doctor

	running sync.Mutex
	mu      sync.Mutex
	last    RecordLook
}

// lookups are the questions to the DNS.
type lookups interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
	LookupMX(ctx context.Context, name string) ([]*net.MX, error)
	LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error)
	LookupCNAME(ctx context.Context, host string) (string, error)
}

// Run asks for every record once, no longer than half a minute. fault.Conflict while another look runs.
func (l *RecordLooks) Run(ctx context.Context) (RecordLook, error) {
	if !l.running.TryLock() {
		return RecordLook{}, fault.New(fault.Conflict, "the records are looked up already; what was found is here in a moment")
	}
	defer l.running.Unlock()

	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	records, err := l.Doctor.DNSRecords(ctx)
	if err != nil {
		return RecordLook{}, err
	}

	found, resolver := make([]LookedRecord, len(records)), safehttp.NewResolver(l.Doctor.Current().DNS.Resolver)
	var looks errgroup.Group
	looks.SetLimit(4)
	for i, record := range records {
		looks.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, lookPatience)
			defer cancel()
			found[i] = lookAt(ctx, resolver, record)
			return nil
		})
	}
	if err := looks.Wait(); err != nil {
		return RecordLook{}, err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = RecordLook{At: time.Now().UTC().Truncate(time.Millisecond), Records: found}
	return l.last, nil
}

// Last returns what the last look of this process found; its time is zero before the first one.
func (l *RecordLooks) Last() RecordLook {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func lookAt(ctx context.Context, resolver lookups, record DNSRecord) LookedRecord {
	looked := LookedRecord{DNSRecord: record, State: RecordMissing}
	found, right, err := answers(ctx, resolver, record)
	switch {
	case err != nil && !unknownName(err):
		looked.State, looked.Reason = RecordUnknown, fault.InWords(err)
	case right:
		looked.State = RecordRight
	case len(found) > 0:
		looked.State = RecordDiffers
	}
	for _, one := range found[:min(len(found), maxAnswers)] {
		if len(one) > maxAnswerBytes {
			one = strings.ToValidUTF8(one[:maxAnswerBytes], "") + "…"
		}
		looked.Found = append(looked.Found, strings.ToValidUTF8(one, "?"))
	}
	return looked
}

// answers returns what is at the name of a record, and whether that is what the record says.
func answers(ctx context.Context, resolver lookups, record DNSRecord) (found []string, right bool, err error) {
	name := strings.TrimSuffix(record.Name, ".") + "."
	switch record.Type {
	case "A", "AAAA": // which address is right only the operator knows
		addresses, err := resolver.LookupIPAddr(ctx, name)
		for _, one := range addresses {
			if (one.IP.To4() != nil) == (record.Type == "A") {
				found = append(found, one.String())
			}
		}
		return found, len(found) > 0, err

	case "MX":
		servers, err := resolver.LookupMX(ctx, name)
		_, want, _ := strings.Cut(record.Value, " ")
		for _, one := range servers {
			found = append(found, one.Host)
			right = right || sameName(one.Host, want)
		}
		return found, right, err

	case "CNAME":
		target, err := resolver.LookupCNAME(ctx, name)
		if err != nil || sameName(target, record.Name) { // the name has addresses of its own, or nothing
			addresses, err := resolver.LookupIPAddr(ctx, name)
			for _, one := range addresses {
				found = append(found, one.String())
			}
			return found, false, err
		}
		return []string{target}, sameName(target, record.Value), nil

	case "TXT":
		texts, err := resolver.LookupTXT(ctx, name)
		version, _, _ := strings.Cut(strings.ToLower(record.Value), ";")
		version, _, _ = strings.Cut(version, " ")
		for _, one := range texts {
			if strings.HasPrefix(strings.ToLower(strings.TrimSpace(one)), version) {
				found = append(found, one)
			}
		}
		return found, len(found) == 1 && sameTags(found[0], record.Value), err
	}
	return nil, false, errors.New("records of the type " + record.Type + " are not looked up")
}

// sameName compares names of the DNS, with or without the point at the end.
func sameName(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

// sameTags compares texts without blanks and the semicolon at the end, which mean nothing in all records that are published.
func sameTags(a, b string) bool {
	bare := func(text string) string {
		return strings.TrimSuffix(strings.Join(strings.Fields(strings.ReplaceAll(text, ";", " ; ")), " "), " ;")
	}
	return bare(a) == bare(b)
}

// unknownName reports whether the DNS says that nothing of the kind is at a name.
func unknownName(err error) bool {
	said, is := errors.AsType[*net.DNSError](err)
	return is && said.IsNotFound
}
