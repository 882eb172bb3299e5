package report

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/internal/golden"
)

func stored(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	packer := gzip.NewWriter(&out)
	if _, err := packer.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipped(t testing.TB, names []string, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	packer := zip.NewWriter(&out)
	for _, name := range names {
		file, err := packer.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// mail is one with a file: the whole mail is the file where there is no text.
func mail(subject, top, text, media, name string, data []byte) []byte {
	coded := base64.StdEncoding.EncodeToString(data)
	var lines []string
	for len(coded) > 76 {
		lines, coded = append(lines, coded[:76]), coded[76:]
	}
	file := "Content-Type: " + media + "; name=\"" + name + "\"\nContent-Disposition: attachment; filename=\"" + name + "\"\nContent-Transfer-Encoding: base64\n\n" +
		strings.Join(append(lines, coded), "\n") + "\n"
	whole := "From: <reports@reporter.test>\nTo: <postmaster@inbox.test>\nSubject: " + subject + "\nMIME-Version: 1.0\n"
	if text == "" {
		whole += file
	} else {
		whole += "Content-Type: " + top + "; boundary=\"b1\"\n\n--b1\nContent-Type: text/plain\n\n" + text + "\n--b1\n" + file + "--b1--\n"
	}
	return []byte(strings.ReplaceAll(whole, "\n", "\r\n"))
}

func read(t testing.TB, mail []byte) (exchange.MailReport, error) {
	t.Helper()
	fields, body, err := message.Split(mail)
	if err != nil {
		t.Fatal(err)
	}
	return Read(fields, body)
}

// TestReportsOfManySenders reads reports in the forms in which large senders write and pack them.
func TestReportsOfManySenders(t *testing.T) {
	const subject = "Report Domain: inbox.test Submitter: reporter.test Report-ID: 1"
	for name, c := range map[string]struct {
		subject, top, text, media, file string
		pack                            func(data []byte) []byte
	}{
		"google-one-source-passes.xml": {subject, "", "", "application/zip", "google.com!inbox.test!1764028800!1764115199.zip", func(data []byte) []byte {
			return zipped(t, []string{"google.com!inbox.test!1764028800!1764115199.xml"}, data)
		}},
		"microsoft-forgery-rejected-and-forwarder-passes.xml":  {"[Preview] " + subject, "multipart/mixed", "This is a report.", "application/gzip", "protection.outlook.com!inbox.test!1764028800!1764115200.xml.gz", func(data []byte) []byte { return gzipped(t, data) }},
		"yahoo-mailing-list-overridden.xml":                    {subject, "multipart/mixed", "This is an aggregate report.", "application/gzip", "yahoo.com!inbox.test!1764028800!1764115199.xml.gz", func(data []byte) []byte { return gzipped(t, data) }},
		"fastmail-subdomain-with-version-2-namespace.xml":      {subject, "multipart/mixed", "A report.", "application/octet-stream", "fastmail.com!inbox.test!1764028800!1764115199!1.xml.gz", func(data []byte) []byte { return gzipped(t, data) }},
		"mailru-in-windows-1251.xml":                           {subject, "multipart/mixed", "A report.", "text/xml", "mail.ru!inbox.test!1764028800!1764115200.xml", func(data []byte) []byte { return data }},
		"google-tls-all-sessions-encrypted.json":               {subject, "multipart/report; report-type=\"tlsrpt\"", "A report.", "application/tlsrpt+gzip", "google.com!inbox.test!1764028800!1764115199!001.json.gz", func(data []byte) []byte { return gzipped(t, data) }},
		"microsoft-tls-no-policy-and-expired-certificate.json": {subject, "multipart/report; report-type=tlsrpt", "A report.", "application/tlsrpt+json", "microsoft.com!inbox.test!1764028800!1764115199!1.json", func(data []byte) []byte { return data }},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := read(t, mail(c.subject, c.top, c.text, c.media, c.file, c.pack(stored(t, name))))
			if err != nil {
				t.Fatal(err)
			}
			found, err := json.MarshalIndent(report, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, name+".golden", append(found, '\n'))
		})
	}
}

// TestWhatIsNoReport: other mail has none, and what says to be one and cannot be read says why.
func TestWhatIsNoReport(t *testing.T) {
	good := stored(t, "google-one-source-passes.xml")
	goodTLS := stored(t, "microsoft-tls-no-policy-and-expired-certificate.json")
	const subject = "Report Domain: inbox.test Submitter: reporter.test Report-ID: 1"
	change := func(old, replaced string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("no %q", old)
		}
		return bytes.Replace(good, []byte(old), []byte(replaced), 1)
	}
	record := good[bytes.Index(good, []byte("  <record>")):bytes.Index(good, []byte("</feedback>"))]
	for name, c := range map[string]struct {
		subject, file string
		data          []byte
		want          string // in the error; empty = an ordinary mail
	}{
		"an archive of pictures":        {"Holidays", "photos.zip", zipped(t, []string{"a.jpg"}, []byte("x")), ""},
		"another document":              {"A page", "page.xml", []byte("<html><body>feedback</body></html>"), ""},
		"a list":                        {"Prices", "prices.json", []byte(`{"prices":[1]}`), ""},
		"a report without its file":     {subject, "report.txt", good, "no file"},
		"an archive without a report":   {subject, "report.zip", zipped(t, []string{"readme.txt"}, good), "no file"},
		"a cut archive":                 {subject, "report.zip", zipped(t, []string{"a.xml"}, good)[:200], "zip"},
		"a cut stream":                  {subject, "report.xml.gz", gzipped(t, good)[:100], "unexpected EOF"},
		"a bomb in gzip":                {"x", "report.xml.gz", gzipped(t, append(bytes.Clone(good), bytes.Repeat([]byte(" "), maxUnpacked)...)), "unpacks to more"},
		"a bomb in zip":                 {"x", "report.zip", zipped(t, []string{"a.xml"}, bytes.Repeat([]byte(" "), maxUnpacked+1)), "unpacks to more"},
		"a large file":                  {"x", "report.xml", append(bytes.Clone(good), bytes.Repeat([]byte(" "), maxPacked)...), "larger than"},
		"a document type":               {"x", "r.xml", change("<feedback>", "<!DOCTYPE feedback [<!ENTITY a \"b\">]><feedback>"), "document type"},
		"an unknown entity":             {"x", "r.xml", change("google.com<", "&lol;<"), "read XML"},
		"an end too early":              {"x", "r.xml", good[:len(good)-20], "read XML"},
		"elements inside of each other": {"x", "r.xml", change("<version>", strings.Repeat("<a>", maxElements)+"<version>"), "deep"},
		"no id":                         {"x", "r.xml", change("4711081500000000001", " "), "report_id"},
		"no domain":                     {"x", "r.xml", change("<domain>inbox.test</domain>\n    <adkim>", "<adkim>"), "which domain"},
		"no period":                     {"x", "r.xml", change("<end>1764115199", "<end>1"), "no period"},
		"an unreadable time":            {"x", "r.xml", change("1764028800", "yesterday"), "no time"},
		"an unreadable count":           {"x", "r.xml", change("<count>12", "<count>-12"), "no count"},
		"a count of nothing":            {"x", "r.xml", change("<count>12</count>", ""), "no count"},
		"no address":                    {"x", "r.xml", change("192.0.2.10", "a host"), "no address"},
		"no records":                    {"x", "r.xml", bytes.Replace(good, record, nil, 1), "no records"},
		"more records than anybody has": {"x", "r.xml", bytes.Replace(good, record, bytes.Repeat([]byte("<record><row><source_ip>192.0.2.1</source_ip><count>1</count></row></record>"), maxRows+1), 1), "more than 5000 lines"},
		"JSON inside of itself":         {"x", "r.json", []byte(`{"policies":` + strings.Repeat("[", 100)), "nests too deeply"},
		"JSON that is none":             {"x", "r.json", []byte(`{"policies": x`), "read JSON"},
		"TLS of two domains":            {"x", "r.json", bytes.Replace(goodTLS, []byte(`"policy-domain": "inbox.test"}, "summary"`), []byte(`"policy-domain": "else.test"}, "summary"`), 1), "several domains"},
		"TLS without a period":          {"x", "r.json", bytes.Replace(goodTLS, []byte("2025-11-25T00:00:00Z"), []byte("yesterday"), 1), "no time"},
		"TLS with a negative number":    {"x", "r.json", bytes.Replace(goodTLS, []byte(`"failed-session-count": 3`), []byte(`"failed-session-count": -3`), 1), "number of sessions"},
		"TLS with a large number":       {"x", "r.json", bytes.Replace(goodTLS, []byte(`session-count": 2`), []byte(`session-count": 2000000000000`), 1), "number of sessions"},
		"TLS without policies":          {"x", "r.json", []byte(`{"policies":[],"report-id":"1","date-range":{"start-datetime":"2025-11-25T00:00:00Z","end-datetime":"2025-11-25T00:00:00Z"}}`), "no policies"},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := read(t, mail(c.subject, "multipart/mixed", "text", "application/octet-stream", c.file, c.data))
			if report.Kind != "" || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, %v; want an error with %q", report.Kind, err, c.want)
			}
		})
	}
}

