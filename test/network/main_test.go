// Package network tests what the bridge makes of everything that a network and an
// HTTP server can do to it: real connections to a scripted server (origin_test.go)
// through a proxy that breaks them byte by byte (wire_test.go), with the server's own
// witness log as the judge and a neighbour that must never notice (rig_test.go).
//
// The names of the tests hold the rows that they check.
package network

import (
	"os"
	"testing"

	"mcpbridge/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
