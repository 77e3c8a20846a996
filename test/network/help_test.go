package network

import (
	"bytes"
	"encoding/pem"
	"os"
	"testing"

	"mcpbridge/test/harness"
)

func contains(b []byte, s string) bool { return bytes.Contains(b, []byte(s)) }

// trust writes the certificate of a TLS server into a file.
func trust(t *testing.T, lab *harness.Lab, o *origin) string {
	t.Helper()
	path := lab.Path("ca.pem")
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Certificate().Raw})
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
