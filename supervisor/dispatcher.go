package supervisor

// ownGoroutine is a dispatcher that runs one actor on one goroutine for its whole
// life. Protoactor starts a goroutine for each burst of messages; for the router,
// which every call passes twice, growing a fresh stack each time costs more than the
// work itself.
//
// A mailbox schedules its run again only when the one before has declared itself
// idle, so that at most one run is being finished while one is waiting.
type ownGoroutine struct {
	work chan func()
	quit chan struct{}
}

func newOwnGoroutine() *ownGoroutine {
	d := &ownGoroutine{work: make(chan func(), 2), quit: make(chan struct{})}
	go d.run()
	return d
}

func (d *ownGoroutine) run() {
	for {
		select {
		case f := <-d.work:
			f()
		case <-d.quit:
			return
		}
	}
}

// Schedule implements actor.Dispatcher. It never blocks; a run that finds no room,
// or comes after close, gets a goroutine of its own.
func (d *ownGoroutine) Schedule(f func()) {
	select {
	case <-d.quit:
		go f()
		return
	default:
	}
	select {
	case d.work <- f:
	default:
		go f()
	}
}

// Throughput implements actor.Dispatcher: how many messages run before others get
// a chance at the processor.
func (d *ownGoroutine) Throughput() int { return 300 }

// close ends the goroutine once its actor is gone.
func (d *ownGoroutine) close() { close(d.quit) }
