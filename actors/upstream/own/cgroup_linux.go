package own

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// runPrefix begins the name of every control group of ours; the run's name follows.
const runPrefix = "mcpbridge."

// hierarchy is the bridge's own place in one tree of control groups, and the group in it
// that holds one group for each process tree.
type hierarchy struct {
	base string // where the bridge itself is
	run  string // base/mcpbridge.<run>
	lock int    // descriptor of run, locked as long as the bridge lives
	v2   bool
}

// mountOf finds where a hierarchy is mounted: the unified one, or that of a controller of
// version 1.
func mountOf(controller string) (root, point string, ok bool) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", "", false
	}
	defer func() { _ = f.Close() }()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		left, right, found := strings.Cut(sc.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !found || len(l) < 6 || len(r) < 3 {
			continue
		}
		if controller == "" && r[0] == "cgroup2" ||
			controller != "" && r[0] == "cgroup" && hasWord(r[2], controller) {
			return l[3], l[4], true
		}
	}
	return "", "", false
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// placeOf reads the bridge's own path in a hierarchy.
func placeOf(controller string) (string, bool) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (controller == "" && f[0] == "0" || controller != "" && hasWord(f[1], controller)) {
			return f[2], true
		}
	}
	return "", false
}

// ownGroup is the directory of the bridge's own control group.
func ownGroup(controller string) (string, error) {
	root, point, ok := mountOf(controller)
	if !ok {
		return "", errors.New("no such hierarchy is mounted")
	}
	place, ok := placeOf(controller)
	if !ok {
		return "", errors.New("the bridge is in none")
	}
	rel, err := filepath.Rel(root, place)
	if err != nil || strings.HasPrefix(rel, "..") {
		return "", errors.New("the bridge's own group is outside of what is mounted")
	}
	return filepath.Join(point, rel), nil
}

// openHierarchy makes the run's group and holds its lock: whoever can lock the group of
// another run knows that its bridge is dead.
func openHierarchy(controller, runID string) (*hierarchy, error) {
	base, err := ownGroup(controller)
	if err != nil {
		return nil, err
	}
	h := &hierarchy{base: base, run: filepath.Join(base, runPrefix+runID), v2: controller == ""}
	// To be born into a group, a process needs the right to leave the one above.
	if err := unix.Access(filepath.Join(base, "cgroup.procs"), unix.W_OK); err != nil {
		return nil, fmt.Errorf("%s is not delegated to this user: %w", base, err)
	}
	for try := 0; ; try++ {
		if err := os.Mkdir(h.run, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		if h.lock, err = lockDir(h.run); err == nil {
			break
		}
		if try == 3 { // somebody swept it away between the two, several times
			return nil, err
		}
	}
	if h.v2 {
		if _, err := os.Stat(filepath.Join(h.run, "cgroup.kill")); err != nil {
			h.close()
			return nil, errors.New("the kernel is older than 5.14: no cgroup.kill")
		}
	}
	return h, nil
}

// lockDir locks a directory that is still where it was.
func lockDir(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var open, there unix.Stat_t
	if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		if err = unix.Fstat(fd, &open); err == nil {
			if err = unix.Stat(dir, &there); err == nil && open.Ino != there.Ino {
				err = unix.ENOENT
			}
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sweep kills and removes the groups of runs whose bridge is dead, and returns how many
// could not be removed.
func (h *hierarchy) sweep() (left int) {
	dirs, _ := filepath.Glob(filepath.Join(h.base, runPrefix+"*"))
	for _, dir := range dirs {
		if dir == h.run {
			continue
		}
		fd, err := lockDir(dir)
		if err != nil {
			continue // its bridge lives, or it is gone
		}
		if !destroy(dir, 2*time.Second) {
			left++
		}
		_ = unix.Close(fd)
	}
	return left
}

// destroy kills everything below a group and removes it.
func destroy(dir string, within time.Duration) bool {
	for end, wait := time.Now().Add(within), time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if removeGroup(dir) {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		killGroupDir(dir)
		time.Sleep(wait)
	}
}

// removeGroup removes an empty group with what is below it.
func removeGroup(dir string) bool {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeGroup(filepath.Join(dir, e.Name()))
		}
	}
	err := os.Remove(dir)
	return err == nil || errors.Is(err, os.ErrNotExist)
}

// killGroupDir kills what is in a group and below: at once where the kernel can, else one
// by one.
func killGroupDir(dir string) {
	if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			killGroupDir(filepath.Join(dir, e.Name()))
		}
	}
	b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for f := range bytes.FieldsSeq(b) {
		if pid, err := strconv.Atoi(string(f)); err == nil && pid > 1 && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// populated reports whether something lives in a group of version 2.
func populated(dir string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, os.ErrNotExist) || isErrno(err, unix.ENODEV) {
		return false, nil
	}
	return !bytes.Contains(b, []byte("populated 0")), err
}

func (h *hierarchy) close() {
	_ = unix.Close(h.lock)
	removeGroup(h.run)
}

// enable switches controllers on for the groups of the process trees. Where the bridge is
// alone in its group, it moves into one beside, because a group that hands controllers
// down may hold no process (the root may).
func (h *hierarchy) enable(names ...string) map[string]bool {
	on := map[string]bool{}
	there, _ := os.ReadFile(filepath.Join(h.base, "cgroup.controllers"))
	for _, name := range names {
		if !bytes.Contains(there, []byte(name)) {
			continue
		}
		err := subtree(h.base, "+"+name)
		if isErrno(err, unix.EBUSY) && h.moveAside() {
			err = subtree(h.base, "+"+name)
		}
		if err == nil && subtree(h.run, "+"+name) == nil {
			on[name] = true
		}
	}
	return on
}

func subtree(dir, change string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(change), 0)
}

// aside is the group that the bridge itself moves to.
func (h *hierarchy) aside() string { return h.base + "/bridge-" + filepath.Base(h.run) }

func (h *hierarchy) moveAside() bool {
	self := strconv.Itoa(os.Getpid())
	b, err := os.ReadFile(filepath.Join(h.base, "cgroup.procs"))
	if err != nil || string(bytes.TrimSpace(b)) != self {
		return false
	}
	if err := os.Mkdir(h.aside(), 0o755); err != nil {
		return false
	}
	return os.WriteFile(filepath.Join(h.aside(), "cgroup.procs"), []byte(self), 0) == nil
}

// moveBack undoes moveAside and enable.
func (h *hierarchy) moveBack() {
	if _, err := os.Stat(h.aside()); err != nil {
		return
	}
	_, _ = subtree(h.base, "-memory"), subtree(h.base, "-pids")
	_ = os.WriteFile(filepath.Join(h.base, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
	removeGroup(h.aside())
}
