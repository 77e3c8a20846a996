// Package crash ends the real daemon at every operation of its journal, just before it,
// within it and just after it, by kill -9 and by a power failure that takes away what was
// not synced, and has each operation fail with a full and with a broken disk. After each
// of these points a daemon without faults starts over what is left, and the journal, the
// callers and the witness must agree: what began is known, nothing is sent again, nothing
// is claimed that did not happen, and what may still run at a remote server is fenced.
//
// `go test` takes a spread of the points, `make crash` all of them. It runs on Linux.
package crash
