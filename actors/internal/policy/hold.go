package policy

import "mcpbridge/messages"

// OnChange is what becomes of a tool whose definition nobody has approved.
type OnChange uint8

// HoldBack keeps it from being offered and called where it may do anything, Warn only
// tells of it, TakeOver takes the new definition for the right one. The zero value is
// the strictest.
const (
	HoldBack OnChange = iota
	Warn
	TakeOver
)

// Hold reports whether a tool with a definition that nobody has approved is held back.
// A tool that only reads is not; but it must have done so before as well: a hint that
// is trusted may be the very thing that has changed.
func Hold(on OnChange, before, now messages.Effect) bool {
	return on != Warn && on != TakeOver && (before != messages.ReadOnly || now != messages.ReadOnly)
}
