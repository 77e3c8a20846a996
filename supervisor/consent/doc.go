// Package consent keeps what a person has agreed to, across lives of the bridge:
//
//   - servers.json: the entries of project layers that were approved;
//   - pins/*.json: for each server, the definitions of its tools that were seen
//     first, or approved since;
//   - grants.json: calls that were approved and not made yet. It is there only while
//     no bridge runs: read and removed at the start, written at an orderly end, so
//     that no grant can be used twice, whatever happens in between.
//
// # Contract
//
// Everything is in the state directory, readable by its owner only, and replaced as a
// whole: a reader finds the old file or the new one. Without a directory everything
// is in memory.
//
// A file that is damaged agrees to nothing: no entry counts as approved, and every
// definition of that server waits for a person. Issues names it. It is kept as
// NAME.damaged when the next one is written. A file that is not there is a first
// start.
//
// Approvals of entries are keyed digests (HMAC-SHA-256 under a key of the state
// directory): literal secrets in an entry cannot be found out from the file.
//
// Nothing here blocks on the disk but Open and Close: files are written behind the
// callers. All methods may be used from any goroutine.
package consent
