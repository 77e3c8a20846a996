package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/config"
	"mcpbridge/messages"
)

// asking is a configuration of a fake whose echo needs approval.
func asking() *config.Config {
	c := fakeConfig("fs")
	c.Permissions = []config.Rule{{Action: messages.Ask}}
	return c
}

// TestApprovalsExpire: by the clock, a question after ten minutes and a grant ten
// minutes after the yes.
func TestApprovalsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openFakes(t, newFakes(nil), asking(), WithStartupWait(10*time.Second))
		defer closeBridge(t, b)
		ask := func() string {
			t.Helper()
			o := b.Call(background, echo("fs"))
			if o.Code != messages.CodeApprovalRequired || o.ApprovalID == "" {
				t.Fatalf("%+v", o)
			}
			return o.ApprovalID
		}
		id := ask()
		time.Sleep(10*time.Minute - time.Second)
		if list, err := b.Approvals(background); err != nil || len(list) != 1 || time.Until(*list[0].ExpiresAt) != time.Second {
			t.Errorf("a second before the end: %+v %v", list, err)
		}
		time.Sleep(time.Second)
		if list, err := b.Approvals(background); err != nil || len(list) != 0 {
			t.Errorf("after the end: %+v %v", list, err)
		}
		if _, err := b.Approve(background, id); !errors.Is(err, ErrUnknownApproval) {
			t.Errorf("a yes to what is forgotten: %v", err)
		}
		for _, late := range []bool{false, true} {
			if _, err := b.Approve(background, ask()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10*time.Minute - time.Second)
			if late {
				time.Sleep(time.Second)
			}
			if o := b.Call(background, echo("fs")); (o.Kind == messages.OK) == late {
				t.Errorf("late %v: %s/%s", late, o.Kind, o.Code)
			}
		}
	})
}

// TestApproverHangs: an approver that never answers costs its call, at its deadline.
func TestApproverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		b := openFakes(t, newFakes(nil), asking(), WithStartupWait(10*time.Second), WithApprover(func(context.Context, messages.Approval) (bool, error) {
			<-let // deaf to its context
			return true, nil
		}))
		defer closeBridge(t, b)
		begin := time.Now()
		o := b.Call(background, echo("fs"))
		if o.Kind != messages.NotSent || o.Code != messages.CodeExpired || time.Since(begin) != time.Minute || !strings.Contains(o.Message, "approve") {
			t.Errorf("after %s: %+v", time.Since(begin), o)
		}
		close(let)
	})
}

// TestGateReplaced: another policy counts at once, and for what waits as well.
func TestGateReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openFakes(t, newFakes(nil), fakeConfig("fs"), WithStartupWait(10*time.Second))
		defer closeBridge(t, b)
		ctx, cancel := context.WithCancel(background)
		first, queued := make(chan messages.Outcome, 1), make(chan messages.Outcome, 1)
		go func() { first <- b.Call(ctx, hang("fs")) }()
		synctest.Wait()
		go func() {
			queued <- b.Call(background, messages.CallTool{Tool: "fs/hang", Args: json.RawMessage(`{"second":true}`)})
		}()
		synctest.Wait()
		strict := fakeConfig("fs")
		strict.Permissions = []config.Rule{{Tool: "hang", Action: messages.Deny}, {Action: messages.Allow}}
		strict.Normalize()
		b.gate.Replace(strict)
		b.send(b.refs.Router, messages.PolicyChanged{})
		if o := b.Call(background, hang("fs")); o.Code != messages.CodeDenied {
			t.Errorf("a new call: %+v", o)
		}
		cancel()
		<-first
		b.Operate(background, messages.VerbRestart, "fs") // the lane opens with the proof of death
		if o := <-queued; o.Code != messages.CodeDenied || o.Sent() {
			t.Errorf("the one that waited: %s/%s %s", o.Kind, o.Code, o.Message)
		}
	})
}

// TestMachineApproved: a blocked server begins with the entry that was approved, once.
func TestMachineApproved(t *testing.T) {
	approved := testServer()
	approved.Command = "resolved"
	t.Run("starts", func(t *testing.T) {
		s := tell(t, func(c *config.Server) { c.Blocked = "approval" }).is(messages.StateBlocked, "approval")
		s.do(s.w.send(evApproved{approved})).do(s.w.bringUp()).is(messages.StateReady, "")
		if s.w.m.cfg.Command != "resolved" {
			t.Errorf("it runs %q", s.w.m.cfg.Command)
		}
		other := testServer()
		other.Command = "late"
		s.do(s.w.send(evApproved{other})).is(messages.StateReady, "")
		if s.w.m.cfg.Command != "resolved" {
			t.Error("a late approval changed a server that runs")
		}
	})
	t.Run("lazy", func(t *testing.T) {
		lazy := approved
		lazy.Connect = config.ConnectLazy
		s := tell(t, func(c *config.Server) { c.Blocked = "approval" })
		s.do(s.w.send(evApproved{lazy})).is(messages.StateIdle, "lazy")
	})
	t.Run("its references lead nowhere", func(t *testing.T) {
		broken := approved
		broken.Err = &messages.Issue{Message: "NOT_SET is not set"}
		s := tell(t, func(c *config.Server) { c.Blocked = "approval" })
		s.do(s.w.send(evApproved{broken})).is(messages.StateConfigError, "NOT_SET")
	})
	t.Run("the bridge closes", func(t *testing.T) {
		s := tell(t, func(c *config.Server) { c.Blocked = "approval" })
		s.do(s.w.send(evStopAll{})).do(s.w.send(evApproved{approved})).is(messages.StateBlocked, "approval")
	})
}
