// Package e2e tests the bridge from the outside: the built bridgectl, real server
// processes, the endpoint over real sockets, and the library beside them.
package e2e

import (
	"os"
	"testing"

	"mcpbridge/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
