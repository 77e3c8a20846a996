package supervisor

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"mcpbridge/supervisor/demo"
)

// demoSwitch makes the test binary the demo server: a real process to supervise.
const demoSwitch = "MCPBRIDGE_TEST_DEMO_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(demoSwitch) != "" {
		err := demo.Serve(context.Background(), demo.Options{In: os.Stdin, Out: os.Stdout, Stderr: os.Stderr, Version: "test", Exit: os.Exit})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
