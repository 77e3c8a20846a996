//go:build linux

package own

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"mcpbridge/test/harness"
)

// refuseClone3 makes this test binary a wrapper: it has the system refuse clone3 with the
// error named in the variable, for itself and its children, and becomes the program that
// is its arguments. Only births into a control group use that call; threads do not.
const (
	refuseClone3 = "MCPBRIDGE_TEST_REFUSE_CLONE3"
	// pureProgram is a bridgectl without C: the C library makes its threads with clone3, too.
	pureProgram = "MCPBRIDGE_TEST_PURE"
)

// pureBridgectl builds one.
func pureBridgectl(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bridgectl")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/bridgectl")
	cmd.Dir, cmd.Env = harness.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func TestMain(m *testing.M) {
	if name := os.Getenv(refuseClone3); name != "" {
		err := refuse(map[string]unix.Errno{"EAGAIN": unix.EAGAIN, "ENOMEM": unix.ENOMEM, "ENOSYS": unix.ENOSYS, "EPERM": unix.EPERM}[name])
		if err == nil {
			err = syscall.Exec(os.Getenv(pureProgram), os.Args[1:], os.Environ())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
	os.Exit(harness.Main(m))
}

// refuse installs a filter of system calls. Exec keeps it for the whole program.
func refuse(with unix.Errno) error {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
	)
	program := []unix.SockFilter{
		{Code: load, K: 0}, // the number of the call
		{Code: equal, K: unix.SYS_CLONE3, Jf: 1},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(with)},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	// For all threads: which of them becomes the program is not ours to say.
	if _, _, no := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); no != 0 {
		return fmt.Errorf("seccomp: %w", no)
	}
	return nil
}
