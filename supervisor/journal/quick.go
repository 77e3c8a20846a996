package journal

import (
	"math"
	"time"

	"mcpbridge/messages"
)

// quick decodes the two records that a journal is full of, in the very form in which
// encode writes them: names in order, no blanks, plain ASCII. Whatever looks different
// is left to decodeRecord, which knows all of JSON; what quick does decode, decodeRecord
// decodes to the same (TestQuick). A full journal of a million records is read at every
// start, and encoding/json takes ten times as long for it.
//
// What it returns is valid until its next record.
type quick struct {
	b  []byte
	ok bool

	d     messages.DispatchRecord
	o     messages.OutcomeRecord
	names map[string]string // strings that come again and again
}

func newQuick() *quick { return &quick{names: map[string]string{}} }

// decode is decodeRecord; false says that it must be asked.
func (q *quick) decode(payload []byte) (r record, ok bool) {
	q.b, q.ok = payload, true
	switch {
	case q.opt(`{"dispatch":{"call_id":"`):
		q.d = messages.DispatchRecord{CallID: string(q.text())}
		q.lit(`,"run_id":"`)
		q.d.RunID = q.name()
		q.lit(`,"generation":`)
		q.d.Generation = q.number(math.MaxUint64 / 10)
		q.lit(`,"attempt":`)
		q.d.Attempt = int(q.number(math.MaxInt32))
		q.lit(`,"client":"`)
		q.d.Client = q.name()
		q.lit(`,"server":"`)
		q.d.Server = q.name()
		q.lit(`,"tool":"`)
		q.d.Tool = q.name()
		q.lit(`,"args_digest":"`)
		q.d.ArgsDigest = string(q.text())
		if q.opt(`,"idempotency_key":"`) {
			q.d.IdempotencyKey = string(q.text())
		}
		q.d.Remote = q.opt(`,"remote":true`)
		q.lit(`,"at":"`)
		q.d.At = q.time()
		q.lit(`}}`)
		return record{Dispatch: &q.d}, q.ok && len(q.b) == 0
	case q.opt(`{"outcome":{"call_id":"`):
		q.o = messages.OutcomeRecord{CallID: string(q.text())}
		q.lit(`,"run_id":"`)
		q.o.RunID = q.name()
		if q.opt(`,"attempt":`) {
			q.o.Attempt = int(q.number(math.MaxInt32))
		}
		q.lit(`,"outcome":"`)
		if q.o.Outcome.UnmarshalText(q.text()) != nil {
			return record{}, false
		}
		if q.opt(`,"code":"`) {
			q.o.Code = messages.Code(q.name())
		}
		q.lit(`,"at":"`)
		q.o.At = q.time()
		q.o.Dropped = q.opt(`,"dropped":true`)
		q.lit(`}`)
		return q.result()
	}
	return record{}, false
}

// result is the end of an outcome: nothing, or the server's bytes.
func (q *quick) result() (record, bool) {
	r := record{Outcome: &q.o}
	switch {
	case q.opt(`}`):
		return r, q.ok && len(q.b) == 0
	case q.opt(`,"raw":"result"}` + "\n"):
		r.Raw, q.o.Result = rawResult, q.b
	case q.opt(`,"raw":"rpc_error"}` + "\n"):
		r.Raw, q.o.RPCError = rawError, q.b
	default:
		return r, false
	}
	return r, q.ok
}

// opt takes s if it comes next.
func (q *quick) opt(s string) bool {
	if len(q.b) < len(s) || string(q.b[:len(s)]) != s {
		return false
	}
	q.b = q.b[len(s):]
	return true
}

func (q *quick) lit(s string) { q.ok = q.opt(s) && q.ok }

// text takes a string's characters and the quote behind them.
func (q *quick) text() []byte {
	for i, c := range q.b {
		switch {
		case c == '"':
			s := q.b[:i]
			q.b = q.b[i+1:]
			return s
		case c < ' ', c == '\\', c >= 0x80:
			q.ok = false
			return nil
		}
	}
	q.ok = false
	return nil
}

// name is text for what repeats.
func (q *quick) name() string {
	b := q.text()
	s, ok := q.names[string(b)]
	if !ok {
		s = string(b)
		if len(q.names) < 10_000 {
			q.names[s] = s
		}
	}
	return s
}

func (q *quick) number(most uint64) (n uint64) {
	i := 0
	for ; i < len(q.b) && q.b[i] >= '0' && q.b[i] <= '9' && n < most/10; i++ {
		n = n*10 + uint64(q.b[i]-'0')
	}
	// JSON knows no leading zeros, and a digit that was not taken is in the way next.
	q.ok = q.ok && i > 0 && (q.b[0] != '0' || i == 1)
	q.b = q.b[i:]
	return n
}

// time takes a UTC time in RFC 3339 with up to nine digits of a second, and the quote.
func (q *quick) time() time.Time {
	b := q.text()
	if len(b) < len("2006-01-02T15:04:05Z") || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[len(b)-1] != 'Z' {
		q.ok = false
		return time.Time{}
	}
	digits := func(from, n int) (v int) {
		for _, c := range b[from : from+n] {
			if c < '0' || c > '9' {
				q.ok = false
			}
			v = v*10 + int(c-'0')
		}
		return v
	}
	nanos := 0
	if frac := b[19 : len(b)-1]; len(frac) > 0 {
		if frac[0] != '.' || len(frac) < 2 || len(frac) > 10 {
			q.ok = false
			return time.Time{}
		}
		nanos = digits(20, len(frac)-1)
		for range 10 - len(frac) {
			nanos *= 10
		}
	}
	month, day, hour, minute, second := digits(5, 2), digits(8, 2), digits(11, 2), digits(14, 2), digits(17, 2)
	t := time.Date(digits(0, 4), time.Month(month), day, hour, minute, second, nanos, time.UTC)
	if h, m, s := t.Clock(); int(t.Month()) != month || t.Day() != day || h != hour || m != minute || s != second {
		q.ok = false // 31 February and the like
	}
	return t
}
