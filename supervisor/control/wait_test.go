package control

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

func TestWaitIsWokenByEvents(t *testing.T) {
	f := newFake("a", "b")
	c := serve(t, f)
	done := make(chan WaitResult, 1)
	go func() {
		res, err := c.Wait(t.Context(), WaitRequest{For: ForReady, Timeout: patience, After: map[string]uint64{"a": 3}})
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	f.set("a", messages.StateReady, 3) // the old one
	f.set("b", messages.StateReady, 1)
	f.set("a", messages.StateStarting, 4)
	f.set("a", messages.StateReady, 4)
	select {
	case res := <-done:
		if !res.Reached || len(res.Servers) != 2 || len(res.Missing) != 0 {
			t.Errorf("%+v", res)
		}
	case <-time.After(patience):
		t.Fatal("timeout")
	}
}

func TestWaitSeesAStatusThatComesAfterItsEvent(t *testing.T) {
	f := newFake("a")
	c := serve(t, f)
	f.emit(messages.Event{Type: messages.EventServerState, Server: "a", State: "ready"})
	time.AfterFunc(50*time.Millisecond, func() {
		f.locked(func() { f.status.Servers[0].State = messages.StateReady }) // and no event
	})
	if res, err := c.Wait(t.Context(), WaitRequest{For: ForReady, Timeout: patience}); err != nil || !res.Reached {
		t.Errorf("%+v %v", res, err)
	}
}

func TestWaitEnds(t *testing.T) {
	tests := []struct {
		name    string
		states  map[string]messages.State
		lazy    bool
		req     WaitRequest
		reached bool
		missing int
	}{
		{"ready", map[string]messages.State{"a": messages.StateReady}, false, WaitRequest{For: ForReady}, true, 0},
		{"time is up", map[string]messages.State{"a": messages.StateBackoff}, false, WaitRequest{For: ForReady, Timeout: time.Millisecond}, false, 1},
		{"disabled ones are not meant", map[string]messages.State{"a": messages.StateReady, "b": messages.StateDisabled}, false, WaitRequest{For: ForReady}, true, 0},
		{"a named disabled one is hopeless", map[string]messages.State{"b": messages.StateDisabled}, false, WaitRequest{For: ForReady, Servers: []string{"b"}}, false, 1},
		{"broken is hopeless", map[string]messages.State{"a": messages.StateReady, "b": messages.StateConfigError}, false, WaitRequest{For: ForReady}, false, 1},
		{"lazy ones start by themselves only when called", map[string]messages.State{"a": messages.StateIdle}, true, WaitRequest{For: ForReady}, true, 0},
		{"idle but meant to run", map[string]messages.State{"a": messages.StateIdle}, false, WaitRequest{For: ForReady, Timeout: time.Millisecond}, false, 1},
		{"stopped", map[string]messages.State{"a": messages.StateStopped, "b": messages.StateConfigError}, false, WaitRequest{For: ForStopped}, true, 0},
		{"not stopped", map[string]messages.State{"a": messages.StateStopping}, false, WaitRequest{For: ForStopped, Timeout: time.Millisecond}, false, 1},
		{"quarantined", map[string]messages.State{"a": messages.StateQuarantined}, false, WaitRequest{For: ForQuarantined}, true, 0},
		{"nobody", nil, false, WaitRequest{For: ForReady}, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			for _, n := range []string{"a", "b"} {
				if s, ok := tt.states[n]; ok {
					srv := config.Server{Name: n, Connect: config.ConnectStartup}
					if tt.lazy {
						srv.Connect = config.ConnectLazy
					}
					f.cfg.Servers = append(f.cfg.Servers, srv)
					f.status.Servers = append(f.status.Servers, messages.ServerStatus{Name: n, State: s, Generation: 1})
				}
			}
			res, err := serve(t, f).Wait(t.Context(), tt.req)
			if err != nil || res.Reached != tt.reached || len(res.Missing) != tt.missing {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
	c := serve(t, newFake("a"))
	_, err := c.Wait(t.Context(), WaitRequest{For: "rich"})
	apiError(t, err, CodeBadRequest)
	_, err = c.Wait(t.Context(), WaitRequest{For: ForReady, Servers: []string{"c"}})
	apiError(t, err, CodeUnknownServer)
}

// TestWaitResultIsShownLikeTheStatus: a script reads the servers of both the same way.
func TestWaitResultIsShownLikeTheStatus(t *testing.T) {
	row := messages.ServerStatus{Name: "a", LastExit: &messages.Exit{}}
	got, err := json.Marshal(WaitResult{For: ForReady, Servers: []messages.ServerStatus{row}, Missing: []Missing{}})
	if err != nil {
		t.Fatal(err)
	}
	status, err := json.Marshal(messages.Status{Servers: []messages.ServerStatus{row}})
	if err != nil {
		t.Fatal(err)
	}
	var a, b struct{ Servers json.RawMessage }
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(status, &b); err != nil {
		t.Fatal(err)
	}
	if string(a.Servers) != string(b.Servers) || strings.Contains(string(a.Servers), `"instances":null`) {
		t.Errorf("wait   %s\nstatus %s", a.Servers, b.Servers)
	}
	var back WaitResult
	if err := json.Unmarshal(got, &back); err != nil || len(back.Servers) != 1 || back.For != ForReady {
		t.Errorf("%+v %v", back, err)
	}
	if empty, err := json.Marshal(WaitResult{}); err != nil || !strings.Contains(string(empty), `"servers":[]`) {
		t.Errorf("%s %v", empty, err)
	}
}
