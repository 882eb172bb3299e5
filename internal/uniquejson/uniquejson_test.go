package uniquejson_test

import (
	"strings"
	"testing"

	"inbox/internal/uniquejson"
)

func TestObject(t *testing.T) {
	for body, good := range map[string]bool{
		`{}`: true, "\t" + `{"a":1,"b":{"a":1},"c":[{"a":1},{"a":2}]}`: true, `{"a":"{\"a\":1,\"a\":2}"}`: true,
		`{"a":1,"a":1}`: false, `{"a":1,"A":1}`: false, `{"cnf":{"jkt":"x","jkt":"y"}}`: false, `{"aud":[{"x":1,"x":2}]}`: false, `{"resource_access":{"app":1,"App":2}}`: true,
		`{"sub":1,"\u0073ub":2}`: false, `{"sub":1,"\u017fub":2}`: false, `{"kid":1,"\u212aid":2}`: false,
		``: false, `[]`: false, `"a"`: false, `{"a":1}{}`: false, `{"a":}`: false, "{\"a\":\"\xff\"}": false,
		`{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`: false,
	} {
		if err := uniquejson.Object([]byte(body)); (err == nil) != good {
			t.Errorf("%s: %v", body, err)
		}
	}
}
