package dispatch

import (
	"context"
	"strings"
	"testing"
	"time"

	"mcpbridge/actors/internal/approval"
	"mcpbridge/messages"
)

// asks makes every call of the harness one that needs approval.
func asks(h *harness) {
	h.decide = func(messages.Tool, string, string) (messages.Permission, string) {
		return messages.Ask, "permissions[1]"
	}
}

func (h *harness) answer(id string, yes bool) *messages.Approval {
	h.t.Helper()
	reply := make(chan *messages.Approval, 1)
	var got *messages.Approval
	h.onCommand = func(cmd Command) {
		if a, ok := cmd.(AnswerDecided); ok {
			got = a.Approval
		}
	}
	h.step(messages.DecideApproval{ID: id, Approve: yes, Reply: reply})
	h.onCommand = nil
	return got
}

func (h *harness) pending() (out []messages.Approval) {
	h.onCommand = func(cmd Command) {
		if a, ok := cmd.(AnswerApprovals); ok {
			out = a.Approvals
		}
	}
	h.step(messages.QueryApprovals{})
	h.onCommand = nil
	return out
}

// TestAGrantIsForOneCall: single use, exact arguments, one client, one definition, ten
// minutes.
func TestAGrantIsForOneCall(t *testing.T) {
	for _, c := range []struct {
		name      string
		edit      []func(*messages.Submit)
		tool      string
		until     time.Duration
		meanwhile func(h *harness)
		ok        bool
	}{
		{name: "the same call", ok: true},
		{name: "at the last moment", until: approval.Life - time.Second, ok: true},
		{name: "too late", until: approval.Life},
		{name: "other arguments", edit: []func(*messages.Submit){args(`{"a":2}`)}},
		{name: "another client", edit: []func(*messages.Submit){from("d")}},
		{name: "another tool", tool: "put"},
		{name: "another definition", meanwhile: func(h *harness) {
			tools := standard()
			for i := range tools {
				tools[i].Digest = "sha256:new"
			}
			h.step(messages.CatalogueChanged{Catalogue: catalogue(2, map[string]bool{"fs": true}, tools...)})
		}},
		{name: "another program", meanwhile: func(h *harness) { h.step(messages.ServerConfigured{Key: fs, Limits: limits()}) }},
		{name: "denied since", meanwhile: func(h *harness) {
			h.decide = func(messages.Tool, string, string) (messages.Permission, string) { return messages.Deny, "default" }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := ready(t, nil)
			asks(h)
			h.call("first", "write", args(`{"a":1}`))
			h.want("first", messages.Rejected, messages.CodeApprovalRequired)
			id := h.settled["first"].ApprovalID
			if a := h.answer(id, true); a == nil || a.ID != id {
				t.Fatalf("the answer was %+v", a)
			}
			h.pass(c.until)
			if c.meanwhile != nil {
				c.meanwhile(h)
			}
			tool := "write"
			if c.tool != "" {
				tool = c.tool
			}
			h.call("second", tool, append([]func(*messages.Submit){args(`{"a":1}`)}, c.edit...)...)
			if !c.ok {
				if o := h.settled["second"]; o.Kind != messages.Rejected || len(h.execs) != 0 {
					t.Errorf("it is %s/%s, %d sent", o.Kind, o.Code, len(h.execs))
				}
				return
			}
			h.wantStarted("second#1@1")
			h.done("second", okReply)
			h.call("third", "write", args(`{"a":1}`))
			h.want("third", messages.Rejected, messages.CodeApprovalRequired)
			if h.settled["third"].ApprovalID == id {
				t.Error("the id was used up and is asked under again")
			}
		})
	}
}

// TestAGrantIsNotLostOnARefusal: a call that could not be admitted has not used it.
func TestAGrantIsNotLostOnARefusal(t *testing.T) {
	h := ready(t, nil)
	asks(h)
	h.call("a", "write")
	h.answer(h.settled["a"].ApprovalID, true)
	h.state(messages.StateQuarantined, "")
	h.call("b", "write")
	h.want("b", messages.NotSent, messages.CodeUnavailable)
	h.state(messages.StateReady, "")
	h.call("c", "write")
	h.wantStarted("c#1@1")
}

// TestKeysComeBeforeApprovals: the outcome of a call that was approved is given again
// without another question, and a repetition sends nothing.
func TestKeysComeBeforeApprovals(t *testing.T) {
	h := ready(t, nil)
	asks(h)
	h.call("a", "write", key("k"))
	h.answer(h.settled["a"].ApprovalID, true)
	h.call("b", "write", key("k"))
	h.done("b", okReply)
	h.call("c", "write", key("k"))
	h.want("c", messages.OK, "")
	if len(h.execs) != 1 || h.settled["c"].FirstID != "b" {
		t.Errorf("%d sent; the first is %q", len(h.execs), h.settled["c"].FirstID)
	}
}

