// Package channeltest has the conformance suites of channel.Marks and channel.Sessions: what connectors rely on
// whoever keeps the rows. It is for tests only.
package channeltest
