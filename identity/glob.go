package identity

import (
	"fmt"
	"strings"
)

// addressGlob is a pattern over addresses, @local@domain. In the local part * stands for any text, none included. The
// domain may begin with labels *, each standing for exactly one label, or with one ** for one label or more.
type addressGlob struct {
	local  string
	stars  int    // leading labels *
	any    bool   // a leading label **
	domain string // canonical rest; empty = none
}

func parseAddressGlob(pattern string) (addressGlob, error) {
	local, domain, found := strings.Cut(strings.TrimPrefix(pattern, "@"), "@")
	if !found || local == "" || domain == "" || len(pattern) > MaxAddressBytes {
		return addressGlob{}, fmt.Errorf("address: want @user@domain with * in it, got %q", printable(pattern))
	}
	glob := addressGlob{local: local}
	for domain != "" {
		label, rest, _ := strings.Cut(domain, ".")
		if label == "**" && glob.stars == 0 && !glob.any {
			glob.any = true
		} else if label == "*" && !glob.any {
			glob.stars++
		} else {
			break
		}
		domain = rest
	}
	return glob.withDomain(domain)
}

func (g addressGlob) withDomain(domain string) (addressGlob, error) {
	if domain == "" {
		return g, nil
	}
	canonical, err := ParseDomain(domain)
	if err != nil {
		return addressGlob{}, fmt.Errorf("address: * stands for whole labels at the front of a domain, or the domain is none: %q", printable(domain))
	}
	g.domain = canonical
	return g, nil
}

// matches compares local parts exactly, or without regard to case with fold.
func (g addressGlob) matches(a Address, fold bool) bool {
	local, pattern := a.Local, g.local
	if fold {
		local, pattern = strings.ToLower(local), strings.ToLower(pattern)
	}
	return matchStars(pattern, local) && g.matchesDomain(a.Domain)
}

func (g addressGlob) matchesDomain(domain string) bool {
	front, found := strings.CutSuffix(domain, g.domain)
	if !found {
		return false
	}
	if g.domain != "" && front != "" {
		if front, found = strings.CutSuffix(front, "."); !found {
			return false
		}
	}
	if front == "" {
		return g.stars == 0 && !g.any
	}
	return g.any || strings.Count(front, ".")+1 == g.stars
}

// matchStars matches * against any text in linear time for each star.
func matchStars(pattern, text string) bool {
	pieces := strings.Split(pattern, "*")
	if len(pieces) == 1 {
		return pattern == text
	}
	first, last := pieces[0], pieces[len(pieces)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, piece := range pieces[1 : len(pieces)-1] {
		_, after, found := strings.Cut(text, piece)
		if !found {
			return false
		}
		text = after
	}
	return true
}
