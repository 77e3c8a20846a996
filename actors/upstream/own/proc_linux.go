package own

import (
	"bytes"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// proc is one line of the process table.
type proc struct {
	pid, ppid, pgid, sid int
	started              uint64 // ticks since boot
	state                byte
}

func (p proc) dead() bool { return p.state == 'Z' || p.state == 'X' }

// table reads the process table. ok is false when it could not be read, or not all of it:
// then nothing is proven.
func table() (all []proc, ok bool) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close()
	if err != nil {
		return nil, false
	}
	ok = true
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, err := look(pid)
		switch {
		case err == nil:
			all = append(all, p)
		case !gone(err):
			ok = false
		}
	}
	return all, ok
}

// gone reports whether an error says that the process is no more.
func gone(err error) bool {
	return os.IsNotExist(err) || isErrno(err, unix.ESRCH)
}

// look reads one process. The command name in its line may hold anything, so parsing
// starts behind its last parenthesis.
func look(pid int) (proc, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, err
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return proc{}, unix.ESRCH
	}
	num := func(i int) int { n, _ := strconv.Atoi(string(f[i])); return n }
	started, _ := strconv.ParseUint(string(f[19]), 10, 64)
	return proc{pid: pid, state: f[0][0], ppid: num(1), pgid: num(2), sid: num(3), started: started}, nil
}

// ticks is now on the clock of proc.started.
func ticks() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	const userHZ = 100 // what the kernel shows to programs, whatever it counts by itself
	return uint64(ts.Sec)*userHZ + uint64(ts.Nsec)/(1e9/userHZ)
}

// carries reports whether a process was started with all of these variables, each given
// as NAME=value and a zero byte. What cannot be read belongs to somebody else.
func carries(pid int, marks [][]byte) bool {
	if len(marks) == 0 {
		return false
	}
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || len(env) == 0 {
		return false
	}
	for _, m := range marks {
		if !bytes.HasPrefix(env, m) && !bytes.Contains(env, append([]byte{0}, m...)) {
			return false
		}
	}
	return true
}

// kill kills this very process: a later one with its number is not touched.
func (p proc) kill() {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		if err == unix.ENOSYS || err == unix.EMFILE || err == unix.ENFILE || err == unix.EPERM {
			if now, e := look(p.pid); e == nil && now.started == p.started {
				_ = unix.Kill(p.pid, unix.SIGKILL)
			}
		}
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if now, err := look(p.pid); err == nil && now.started == p.started {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// kin finds who belongs to a tree: the seeds, whoever descends from one, and whoever is in
// a group or session that one of them leads. Nobody in spare is kin, nor is process 1.
func kin(all []proc, seed func(proc) bool, spare map[int]bool) (out []proc) {
	in := map[int]bool{}
	take := func(is func(proc) bool) (grown bool) {
		for _, p := range all {
			if !in[p.pid] && !spare[p.pid] && p.pid != 1 && is(p) {
				in[p.pid], grown = true, true
				out = append(out, p)
			}
		}
		return grown
	}
	for more := take(seed); more; {
		more = take(func(p proc) bool { return in[p.ppid] || in[p.pgid] || in[p.sid] })
	}
	return out
}

func isErrno(err error, no unix.Errno) bool { return errors.Is(err, no) }
