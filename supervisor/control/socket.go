package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// maxSocketPath is what every supported system takes in sun_path, less the final zero.
const maxSocketPath = 103

// dialTimeout is how long a daemon on the same machine may take to accept.
const dialTimeout = 5 * time.Second

// Path is where the control socket is: the flag, $MCPBRIDGE_CONTROL, the runtime
// directory of the user, or the state directory.
func Path(flag, stateDir string, env func(string) (string, bool)) string {
	if flag != "" {
		return flag
	}
	if v, _ := env("MCPBRIDGE_CONTROL"); v != "" {
		return v
	}
	if v, _ := env("XDG_RUNTIME_DIR"); v != "" && filepath.IsAbs(v) {
		return filepath.Join(v, "mcpbridge", "control.sock")
	}
	return filepath.Join(stateDir, "control.sock")
}

// InUseError says that somebody answers on the socket already.
type InUseError struct {
	Path string
	PID  int // of who answers; 0 = unknown
}

// Error implements error.
func (e *InUseError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("%s serves on the control socket %s: end it first, or give this bridge another one with --control", who, e.Path)
}

// Listen opens the control socket at path, mode 0600, in a directory of the same
// user. A socket that nobody serves is taken away; anything else at that path, or a
// socket that is in use, is an error. Only connections of the same user come through.
func Listen(path string, logger *slog.Logger) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("control socket %s: the path has %d bytes and the system takes %d: give a shorter one with --control", path, len(path), maxSocketPath)
	}
	if err := socketDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	if err := clearStale(path); err != nil {
		return nil, err
	}
	l, err := listenPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	return &sameUser{l, logger}, nil
}

// socketDir makes the directory, or checks the one that is there.
func socketDir(dir string) error {
	fi, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("%w; give another place with --control", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		if fi, err = os.Stat(dir); err != nil {
			return err
		}
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s is no directory", dir)
	}
	if runtime.GOOS != "windows" && fi.Mode().Perm()&0o022 != 0 && fi.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("others may write in %s and could replace the socket: `chmod go-w %s`, or give another place with --control", dir, dir)
	}
	return nil
}

// clearStale removes a socket that nobody serves.
func clearStale(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	// Windows shows a unix socket as an irregular file.
	if fi.Mode()&(fs.ModeSocket|fs.ModeIrregular) == 0 {
		return fmt.Errorf("control socket %s: there is something else at that path, which is left alone: give another one with --control", path)
	}
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	if err == nil {
		pid, _ := peerPID(conn)
		_ = conn.Close()
		return &InUseError{path, pid}
	}
	if !refused(err) {
		return fmt.Errorf("control socket %s: it is there and cannot be asked (%w): remove it if no bridge runs", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("control socket: remove the one that nobody serves: %w", err)
	}
	return nil
}

// sameUser lets only connections of the same user through, where the system tells
// who connects; elsewhere the mode of the socket and its directory does it.
type sameUser struct {
	net.Listener
	logger *slog.Logger
}

func (l *sameUser) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, known := peerUID(conn); known && uid != os.Geteuid() {
			l.logger.Warn("control socket: refused another user", "uid", uid)
			_ = conn.Close()
			continue
		}
		return conn, nil
	}
}

// dial connects to the socket and makes sure that the same user (or root) serves it.
func dial(ctx context.Context, path string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // the path is told already
		}
		return nil, &NoDaemonError{Path: path, Err: err}
	}
	if uid, known := peerUID(conn); known && uid != os.Geteuid() && uid != 0 {
		_ = conn.Close()
		return nil, &NoDaemonError{Path: path, Err: fmt.Errorf("the socket belongs to user %d", uid)}
	}
	return conn, nil
}
