package webhook

import (
	"encoding/json"
	"os"
	"testing"
)

// TestRecordedSignatures runs the recorded verdicts of the reference runtime.
func TestRecordedSignatures(t *testing.T) {
	recorded, err := os.ReadFile("testdata/webhook-signature.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Count int
		Cases []struct {
			Name  string
			Input struct {
				Body, Header, Secret string
				Options              struct {
					AllowRawHex    bool `json:"allow_raw_hex"`
					ExpectedPrefix any  `json:"expected_prefix"`
				}
			}
			Expected struct{ OK bool }
		}
	}
	if err := json.Unmarshal(recorded, &file); err != nil || len(file.Cases) != file.Count {
		t.Fatalf("%d of %d cases, %v", len(file.Cases), file.Count, err)
	}
	for _, test := range file.Cases {
		t.Run(test.Name, func(t *testing.T) {
			prefix, _ := test.Input.Options.ExpectedPrefix.(string)
			options := VerifyOptions{Prefix: prefix, AllowRawHex: test.Input.Options.AllowRawHex}
			if got := Verify(test.Input.Secret, []byte(test.Input.Body), test.Input.Header, options); got != test.Expected.OK {
				t.Errorf("Verify = %v, want %v", got, test.Expected.OK)
			}
		})
	}
}

func TestSignVerifies(t *testing.T) {
	body := []byte(`{"version":1}`)
	header := Sign("s", body)
	if !Verify("s", body, header, VerifyOptions{}) {
		t.Error("a signature of ours does not verify")
	}
	if Verify("t", body, header, VerifyOptions{}) || Verify("s", append(body, ' '), header, VerifyOptions{}) ||
		Verify("s", body, "", VerifyOptions{}) || Verify("", body, Sign("", body), VerifyOptions{}) {
		t.Error("a wrong signature verifies")
	}
}
