// Package planted holds the bugs that the checker must catch. A checker that has never
// seen a broken bridge proves nothing about a whole one, so each promise has here the
// mistake that breaks it, written into the real code at the place where it would be made:
//
//	if planted.Is(planted.RetryOnEOF) { … }
//
// Without the build tag `planted`, Is is the constant false and the compiler leaves
// nothing of a bug behind; a test of the ordinary binary holds it to that. With the tag,
// MCPBRIDGE_PLANTED names the one bug that is active, an unknown name ends the program,
// and a program with an active bug says so on stderr. Package test/planted runs them all.
//
// The package imports nothing of the bridge, so that every other one may import it.
package planted

// Bug is the name of a mistake.
type Bug string

// The bugs, by the room in which they live; All says what each of them does.
const (
	RetryOnEOF            Bug = "retry-on-eof"
	FreedOnTimeout        Bug = "lane-freed-on-timeout"
	FreedOnCancel         Bug = "lane-freed-on-cancel"
	FreedOnRemoteLoss     Bug = "lane-freed-on-remote-loss"
	AbandonedWithoutProof Bug = "abandoned-without-proof"
	GhostForgotten        Bug = "first-attempt-forgotten"
	SettledTwice          Bug = "settled-twice"
	LateReplyUncounted    Bug = "late-reply-uncounted"
	NotSentWhileWriting   Bug = "not-sent-while-writing"
	LostAsNotSent         Bug = "lost-as-not-sent"
	StaleReply            Bug = "stale-reply-taken"
	DeadlineIgnored       Bug = "deadline-ignored"
	QueueWaitWrong        Bug = "queue-wait-includes-run"
	DrainAccepts          Bug = "drain-accepts"
	DrainKeepsQueue       Bug = "drain-keeps-queue"
	DrainCutsShort        Bug = "drain-cuts-short"
	ServerDrainCutsShort  Bug = "server-drain-cuts-short"
	KeyNotJoined          Bug = "key-not-joined"
	SentBeforeRecorded    Bug = "sent-before-recorded"
	OutcomeRecordedEarly  Bug = "outcome-recorded-early"
	ReadBesideEffect      Bug = "read-beside-effect"
	TwoEffects            Bug = "two-effects"
	SerialReadWaits       Bug = "serial-read-waits"
	LaneLIFO              Bug = "lane-lifo"
	UnfairClients         Bug = "unfair-clients"
	StoppedRevived        Bug = "stopped-server-revived"
	SlotAfterStop         Bug = "spawned-after-stop"
	BackoffResetAtReady   Bug = "backoff-reset-at-ready"
	BackoffIgnored        Bug = "backoff-ignored"
	GenerationKept        Bug = "generation-kept"
	SuccessorTooEarly     Bug = "successor-too-early"
	TreeNotKilled         Bug = "tree-not-killed"
	ReplyToWrongCall      Bug = "reply-to-wrong-call"
	WaiterLeaked          Bug = "waiter-leaked"
	FenceAtStartForgotten Bug = "fence-at-start-forgotten"
	DispatchNotSynced     Bug = "dispatch-not-synced"
	DirectoryNotSynced    Bug = "directory-not-synced"
	TornTailKept          Bug = "torn-tail-kept"
	OutcomesNotOwed       Bug = "refused-outcomes-forgotten"
)

// Who catches a bug.
const (
	Squall     = "squall"     // a short storm over the real daemon, judged by package test/history
	Simulation = "simulation" // TestSim of actors/internal/dispatch
	Journal    = "journal"    // the journal's crash tests
)

// Info is what there is to know of a bug.
type Info struct {
	Bug   Bug
	Where string // the package that holds it
	Does  string
	// Breaks are the properties of package test/history of which at least one must be
	// reported; none where no storm can show the bug.
	Breaks []string
	// By are the catchers that must report it, each by itself.
	By []string
}
