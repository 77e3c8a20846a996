package config

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{"0": 0, "0s": 0, "00": 0, "500ms": 500 * time.Millisecond, "30s": 30 * time.Second, "1h30m": 90 * time.Minute,
		"7d": 7 * day, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, " 5 s ": 5 * time.Second, "10us": 10 * time.Microsecond, "1ns": 1} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for in, has := range map[string]string{"30": "needs a unit", "-5s": "negative", "": "expected a duration", "s": "not a duration",
		"5x": "no known unit", "5s3": "needs a unit", "1e400s": "no known unit", "999999999999d": "too long", "NaN": "not a duration", "1..5s": "not a duration"} {
		if got, err := ParseDuration(in); err == nil || !strings.Contains(err.Error(), has) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "64MiB": 64 << 20, "8MB": 8e6, "1.5KiB": 1536, "10 gib": 10 << 30, "7B": 7, "1kb": 1000} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for in, has := range map[string]string{"8": "needs a unit", "-1MiB": "negative", "8M": "no known unit", "MiB": "not a size", "": "not a size", "1KiB2B": "not a size",
		"99999999999GiB": "too large"} {
		if got, err := ParseSize(in); err == nil || !strings.Contains(err.Error(), has) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func TestUnitsSurviveShowing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, math.MaxInt64/1000).Draw(t, "n") / rapid.SampledFrom([]int64{1, 1e3, 1e6, 1e9}).Draw(t, "scale")
		d := time.Duration(n) * rapid.SampledFrom([]time.Duration{1, 1000}).Draw(t, "unit")
		// A float carries 53 bits: to the microsecond for a hundred years.
		if got, err := ParseDuration(formatDuration(d)); err != nil || math.Abs(float64(got-d)) > float64(d)*1e-12 {
			t.Fatalf("%s: %v, %v", formatDuration(d), got, err)
		}
		if got, err := ParseSize(formatSize(n)); err != nil || math.Abs(float64(got-n)) > float64(n)*1e-12 {
			t.Fatalf("%s: %v, %v", formatSize(n), got, err)
		}
	})
}

func TestSuggest(t *testing.T) {
	known := []string{"args", "command", "connect", "max_reads", "restart", "timeouts"}
	for in, want := range map[string]string{"comand": "command", "agrs": "args", "maxReads": "max_reads", "timeout": "timeouts", "zebra": "", "": "",
		"conect": "connect", "Command": "command", strings.Repeat("x", 1000): ""} {
		if got := suggest(in, known); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