// TestAsker: what becomes of a call whose asker is asked.
func TestAsker(t *testing.T) {
	nobody := func(context.Context, messages.Approval) (bool, error) { return false, nil }
	ask := func(m *messages.Submit) { m.Call.Ask = nobody }
	begin := func(t *testing.T) (*harness, *Ask, *int) {
		h := ready(t, nil)
		asks(h)
		var asked Ask
		stopped := 0
		h.onCommand = func(cmd Command) {
			switch cmd := cmd.(type) {
			case Ask:
				asked = cmd
			case StopAsking:
				if cmd.Token != asked.Token {
					t.Errorf("asker %d is stopped, %d was asked", cmd.Token, asked.Token)
				}
				stopped++
			}
		}
		h.call("a", "write", ask, timeout(time.Minute))
		h.wantOpen("a")
		if asked.Token == 0 || asked.Of == nil || !asked.Deadline.Equal(start.Add(time.Minute)) {
			t.Fatalf("asked %+v", asked)
		}
		return h, &asked, &stopped
	}
	answered := func(q *Ask) messages.Answered { return messages.Answered{CallID: q.CallID, Token: q.Token} }
	t.Run("yes", func(t *testing.T) {
		h, q, _ := begin(t)
		m := answered(q)
		m.Yes = true
		h.step(m)
		h.wantStarted("a#1@1")
		h.step(m) // once more means nothing
		h.done("a", okReply)
		h.want("a", messages.OK, "")
	})
	t.Run("no", func(t *testing.T) {
		h, q, _ := begin(t)
		m := answered(q)
		h.step(m)
		h.want("a", messages.Rejected, messages.CodeDenied)
		if len(h.pending()) != 0 {
			t.Error("the question is open still")
		}
	})
	t.Run("yes to what has been denied since", func(t *testing.T) {
		h, q, _ := begin(t)
		h.decide = func(messages.Tool, string, string) (messages.Permission, string) {
			return messages.Deny, "permissions[0]"
		}
		m := answered(q)
		m.Yes = true
		h.step(m)
		h.want("a", messages.Rejected, messages.CodeDenied)
	})
	t.Run("yes to what has changed since", func(t *testing.T) {
		h, q, _ := begin(t)
		h.core.calls["a"].definition = "sha256:what it was"
		m := answered(q)
		m.Yes = true
		h.step(m)
		h.want("a", messages.Rejected, messages.CodeToolChanged)
	})
	t.Run("nobody there", func(t *testing.T) {
		h, q, _ := begin(t)
		m := answered(q)
		m.Cannot = true
		h.step(m)
		h.want("a", messages.Rejected, messages.CodeApprovalRequired)
		if list := h.pending(); len(list) != 1 || list[0].ID != h.settled["a"].ApprovalID {
			t.Errorf("the queue holds %+v", list)
		}
	})
	for name, end := range map[string]func(h *harness){
		"cancelled": func(h *harness) { h.step(messages.Cancel{CallID: "a"}) },
		"expired":   func(h *harness) { h.pass(time.Minute) },
		"draining":  func(h *harness) { h.step(messages.DrainAll{}) },
	} {
		t.Run(name, func(t *testing.T) {
			h, q, stopped := begin(t)
			end(h)
			if o, ok := h.settled["a"]; !ok || o.Kind != messages.NotSent {
				t.Errorf("it is %+v", o)
			}
			if *stopped != 1 {
				t.Errorf("the asker was stopped %d times", *stopped)
			}
			m := answered(q)
			m.Yes = true
			h.step(m)
			if len(h.execs) != 0 {
				t.Error("a late yes sent it")
			}
		})
	}
	t.Run("somebody else is faster", func(t *testing.T) {
		h, q, _ := begin(t)
		h.answer(q.Approval.ID, true)
		h.wantStarted("a#1@1")
	})
	t.Run("somebody else says no", func(t *testing.T) {
		h, q, _ := begin(t)
		h.answer(q.Approval.ID, false)
		h.want("a", messages.Rejected, messages.CodeDenied)
	})
}

