// Package filetype tells the type of a file whose sender said none, or one that says nothing: programs take a type from the software of
// their machine, and send octets where that knows none.
package filetype

import (
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
)

// Unknown is the type of a file of which nothing tells the type.
const Unknown = "application/octet-stream"

// Picture is the type of a picture of which no more is known.
const Picture = "image/*"

// empty are types that say nothing.
var empty = []string{"", Unknown, "binary/octet-stream", "application/binary", "application/download", "application/force-download", "application/x-download", "application/unknown"}

// ofTables are what Windows calls a table that is text, because a program for tables opens it.
var ofTables = []string{"application/vnd.ms-excel", "application/msexcel"}

// Of returns the type of a file: as its sender says it, or by the end of its name, or by its bytes. Absent bytes tell nothing.
func Of(said, name string, content []byte) string {
	base, _, err := mime.ParseMediaType(said)
	if err != nil {
		base = said
	}
	byName := ByName(name)
	switch {
	case slices.Contains(ofTables, base) && strings.HasPrefix(byName, "text/"):
		return byName
	case !slices.Contains(empty, base):
		return said
	case byName != "":
		return byName
	case len(content) > 0:
		found, _, _ := strings.Cut(http.DetectContentType(content), ";")
		return found
	}
	return Unknown
}

// ByName returns the type that the end of a name says; empty = none.
func ByName(name string) string { return endings[strings.ToLower(path.Ext(name))] }

// endings are a table of our own, because that of the standard library differs between machines.
var endings = table(map[string]string{
	"image/jpeg": "jpg jpeg jpe", "image/png": "png", "image/gif": "gif", "image/webp": "webp", "image/avif": "avif", "image/heic": "heic",
	"image/svg+xml": "svg", "video/mp4": "mp4 m4v", "video/webm": "webm", "video/quicktime": "mov", "audio/mpeg": "mp3", "audio/mp4": "m4a",
	"audio/ogg": "ogg oga opus", "audio/flac": "flac", "audio/wav": "wav", "application/pdf": "pdf", "application/zip": "zip",
	"application/epub+zip": "epub", "application/json": "json", "application/xml": "xml", "application/yaml": "yaml yml", "application/toml": "toml",
	"text/markdown": "md markdown", "text/csv": "csv", "text/tab-separated-values": "tsv tab", "text/html": "html htm", "text/css": "css",
	"text/calendar": "ics", "text/vcard": "vcf", "text/javascript": "js mjs",
	"text/plain": "txt text log ini cfg conf env diff patch rst tex srt sql sh py go rs c h cc cpp hpp java kt swift rb php pl lua ts tsx jsx vue r jl jsonl ndjson",
})

func table(types map[string]string) map[string]string {
	ends := map[string]string{}
	for mediaType, list := range types {
		for end := range strings.FieldsSeq(list) {
			ends["."+end] = mediaType
		}
	}
	return ends
}
