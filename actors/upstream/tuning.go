package upstream

import "time"

// tuning holds the times that no configuration gives. Tests make them short.
type tuning struct {
	// probeStdio and probeHTTP are how long server/discover may stay unanswered,
	// from its write on, before the older handshake is tried on the same connection.
	probeStdio, probeHTTP time.Duration
	// minWrite is how long a call may take to be written when its deadline is
	// nearer (or not given): a partial write cannot be taken back.
	minWrite time.Duration
	// controlWrite bounds the writing of everything that is no call.
	controlWrite time.Duration
	// eofGrace is how long a process may take to exit after it closed its stdout,
	// and then again after SIGTERM.
	eofGrace time.Duration
	// listenDelay is the first pause before a lost event stream is opened again.
	listenDelay time.Duration
	// lastWords is how long exchanges may still bring their answers when the session
	// they belong to has ended.
	lastWords time.Duration
	// connLife is connectionLife.
	connLife time.Duration
}

var defaultTuning = tuning{
	probeStdio: 2 * time.Second, probeHTTP: 5 * time.Second,
	minWrite: 5 * time.Second, controlWrite: 30 * time.Second,
	eofGrace: time.Second, listenDelay: time.Second, lastWords: 2 * time.Second, connLife: connectionLife,
}
