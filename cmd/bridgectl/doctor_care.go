package main

import (
	"context"
	"fmt"
	"os/exec"

	"mcpbridge/actors/upstream/own"
	"mcpbridge/config"
	"mcpbridge/messages"
	"mcpbridge/supervisor/control"
)

// processes asks the running bridge how it owns processes; where none runs, it tries what
// one that was started from here could do.
func (a *app) processes(socket string, cfg *config.Config) (o messages.Ownership, whose string, err error) {
	c := control.NewClient(socket)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), askBriefly)
	defer cancel()
	if st, err := c.Status(ctx); err == nil && st.Bridge.Ownership.Rung != "" {
		return st.Bridge.Ownership, "in the running bridge", nil
	}
	var want own.Limits
	if cfg != nil {
		for _, s := range cfg.Servers {
			want.Memory, want.PIDs = max(want.Memory, s.Limits.Memory), max(want.PIDs, s.Limits.PIDs)
		}
	}
	rung, _ := a.env(own.ForceVar)
	o, err = own.Probe(rung, want)
	return o, "for a bridge started from here", err
}

// ownershipLine is the state in one line.
func ownershipLine(o messages.Ownership) string {
	s := orElse(o.Rung, "unknown")
	if o.Forced {
		s += " (asked for by " + own.ForceVar + ")"
	} else if o.Reason != "" {
		s += " (" + o.Reason + ")"
	}
	s += "; guardian " + orElse(o.Guardian, "unknown")
	if o.GuardianPID != 0 {
		s += fmt.Sprintf(" (pid %d)", o.GuardianPID)
	}
	if o.GuardianReason != "" {
		s += ": " + o.GuardianReason
	}
	return s
}

// care is what can be promised about a server's processes.
func care(s config.Server, o messages.Ownership) serverCare {
	c := serverCare{Name: s.Name, Transport: string(s.Type)}
	if s.Err != nil {
		c.Ownership = []string{"none: the entry is broken"}
		return c
	}
	if s.Remote() {
		c.Ownership = []string{"none: the server runs elsewhere; a call that timed out may still run there"}
		return c
	}
	c.Rung = o.Rung
	red := config.NewRedactor(s.Secrets) // a path may be made of references
	if path, err := exec.LookPath(s.Command); err == nil {
		c.Command = red.String(path)
	} else {
		c.Command = red.String(s.Command) + " (not found)"
	}
	c.Ownership = append(held(o), afterKill(o)...)
	c.Ownership = append(c.Ownership, limited(s.Limits, o)...)
	return c
}

// held says what a stop or a crash of the server ends.
func held(o messages.Ownership) []string {
	group := "a process group of its own, which is stopped and killed as a whole"
	proof := "the next start waits until the whole tree is proven dead"
	marks := "descendants that left the group are found by marks in their environment and by descent, and killed with it"
	switch o.Rung {
	case own.RungCgroup:
		return []string{"a control group of its own: whatever the server starts is born in it and killed with it, wherever it hides", proof}
	case own.RungSubreaper:
		return []string{group, marks, proof,
			"a descendant that gave up marks, session and parents within a second is found at the end of the bridge only"}
	case own.RungMarkers:
		return []string{group, marks, proof, "a descendant that gave up marks, session and parents within a second is not found"}
	case own.RungJob:
		return []string{"a job object: whatever the server starts, but for its very first moment, ends with it; there is no gentle signal"}
	default:
		return []string{group, "descendants that leave the group are not found"}
	}
}

// afterKill says what happens when the bridge itself is killed.
func afterKill(o messages.Ownership) []string {
	switch {
	case o.Rung == own.RungJob:
		return []string{"when the bridge itself is killed, the system ends the job"}
	case o.Rung == own.RungGroup:
		return []string{"when the bridge itself is killed, servers end by the end of their stdin; those that ignore it stay"}
	case o.Guardian == "running" || o.Guardian == "starting":
		return []string{"when the bridge itself is killed, the guardian kills all of it within two seconds"}
	case o.Guardian == "down":
		return []string{"the guardian is down: if the bridge is killed now, the system kills the process it started, and the next start what carries its mark"}
	default:
		return []string{"no guardian (" + o.GuardianReason + "): when the bridge itself is killed, the system kills the process it started, and the next start on the same state directory what carries its mark"}
	}
}

// limited says what enforces the limits.
func limited(l config.Limits, o messages.Ownership) (lines []string) {
	if l.NoFile > 0 {
		lines = append(lines, fmt.Sprintf("limits.nofile %d: for each process", l.NoFile))
	}
	if l.Memory > 0 {
		how := map[string]string{own.RungCgroup: "for the tree as a whole, which is killed when it is spent",
			"process": "for each process by itself (no control group limits memory here)"}[o.Memory]
		lines = append(lines, fmt.Sprintf("limits.memory %d: %s", l.Memory, orElse(how, "not possible here: the server is refused")))
	}
	if l.PIDs > 0 {
		how := "for the tree as a whole"
		if o.PIDs == "none" {
			how = "not possible here: the server is refused"
		}
		lines = append(lines, fmt.Sprintf("limits.pids %d: %s", l.PIDs, how))
	}
	return lines
}
