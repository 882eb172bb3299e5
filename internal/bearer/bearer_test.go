package bearer

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"inbox/exchange"
	"inbox/exchange/exchangetest"
)

func TestOwnTokensAreWellFormed(t *testing.T) {
	token, hash := Mint()
	another, _ := Mint()
	if !WellFormed(token) || hash != Hash(token) || len(hash) != 64 || token == another {
		t.Errorf("token %q, hash %q", token, hash)
	}
	for _, text := range []string{"", "inbox_", token + "x", token[:len(token)-1], "x" + token[1:]} {
		if WellFormed(text) {
			t.Errorf("%q is taken for ours", text)
		}
	}
}

func TestOf(t *testing.T) {
	for header, want := range map[string]string{
		"": "", "Bearer": "", "Bearer ": "", "Bearer a": "a", "bEARER  a ": "a", "Basic a": "", "a": "", "Bearer " + strings.Repeat("x", 513): "",
	} {
		if got := Of(&http.Request{Header: http.Header{"Authorization": {header}}}); got != want {
			t.Errorf("%.20q gives %q", header, got)
		}
	}
}

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := exchangetest.NewTokens(nil)
		cache := NewCache(source)
		find := func(want bool, lookups int) {
			t.Helper()
			token, found, err := cache.Find(t.Context(), "a")
			if found != want || err != nil || (token.ID == "1") != want || source.Lookups() != lookups {
				t.Errorf("found %v %+v, %v, %d look-ups", found, token, err, source.Lookups())
			}
		}
		find(false, 1)
		source.Put("a", exchange.Token{ID: "1"})
		find(true, 2)
		source.Remove("a")
		<-time.After(Remembered - time.Millisecond)
		find(true, 2)
		<-time.After(time.Millisecond)
		find(false, 3)
	})
}

func TestErrorsAreNotRemembered(t *testing.T) {
	source := exchangetest.NewTokens(map[string]exchange.Token{"a": {ID: "1"}})
	source.Fail(errors.New("down"))
	cache := NewCache(source)
	for range 2 {
		if _, _, err := cache.Find(t.Context(), "a"); err == nil {
			t.Error("no error")
		}
	}
	if source.Lookups() != 2 {
		t.Errorf("%d look-ups", source.Lookups())
	}
}

func TestCacheIsBounded(t *testing.T) {
	source := exchangetest.NewTokens(nil)
	cache := NewCache(source)
	for i := range MaxRemembered + 10 {
		source.Put(fmt.Sprint(i), exchange.Token{})
		if _, found, err := cache.Find(t.Context(), fmt.Sprint(i)); !found || err != nil {
			t.Fatal(found, err)
		}
	}
	if cache.found.Len() > MaxRemembered {
		t.Errorf("%d tokens are remembered", cache.found.Len())
	}
}

func TestAddress(t *testing.T) {
	for name, want := range map[string]string{"ada": "@ada@d.test", "two words": "@token-7@d.test", "a@b": "@token-7@d.test", "": "@token-7@d.test"} {
		if got := Address(exchange.Token{ID: "7", Name: name}, "d.test"); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}
