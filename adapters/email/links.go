package email

import (
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"inbox/adapters/email/message"
	"inbox/normalized"
)

// Bounds of what is kept of the links in a mail.
const (
	maxLinks     = 20
	maxLinkBytes = 2048
	maxLinkTitle = 200 // runes
)

// linksOf gives the links that a reader can see: where each leads, and the text that it shows. Only the address tells where
// a link leads; its text may name another place. Quotations have been taken out before where they were marked.
func linksOf(document *html.Node) []normalized.Part {
	var links []normalized.Part
	seen := map[string]bool{}
	var walk func(*html.Node)
	walk = func(node *html.Node) {
		if len(links) == maxLinks {
			return
		}
		if address := webAddress(node); address != "" && !seen[address] {
			seen[address] = true
			links = append(links, normalized.Part{Kind: normalized.PartLink, URL: address, Title: message.Clean(plainText(node), maxLinkTitle)})
		}
		for child := node.FirstChild; child != nil; child = child.NextSibling {
			walk(child)
		}
	}
	walk(document)
	return links
}

func webAddress(node *html.Node) string {
	if node.DataAtom != atom.A {
		return ""
	}
	address := attribute(node, "href")
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http" {
		return ""
	}
	if address = parsed.String(); len(address) > maxLinkBytes || strings.ToValidUTF8(address, "") != address {
		return ""
	}
	return address
}
