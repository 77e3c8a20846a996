package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// misbehave does what the switches want of the process itself, before it serves.
func misbehave(o *options) error {
	if o.endings != "" {
		terms := make(chan os.Signal, 1)
		signal.Notify(terms, syscall.SIGTERM)
		go func() {
			<-terms
			_ = note(o.endings, "term")
			if !o.ignoreTerm {
				os.Exit(143)
			}
		}()
	}
	if o.report != "" {
		b, err := json.Marshal(selfReport())
		if err == nil {
			err = os.WriteFile(o.report+".new", b, 0o600)
		}
		if err == nil {
			err = os.Rename(o.report+".new", o.report)
		}
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	if o.hog > 0 {
		hog = make([]byte, o.hog<<20)
		for i := 0; i < len(hog); i += 4096 {
			hog[i] = 1
		}
		fmt.Fprintf(os.Stderr, "hog: %d MiB\n", o.hog)
	}
	if o.bomb > 0 {
		started, refused := 0, error(nil)
		for range o.bomb {
			if err := sleeper(o, "bomb", nil, exec.Command(os.Args[0])).Start(); err != nil {
				refused = err
				break
			}
			started++
		}
		fmt.Fprintf(os.Stderr, "bomb: %d started, %v\n", started, refused)
	}
	return startEscapes(o)
}

var hog []byte

// startEscapes starts a sleeper of each kind. Those that are to be orphans are started
// by a process between, which ends.
func startEscapes(o *options) error {
	if o.escape == "" {
		return nil
	}
	for kind := range strings.SplitSeq(o.escape, ",") {
		cmd := exec.Command(os.Args[0])
		var between []string
		switch kind {
		case "child":
		case "nohup":
			ownGroup(cmd)
		case "setsid":
			ownSession(cmd)
		case "bare":
			ownSession(cmd)
			cmd.Env = []string{}
		case "double":
			between = []string{"-escape", "setsid"}
		case "lost":
			between = []string{"-escape", "bare"}
		default:
			return fmt.Errorf("-escape %s: there is no such kind", kind)
		}
		sleeper(o, kind, between, cmd)
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("escape %s: %w", kind, err)
		}
		if between != nil {
			_ = cmd.Wait()
		} else {
			go func() { _ = cmd.Wait() }()
		}
	}
	return nil
}

// sleeper makes cmd one that sleeps, deaf to SIGTERM, with stdout and stderr open.
func sleeper(o *options, kind string, more []string, cmd *exec.Cmd) *exec.Cmd {
	cmd.Args = append([]string{os.Args[0], "-name", o.name + "/" + kind, "-sleeper", "-ignore-term"}, more...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

// ending notes the end of stdin, works, and notes that it is done.
func (s *server) ending() {
	if s.o.endings == "" {
		return
	}
	_ = note(s.o.endings, "eof")
	time.Sleep(s.o.endWork)
	_ = note(s.o.endings, "saved")
}

func note(file, word string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, word)
	return errors.Join(err, f.Close())
}
