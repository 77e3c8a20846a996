package upstream

import (
	"os"
	"syscall"
)

// On Windows only the process itself is ended: there is no gentle signal, what it
// started is not tracked, and nothing ends the children of a bridge that is
// killed. Pipes have no deadlines either: a write to a server that does not read
// ends with its process only. Servers that end on a closed stdin stop properly.

func sysProcAttr() *syscall.SysProcAttr { return nil }

func sealDescriptors() {}

const observesDeath = false

func awaitDeath(int) {}

func terminateGroup(p *os.Process) { _ = p.Kill() }

func killGroup(p *os.Process) { _ = p.Kill() }

func killSurvivors(int, [][]byte) int { return 0 }
