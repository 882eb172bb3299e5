package document

import (
	"testing"

	"inbox/identity"
)

func FuzzReadResource(f *testing.F) {
	f.Add([]byte(`{"subject":"acct:alice@m.example","links":[{"rel":"self","type":"application/activity+json","href":"https://m.example/users/alice"}]}`))
	f.Add([]byte(`{"subject":"alice@m.example","links":{"rel":"self","type":"application/ld+json; profile=\"https://www.w3.org/ns/activitystreams\"","href":7}}`))
	f.Add([]byte(`{"subject":"acct:a@b","links":[[]]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		subject, _, err := ReadResource(body)
		if _, bad := identity.ParseAddress(subject.String()); err == nil && bad != nil {
			t.Errorf("%s: subject %q is no address", body, subject)
		}
	})
}
