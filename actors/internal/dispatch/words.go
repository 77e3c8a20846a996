package dispatch

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"mcpbridge/messages"
)

// What the bridge says about a call that it does not, or did not, run: why, and
// what to do about it.

const hintReport = "please report it with the lines of the log around it"

var negativeTimeout = rejected(messages.CodeInvalidArguments, "the timeout is negative",
	"give a positive timeout, or none for the configured one")

func rejected(code messages.Code, message, hint string) verdict {
	return verdict{kind: messages.Rejected, code: code, message: message, hint: hint}
}

func notSent(code messages.Code, message, hint string) verdict {
	return verdict{kind: messages.NotSent, code: code, message: message, hint: hint}
}

func invalidArgs(t messages.Tool, why string) verdict {
	return rejected(messages.CodeInvalidArguments, "arguments of "+toolName(t.Server, t.RemoteName)+": "+why,
		"`bridgectl tools --schema "+t.EndpointName+"` shows what the tool takes")
}

func overloaded(why string, after time.Duration) verdict {
	v := rejected(messages.CodeOverloaded, why, "try again in "+rounded(after)+", or with fewer calls at once; `bridgectl calls` shows what waits")
	v.retryAfter = after
	return v
}

// refused is the gate's no. It prints the rule that would allow the call.
func refused(t messages.Tool, p messages.Permission, rule string) verdict {
	name := toolName(t.Server, t.RemoteName)
	allow := "{server: " + yamlWord(t.Server) + ", tool: " + quote(t.RemoteName) + ", action: allow}"
	hint := "to allow it, put this rule before all others: permissions: [" + allow + "]"
	switch {
	case p == messages.Ask && (rule == "" || rule == "default"): // no rules are written: the first one ends what holds without any
		hint = "to allow it and leave the rest as it is without rules: permissions: [" + allow + ", {effect: read_only, action: allow}, {action: ask}]"
	case strings.HasSuffix(rule, "is broken"):
		hint = "a rule that cannot be read denies: `bridgectl config check` shows what is wrong with it"
	case strings.HasPrefix(rule, "project "): // judged apart: nothing of the operator's comes before it
		hint = "the workspace's own rules say so: change permissions in its .mcpbridge/config.yaml"
	}
	if p == messages.Ask {
		return rejected(messages.CodeApprovalRequired, name+" ("+t.Effect.String()+") needs approval by "+ruleName(rule), hint)
	}
	return rejected(messages.CodeDenied, name+" ("+t.Effect.String()+") is denied by "+ruleName(rule), hint)
}

func ruleName(rule string) string {
	if rule == "" || rule == "default" {
		return "the default rule"
	}
	return "rule " + rule
}

func conflict(cl *call, first string) verdict {
	return rejected(messages.CodeIdempotencyConflict, "the idempotency key "+quote(cl.req.IdempotencyKey)+" belongs to call "+quote(first)+
		" of "+toolName(cl.key.Server, cl.remote)+", which had other arguments", "give each different call a key of its own, and the same arguments to a repetition")
}

func journalUnavailable(cl *call, why string) verdict {
	return rejected(messages.CodeJournalUnavailable, toolName(cl.key.Server, cl.remote)+" was not sent: the journal cannot record it: "+why,
		"free disk space, or mend the state directory (`bridgectl doctor`); read-only calls go on meanwhile")
}

func notConfigured(k messages.Key) verdict {
	return notSent(messages.CodeUnavailable, "server "+quote(k.String())+" is no longer configured", "`bridgectl status` shows the servers that are")
}

func (c *Core) closedDoor(cl *call) verdict {
	const message, hint = "the bridge is draining", "try again when it has been restarted"
	if cl.announce {
		return notSent(messages.CodeUnavailable, message, hint)
	}
	return rejected(messages.CodeDraining, message, hint)
}

// refusal says why a server takes no calls. A call that was accepted already is
// not sent; a new one is turned away.
func (s *server) refusal(accepted bool) verdict {
	if s.removed {
		return notConfigured(s.key)
	}
	name, state := s.key.Server, s.state
	if s.draining {
		state = messages.StateDraining
	}
	message := "server " + quote(s.key.String()) + " is " + stateWords(state)
	if s.reason != "" {
		message += ": " + s.reason
	}
	if state == messages.StateDraining && !accepted {
		return rejected(messages.CodeDraining, message, "`bridgectl start "+name+"` once it has stopped")
	}
	return notSent(messages.CodeUnavailable, message, s.remedy(state))
}