// TestJudgedAtDispatch: what waits in a queue is judged again before it is sent.
func TestJudgedAtDispatch(t *testing.T) {
	other := func(edit func(*messages.Tool)) *messages.Catalogue {
		tools := standard()
		for i := range tools {
			if tools[i].RemoteName == "write" {
				tools[i].Digest = "sha256:old"
				edit(&tools[i])
			}
		}
		return catalogue(2, map[string]bool{"fs": true}, tools...)
	}
	for _, c := range []struct {
		name   string
		change func(h *harness)
		code   messages.Code // "" = it is sent
	}{
		{"nothing", func(*harness) {}, ""},
		{"the rules deny", func(h *harness) {
			h.decide = func(messages.Tool, string, string) (messages.Permission, string) {
				return messages.Deny, "permissions[3]"
			}
			h.step(messages.PolicyChanged{})
		}, messages.CodeDenied},
		{"the rules ask", func(h *harness) { asks(h); h.step(messages.PolicyChanged{}) }, messages.CodeApprovalRequired},
		{"other rules, the same word", func(h *harness) { h.step(messages.PolicyChanged{}) }, ""},
		{"another definition", func(h *harness) {
			h.step(messages.CatalogueChanged{Catalogue: other(func(t *messages.Tool) { t.Digest = "sha256:new" })})
		}, messages.CodeToolChanged},
		{"… that the operator takes over", func(h *harness) {
			h.step(messages.CatalogueChanged{Catalogue: other(func(t *messages.Tool) { t.Digest, t.Limits.AnyDefinition = "sha256:new", true })})
		}, ""},
		{"held back", func(h *harness) {
			h.step(messages.CatalogueChanged{Catalogue: other(func(t *messages.Tool) { t.Held, t.Change = true, messages.Changed })})
		}, messages.CodeToolChanged},
		{"a read by now", func(h *harness) {
			h.step(messages.CatalogueChanged{Catalogue: other(func(t *messages.Tool) { t.Effect = messages.ReadOnly })})
		}, messages.CodeToolChanged},
		{"gone", func(h *harness) {
			h.step(messages.CatalogueChanged{Catalogue: catalogue(2, map[string]bool{"fs": true}, tool("fs", "read", messages.ReadOnly, messages.FromConfig))})
		}, messages.CodeToolChanged},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := ready(t, nil)
			h.core.catalogue = other(func(*messages.Tool) {})
			h.call("first", "write")
			h.call("queued", "write")
			h.call("behind", "read")
			c.change(h)
			h.done("first", okReply)
			if c.code == "" {
				h.done("queued", okReply)
				h.want("queued", messages.OK, "")
			} else {
				h.want("queued", messages.Rejected, c.code)
				for _, e := range h.execs {
					if e.CallID == "queued" {
						t.Error("it was handed out")
					}
				}
			}
			h.decide = func(messages.Tool, string, string) (messages.Permission, string) { return messages.Allow, "" }
			if _, settled := h.settled["behind"]; !settled && c.code != messages.CodeDenied && c.code != messages.CodeApprovalRequired {
				h.done("behind", okReply) // its place was given back
			}
			h.wantIdle()
		})
	}
}

// TestAnApprovedCallIsNotAskedAboutAgain when policy changes to the same word.
func TestAnApprovedCallIsNotAskedAboutAgain(t *testing.T) {
	h := ready(t, nil)
	h.call("first", "write")
	asks(h)
	h.call("a", "write", args(`{"a":1}`))
	h.answer(h.settled["a"].ApprovalID, true)
	h.call("b", "write", args(`{"a":1}`))
	h.wantOpen("b")
	h.step(messages.PolicyChanged{})
	h.done("first", okReply)
	h.done("b", okReply)
	h.want("b", messages.OK, "")
}

// TestTheDefinitionThatTheCallerSaw: P8.
func TestTheDefinitionThatTheCallerSaw(t *testing.T) {
	h := ready(t, nil)
	tools := standard()
	for i := range tools {
		tools[i].Digest = "sha256:now"
	}
	h.step(messages.CatalogueChanged{Catalogue: catalogue(2, map[string]bool{"fs": true}, tools...)})
	saw := func(d string) func(*messages.Submit) { return func(m *messages.Submit) { m.Call.Digest = d } }
	h.call("old", "write", saw("sha256:before"))
	h.want("old", messages.Rejected, messages.CodeToolChanged)
	h.call("new", "write", saw("sha256:now"))
	h.wantStarted("new#1@1")
	// A tool that is denied says so: nothing about its definition is told.
	h.decide = func(messages.Tool, string, string) (messages.Permission, string) {
		return messages.Deny, "permissions[0]"
	}
	h.call("denied", "write", saw("sha256:before"))
	h.want("denied", messages.Rejected, messages.CodeDenied)
	if !strings.Contains(h.settled["denied"].Message, "permissions[0]") {
		t.Errorf("it says %q", h.settled["denied"].Message)
	}
}

// TestGrantsBetweenLives: what was approved and not used can be taken along, once.
func TestGrantsBetweenLives(t *testing.T) {
	take := func(h *harness) (out []messages.CallGrant) {
		h.onCommand = func(cmd Command) {
			if a, ok := cmd.(AnswerGrants); ok {
				out = a.Grants
			}
		}
		h.step(messages.TakeGrants{})
		h.onCommand = nil
		return out
	}
	h := ready(t, nil)
	asks(h)
	h.call("a", "write")
	h.answer(h.settled["a"].ApprovalID, true)
	grants := take(h)
	if len(grants) != 1 || len(take(h)) != 0 {
		t.Fatalf("grants: %+v", grants)
	}
	h.call("b", "write")
	h.want("b", messages.Rejected, messages.CodeApprovalRequired)

	next := newHarness(t, func(c *Config) { c.RunID = "next" })
	asks(next)
	next.step(messages.RestoreGrants{Grants: append(grants, messages.CallGrant{Client: "c", Server: "fs", Tool: "put", Until: start.Add(time.Hour)})})
	next.ready(limits())
	next.call("c", "write")
	next.wantStarted("c#1@1")
	next.call("d", "put") // it claims to last longer than any grant does
	next.want("d", messages.Rejected, messages.CodeApprovalRequired)
}
