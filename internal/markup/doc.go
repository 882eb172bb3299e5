// Package markup converts HTML and Markdown that strangers and agents write: HTML to a tree, a tree to Markdown or to plain
// text, Markdown to HTML. It knows no protocol; the caller says what is hidden and what a link means.
//
// Every conversion costs in proportion to its input, whatever the input is: nesting, elements and output are bounded while
// they grow. Beyond the bound of nesting the text stays and its structure is dropped; beyond the bound of size the rest is
// cut, and the caller is told.
package markup