func stateWords(s messages.State) string {
	switch s {
	case messages.StateConfigError:
		return "not usable as configured"
	case messages.StateBlocked:
		return "blocked until somebody allows it"
	default:
		return s.String()
	}
}

// remedy is what brings a server out of the state.
func (s *server) remedy(state messages.State) string {
	name := s.key.Server
	switch state {
	case messages.StateQuarantined:
		if !s.nextRetry.IsZero() {
			return "`bridgectl reset " + name + "` tries again now; the bridge does so by itself at " + s.nextRetry.UTC().Format(time.RFC3339)
		}
		return "`bridgectl reset " + name + "` tries again once the cause is gone"
	case messages.StateStopped, messages.StateStopping, messages.StateDraining:
		return "`bridgectl start " + name + "` starts it"
	case messages.StateDisabled:
		return "set `enabled: true` (and `connect: startup` or `lazy`) for mcp_servers." + name
	case messages.StateConfigError:
		return "correct mcp_servers." + name + "; `bridgectl config check` shows what is wrong"
	case messages.StateBlocked:
		if s.reason == "auth" {
			return "the server refuses these credentials: check the headers of mcp_servers." + name
		}
		return "`bridgectl approvals` shows the entry, `bridgectl approve ID` lets it run; `supervise --trust-project` trusts the whole workspace"
	case messages.StateIdle, messages.StateStarting, messages.StateReady, messages.StateBackoff:
	}
	return "`bridgectl status " + name + "` shows more"
}

func hintDeadline(cl *call) string {
	if cl.source == messages.DeadlineConfig {
		return "timeouts.call of mcp_servers." + cl.key.Server + " sets this limit"
	}
	return "the caller set this limit: give more time"
}

// expired is the deadline of a call that did not leave.
func (c *Core) expired(cl *call) verdict {
	if cl.why != "" && cl.refused > 0 {
		return notSent(messages.CodeUnavailable, "server "+quote(cl.key.String())+" could not be reached before the deadline: "+cl.why,
			"`bridgectl status "+cl.key.Server+"` shows its state")
	}
	message, hint := "the deadline passed while the call waited", hintDeadline(cl)
	switch s := cl.server; {
	case cl.state == recording:
		message += " for the journal to record it"
		hint += "; the disk of the state directory is slow or hangs"
	case cl.asking != 0:
		message += " for somebody to approve it"
	case cl.finding != 0:
		message += " for the journal to look its idempotency key up"
	case s == nil:
		message += " for its server to list its tools"
	case !s.open():
		message += " for server " + quote(s.key.String()) + ", which is " + s.state.String()
		if s.reason != "" {
			message += ": " + s.reason
		}
	default:
		message += " in the queue of server " + quote(s.key.String())
		hint += "; `bridgectl calls` shows what holds the queue"
	}
	return notSent(messages.CodeExpired, message, hint)
}

func unknownOutcome(cl *call, code messages.Code, message string) verdict {
	hint := "it may have taken effect: look before you repeat it"
	if cl.effect != messages.SideEffect {
		hint = "it is " + cl.effect.String() + ": it may be repeated"
	}
	return verdict{kind: messages.OutcomeUnknown, code: code, message: toolName(cl.key.Server, cl.remote) + ": " + message, hint: hint}
}

func timedOut(cl *call) verdict {
	owner := "the caller's"
	if cl.source == messages.DeadlineConfig {
		owner = "the configured"
	}
	return unknownOutcome(cl, messages.CodeTimeout, "no answer within "+owner+" limit of "+rounded(cl.deadline.Sub(cl.accepted))+
		"; the server may still be working on it")
}

func toolName(server, remote string) string { return server + "/" + remote }

func quote(s string) string { return strconv.Quote(short(s)) }

// short cuts what a caller sent before it goes into messages and the history.
func short(s string) string {
	const enough = 200
	if len(s) <= enough {
		return s
	}
	return strings.ToValidUTF8(s[:enough], "") + "…"
}

// yamlWord writes a name as YAML would, bare where that is safe.
func yamlWord(s string) string {
	if s == "" || s != clean(s) || strings.Trim(s, "-0123456789") == "" {
		return quote(s)
	}
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return quote(s)
	}
	return s
}

func rounded(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprint(d.Round(time.Millisecond))
	}
	return fmt.Sprint(d.Round(100 * time.Millisecond))
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
