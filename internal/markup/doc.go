// Package markup reads Markdown, HTML and plain text that strangers and agents write into a tree, and writes a tree as HTML for a page, as
// Markdown or as plain text, whole or in pieces. It knows no protocol; the caller says what is hidden and what a page may hold.
//
// Every conversion costs in proportion to its input, whatever the input is: nesting, elements and output are bounded while
// they grow. Beyond the bound of nesting the text stays and its structure is dropped; beyond the bound of size the rest is
// cut, and the caller is told.
package markup