// TestLargestReports: the largest report that is read takes little.
func TestLargestReports(t *testing.T) {
	good := stored(t, "google-one-source-passes.xml")
	record := good[bytes.Index(good, []byte("  <record>")):bytes.Index(good, []byte("</feedback>"))]
	large := bytes.Replace(good, record, bytes.Repeat(record, maxRows), 1)
	if len(large) > maxUnpacked {
		t.Fatalf("%d bytes", len(large))
	}
	began := time.Now()
	report, err := DMARC(large)
	if err != nil || len(report.Rows) != maxRows {
		t.Fatalf("%d rows, %v", len(report.Rows), err)
	}
	t.Logf("%d bytes in %s", len(large), time.Since(began))
}

// checkRead holds what is read to what the table can have.
func checkRead(t *testing.T, report exchange.MailReport) {
	t.Helper()
	if report.ReportID == "" || report.Domain == "" || len(report.Rows) == 0 || len(report.Rows) > maxRows || report.Ends.Before(report.Begins) {
		t.Fatalf("%+v", report)
	}
	for _, row := range report.Rows {
		if row.Count < 0 || row.Count > maxCount || row.Result == "" || len(row.Detail) > maxValue || strings.ContainsAny(fmt.Sprint(row), "\r\n\x00") {
			t.Fatalf("%+v", row)
		}
	}
}

func FuzzDMARC(f *testing.F) {
	for _, name := range []string{"google-one-source-passes.xml", "microsoft-forgery-rejected-and-forwarder-passes.xml", "yahoo-mailing-list-overridden.xml", "fastmail-subdomain-with-version-2-namespace.xml", "mailru-in-windows-1251.xml"} {
		f.Add(stored(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if report, err := DMARC(data); err == nil {
			checkRead(t, report)
		}
	})
}

func FuzzTLS(f *testing.F) {
	for _, name := range []string{"google-tls-all-sessions-encrypted.json", "microsoft-tls-no-policy-and-expired-certificate.json"} {
		f.Add(stored(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if report, err := TLS(data); err == nil {
			checkRead(t, report)
		}
	})
}

func FuzzFiles(f *testing.F) {
	data := stored(f, "google-one-source-passes.xml")
	f.Add(gzipped(f, data))
	f.Add(zipped(f, []string{"a.xml"}, data))
	f.Fuzz(func(t *testing.T, data []byte) {
		if report, err := readFile(data); err == nil {
			checkRead(t, report)
		}
	})
}
