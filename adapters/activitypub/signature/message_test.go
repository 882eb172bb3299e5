package signature

import (
	"net/http"
	"testing"
	"time"
)

func FuzzMessageSignatures(f *testing.F) {
	f.Add(`sig1=("@method" "@target-uri" "content-digest");created=1700000000;keyid="https://a.example/k"`, `sig1=:AAAA:`)
	f.Add(`a=("@path";req);created=1, b=()`, `a=:AA==:, b=:AA==:`)
	f.Fuzz(func(t *testing.T, input, signature string) {
		header := http.Header{"Signature-Input": {input}, "Signature": {signature}, "Date": {"x"}}
		request := Request{Method: http.MethodPost, Target: "/inbox", Host: "a.example", Origin: "https://a.example", Header: header}
		if _, err := checkMessageSignature(request, time.Now()); err == nil {
			t.Error("accepted without a matching digest")
		}
	})
}
