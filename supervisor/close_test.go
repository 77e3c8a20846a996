package supervisor

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/messages"
)

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(func(string, int) behaviour { return behaviour{slowStop: 2900 * time.Millisecond} })
		b := openFakes(t, f, fakeConfig("a", "b", "c"), WithStartupWait(time.Minute))
		outs := make(chan messages.Outcome, 2)
		for range 2 {
			go func() { outs <- b.Call(background, hang("a")) }()
		}
		synctest.Wait()
		began := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := b.Close(background); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 9*time.Second || took < 5*time.Second {
			t.Errorf("Close took %s", took)
		}
		kinds := []messages.OutcomeKind{(<-outs).Kind, (<-outs).Kind}
		if kinds[0] != messages.NotSent || kinds[1] != messages.OutcomeUnknown {
			t.Errorf("outcomes %v", kinds)
		}
		if out := b.Call(background, echo("b")); out.Kind != messages.Rejected || out.Code != messages.CodeDraining {
			t.Errorf("a late call: %+v", out)
		}
		if err := b.Operate(background, messages.VerbStart, "b"); err == nil {
			t.Error("a server was started in a closed bridge")
		}
		if b.CancelCall("x") {
			t.Error("a call was found in a closed bridge")
		}
		b.WaitListed(background, "")
		if st := b.Status(); !st.Bridge.Draining || len(st.Servers) != 3 {
			t.Errorf("%+v", st)
		}
		for _, n := range []string{"a", "b", "c"} {
			if f.alive(n) != 0 {
				t.Errorf("%s still lives", n)
			}
		}
		time.Sleep(time.Second)
	})
}

// A cancelled context skips the grace of a Close that is under way.
func TestCloseInAHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openFakes(t, newFakes(func(string, int) behaviour { return behaviour{slowStop: time.Hour} }), fakeConfig("a"), WithStartupWait(time.Minute))
		go b.Call(background, hang("a"))
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Close took %s", took)
		}
		time.Sleep(time.Second)
	})
}

// A server that cannot be ended makes Close report, not hang.
func TestCloseNamesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes(func(s string, _ int) behaviour { return behaviour{stuck: s == "b"} })
		b := openFakes(t, f, fakeConfig("a", "b"), WithStartupWait(time.Minute))
		began := time.Now()
		err := b.Close(background)
		if err == nil || !strings.Contains(err.Error(), "processes of b could not be proven dead") {
			t.Error(err)
		}
		if took := time.Since(began); took > 9*time.Second {
			t.Errorf("Close took %s", took)
		}
		f.peer("b").die(messages.Exit{})
		time.Sleep(time.Second)
	})
}

// D8: from inside callbacks everything may be called.
func TestCallbacksMayCallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called, closed := make(chan messages.Outcome, 1), make(chan error, 1)
		ready := make(chan *Bridge, 1)
		var once sync.Once
		b := openFakes(t, newFakes(nil), fakeConfig("fs"), WithEventHook(func(e messages.Event) {
			if e.Type == messages.EventCatalogue {
				once.Do(func() {
					b := <-ready
					called <- b.Call(background, echo("fs"))
					b.Status()
					b.SubscribeLogs(func(messages.LogLine) { b.Logs("", 1) })()
					b.Subscribe(func(messages.Event) {})()
					closed <- b.Close(background)
				})
			}
		}))
		ready <- b
		if out := <-called; out.Kind != messages.OK {
			t.Errorf("%+v", out)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
	})
}
