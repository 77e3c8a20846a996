package journal

import (
	"errors"
	"log/slog"
	"time"
)

// Fsync says when what was written is forced to the disk.
type Fsync string

// The policies of `journal.fsync`.
const (
	// FsyncAlways: a dispatch is on the disk before its call may be sent.
	FsyncAlways Fsync = "always"
	// FsyncInterval: a dispatch is with the operating system before its call may be
	// sent, and on the disk within Options.Interval.
	FsyncInterval Fsync = "interval"
	// FsyncOff: the operating system decides when it reaches the disk.
	FsyncOff Fsync = "off"
)

// Options of a journal. Dir and RunID are needed, everything else has a default.
type Options struct {
	Dir   string // made with mode 0700 where it is missing
	RunID string // of this life of the daemon
	Fsync Fsync  // default FsyncAlways
	// Interval bounds how long an outcome, and with FsyncInterval a dispatch, may
	// wait for its sync; default 200 ms.
	Interval time.Duration
	Keep     time.Duration // how long settled calls are kept; default 7 days
	MaxSize  int64         // of all segments together; default 256 MiB, at least 64 KiB
	Logger   *slog.Logger  // default: nothing is logged
	FS       FS            // default: the operating system's files
	Now      func() time.Time

	// These are made small by tests.
	segmentMax int64
	maxEntries int
	maxFiles   int64
}

const (
	// KeyWindow is how long an idempotency key is remembered, from its dispatch.
	KeyWindow = 24 * time.Hour

	minSize    = 64 << 10
	maxSegment = 16 << 20 // a segment is an eighth of MaxSize, at most this
	retryPause = time.Second
	maintain   = time.Hour
)

func (o *Options) fill() error {
	if o.Dir == "" {
		return errors.New("journal: no directory given")
	}
	if o.RunID == "" {
		return errors.New("journal: no run id given")
	}
	switch o.Fsync {
	case "":
		o.Fsync = FsyncAlways
	case FsyncAlways, FsyncInterval, FsyncOff:
	default:
		return errors.New("journal: fsync must be always, interval or off, not " + string(o.Fsync))
	}
	if o.Interval <= 0 {
		o.Interval = 200 * time.Millisecond
	}
	if o.Keep <= 0 {
		o.Keep = 7 * 24 * time.Hour
	}
	if o.MaxSize <= 0 {
		o.MaxSize = 256 << 20
	}
	o.MaxSize = max(o.MaxSize, minSize)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil {
		o.FS = systemFS()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.segmentMax <= 0 {
		o.segmentMax = min(o.MaxSize/8, maxSegment)
	}
	if o.maxEntries <= 0 {
		o.maxEntries = 100_000
	}
	if o.maxFiles <= 0 {
		o.maxFiles = 1024
	}
	return nil
}
